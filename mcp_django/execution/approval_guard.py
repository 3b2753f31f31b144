"""Approvals: tools whose calls a person must approve before they run.

The tool's function needs no code for it. Before it runs, the approval guard (``ApprovalGuard``)
looks for an approval of this exact call and uses it up. Without one, the call is stored until a
person approves or denies it on a page of the site, in the site's own session
(``transports.site_pages``). A client that supports URL elicitation is asked to open the page; any
other client gets the URL in a tool result.

An approval is bound to the exact arguments. The page shows all of them except secrets: arguments
that are too long to review are rejected, and invisible or text-reversing characters are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.urls import NoReverseMatch, reverse
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from mcp_django.auth.principal import key_of
from mcp_django.components.questions import ElicitURL, check_accepted
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.exceptions import NotApproved, ToolError
from mcp_django.execution.call import Call, Result
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.text import escape_invisible, storable
from mcp_django.schema.secrets import PERSON
from mcp_django.schema.values import sorted_members
from mcp_django.signals import approval_decided, approval_requested
from mcp_django.storage import approval_rows

if TYPE_CHECKING:
    from mcp_django.models import Approval

# The maximum number of waiting calls of one user on one server, so that approvers are not flooded.
MAX_WAITING = 50
MAX_NAME = 255


def guard_for(tool: Tool, raw: bytes, arguments: Mapping[str, Any]) -> ApprovalGuard | None:
    """Return the approval guard of a call, ``None`` if the call needs no approval."""
    if not tool.approval or (tool.dry_run is not None and tool.dry_run.is_dry_run(arguments)):
        return None
    return ApprovalGuard(tool, raw)


def open_guard(call: Call) -> None:
    """Set the approval guard of a call that needs an approval."""
    tool = cast(Tool, call.component)
    call.approval_guard = guard_for(tool, call.raw_arguments, call.arguments)


class ApprovalPageQuestion(ElicitURL):
    """A question that sends the caller to the approval page; then the guard reads the row again."""

    def __init__(self, message: str, url: str, *, is_decided: bool) -> None:
        super().__init__(message, url, key="approval")
        self._is_decided = is_decided

    @property
    def is_settled(self) -> bool:
        """Whether the call is already approved or denied."""
        return self._is_decided

    def read_answer(self, answer: Mapping[str, Any]) -> None:
        """Check that the user agreed to open the page; the answer has no value."""
        check_accepted(answer)


class ApprovalGuard:
    """The approval guard: lets one call run once a person has approved it."""

    def __init__(self, tool: Tool, raw: bytes) -> None:
        # The call is not stored, since it refers to the guard: a reference cycle would delay the
        # record of an abandoned call.
        self._tool = tool
        self._raw = raw
        self._used_pk: int | None = None

    def require(self, call: Call, run_dry: Callable[[Call], Result]) -> None:
        """Use up the approval of this call, or request one with the preview from ``run_dry``.

        Uses the database, outside of the call's transaction.

        Raises:
            NotApproved: the approval is missing or was denied.
            InputRequired: the caller has to open the page first.
            ToolError: there is nothing to approve, since the call would fail.
        """
        if call.channel.acting_user:
            # A user who acts as another could approve their own call.
            raise NotApproved(
                f"Nothing was done: {self._tool.name} needs approval, so it cannot be called in "
                "another user's name."
            )
        arguments = parse_arguments(self._raw)
        subject = self._subject(call, arguments)
        row = approval_rows.find_approval(subject) or self._request_approval(
            call, subject, arguments, run_dry
        )
        if self._send_to_page(call, row):
            row = approval_rows.find_approval(subject) or self._request_approval(
                call, subject, arguments, run_dry
            )
        while row.state == approval_rows.GRANTED:
            if approval_rows.use_approval(row):
                self._used_pk = row.pk
                if call.interaction is not None:
                    call.interaction.mark_approval_boundary()
                return
            # A concurrent call with the same arguments used the approval.
            row = approval_rows.find_approval(subject) or self._request_approval(
                call, subject, arguments, run_dry
            )
        raise NotApproved(self._denial_message(call, row))

    def release(self) -> None:
        """Make the approval usable again, for the next round of a call that asks the client."""
        if self._used_pk is not None:
            approval_rows.release_approval(self._used_pk)
            self._used_pk = None

    def _subject(self, call: Call, arguments: Mapping[str, Any]) -> approval_rows.ApprovalSubject:
        server, name = call.server.name, self._tool.name
        return approval_rows.ApprovalSubject(
            server=server,
            component=name,
            by=self._tool.approval,
            principal=call.principal.key,
            arguments_digest=approval_digest(server, name, arguments),
        )

    # Asking ---------------------------------------------------------------------------------------

    def _request_approval(
        self,
        call: Call,
        subject: approval_rows.ApprovalSubject,
        arguments: Mapping[str, Any],
        run_dry: Callable[[Call], Result],
    ) -> Approval:
        principal = call.principal
        if approval_rows.count_pending(subject.server, principal.user_key) >= MAX_WAITING:
            raise NotApproved(
                f"{MAX_WAITING} calls wait for approval already; wait until those are decided."
            )
        declared_name = (call.envelope.client_info or {}).get("name", "")
        client = principal.client_name or (declared_name if isinstance(declared_name, str) else "")
        row = approval_rows.create_pending(
            subject,
            user_key=principal.user_key,
            user_name=principal.username[:MAX_NAME],
            client=escape_invisible(client)[:MAX_NAME],
            arguments=self._tool.mask(arguments, limits=PERSON),
            # Last, since a dry run may change the user in memory.
            preview=self._preview(call, run_dry),
        )
        url = page_url(call, row.code)
        approval_requested.send_robust(sender=type(row), approval=row, url=url)
        return row

    def _preview(self, call: Call, run_dry: Callable[[Call], Result]) -> Any:
        """Run the dry run and return what the call would change, as its caller may see it.

        Raises:
            ToolError: the call would fail, so there is nothing to approve.
        """
        if self._tool.dry_run is None:
            return None
        dry = call.nested()
        dry.prepare(
            self._tool,
            self._tool.dry_run.to_dry_run(call.arguments),
            to_result=call.to_result,
            to_error=call.to_error,
        )
        dry.timeout_seconds = call.timeout_seconds
        result = run_dry(dry)
        if result.get("isError"):
            raise ToolError(_result_text(result["content"]))
        return stored_preview(self._tool, result)

    # Telling the caller ---------------------------------------------------------------------------

    def _send_to_page(self, call: Call, row: Approval) -> bool:
        """Ask the caller to open the page; return whether the caller was asked and has answered.

        Only if the caller decides: another person may take a day, and no connection waits so long.
        """
        interaction = call.interaction
        if self._tool.approval != "caller" or interaction is None:
            return False
        if not interaction.supports("elicitation.url"):
            return False
        try:
            question = ApprovalPageQuestion(
                f"{str(self._tool.title) or self._tool.name} waits for your approval. Open the "
                "page to see what it would do, and decide there.",
                page_url(call, row.code),
                is_decided=row.state != approval_rows.PENDING,
            )
        except ValueError:
            # Users must not be sent to this URL: it has no TLS, or the page does not exist.
            return False
        interaction.ask([question])
        return True

    def _denial_message(self, call: Call, row: Approval) -> str:
        """Return the message for the model: nothing was done, and what to do next."""
        if row.state == approval_rows.REFUSED:
            reason = f" The reason given: {row.reason}" if row.reason else ""
            return f"Nothing was done: this call of {self._tool.name} was not approved.{reason}"
        url = page_url(call, row.code)
        if self._tool.approval == "caller":
            who = "approval by the user"
            how = f"Ask the user to open {url or 'this site'} and decide there, and then"
        else:
            who = f"approval by another user of this site{f', at {url}' if url else ''}"
            how = "Tell the user; once it is approved,"
        return (
            f"Nothing was done yet: this call of {self._tool.name} waits for {who}. "
            f"{how} call again with the same arguments."
        )


# Display of a waiting call ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunPreview:
    """The result of a dry run, for display on a page."""

    changes: tuple[tuple[str, str, str], ...] = ()
    """Fields with their old and new values."""
    rest: tuple[tuple[str, str], ...] = ()
    is_too_large: bool = False

    @classmethod
    def from_stored(cls, stored: Any) -> DryRunPreview | None:
        """Return a preview from its stored form; ``None`` if there is none."""
        if stored is None:
            return None
        if not isinstance(stored, dict):
            return cls(rest=(("", _display_text(stored)),))
        if stored.get("too_large") is True:
            return cls(is_too_large=True)
        stored = {name: value for name, value in stored.items() if name != "preview"}
        changes = stored.pop("changes", {})
        if not isinstance(changes, dict):
            changes, stored = {}, {**stored, "changes": changes}
        return cls(
            changes=tuple(_change(name, change) for name, change in changes.items()),
            rest=text_items(stored),
        )


def _change(name: str, change: Any) -> tuple[str, str, str]:
    if not isinstance(change, dict):
        return name, "", _display_text(change)
    return name, _display_text(change.get("from")), _display_text(change.get("to"))


def text_items(values: Any) -> tuple[tuple[str, str], ...]:
    """Return the members of an object with their values as text; empty for any other value."""
    items = values.items() if isinstance(values, Mapping) else ()
    return tuple((name, _display_text(value)) for name, value in items)


def _display_text(value: Any) -> str:
    """Return a value as text for display."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)


# The page: its address and its permissions --------------------------------------------------------

PERMISSION = "mcp_django.decide_approval"
BACKEND = "django.contrib.auth.backends.ModelBackend"


def page_url(call: Call, code: str) -> str:
    """Return the URL of the page: absolute if the site's URL is known, empty without a page.

    A server that is mounted only by ``server.asgi`` has no page.
    """
    request = call.http_request()
    match = getattr(request, "resolver_match", None)
    # The mount's path may have variables of its own, such as a language or a tenant.
    variables = match.kwargs if match is not None else {}
    try:
        mount = reverse(f"{call.server.namespace}:endpoint", kwargs=variables)
    except NoReverseMatch:
        return ""
    path = f"{mount.rstrip('/')}/approvals/{code}"
    if base := get_settings().base_url:
        return base.rstrip("/") + path
    return request.build_absolute_uri(path) if request is not None else path


def may_decide(row: Approval, user: Any) -> bool:
    """Return whether this user may decide: the caller, or an approver other than the caller."""
    if not (user.is_authenticated and user.is_active):
        return False
    is_caller = key_of(user) == row.user_key
    if row.by == row.By.CALLER:
        return is_caller
    # Four eyes: even superusers may decide only about calls of other users.
    return not is_caller and bool(user.has_perm(PERMISSION))


def may_see(row: Approval, user: Any) -> bool:
    """Return whether this user may see the page: the caller, and users who may decide."""
    is_caller = user.is_authenticated and user.is_active and key_of(user) == row.user_key
    return is_caller or may_decide(row, user)


def decide(row: Approval, user: Any, *, is_granted: bool, reason: str = "") -> bool:
    """Approve or deny a call; return ``False`` if it is already decided or expired.

    Raises:
        PermissionError: this user may not decide about the call.
    """
    if not may_decide(row, user):
        raise PermissionError("This user may not decide about this call.")
    name = user.get_username()[:MAX_NAME]
    if not approval_rows.save_decision(
        row, is_granted=is_granted, by=name, reason=storable(reason[:500])
    ):
        return False
    if apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import CHANGE, LogEntry

        message = _("Approved.") if is_granted else _("Rejected.")
        LogEntry.objects.log_actions(user.pk, [row], CHANGE, message)
    approval_decided.send_robust(sender=type(row), approval=row, user=user)
    return True


def mail_approvers(sender: Any, *, approval: Any, url: str, **kwargs: Any) -> None:
    """Send mail to the users who may approve a call that waits for approval.

    It is a receiver of ``approval_requested``, for sites that connect it.

    Calls that the caller approves send no mail, since the client tells the caller. The mail names
    the tool, the user and the page but no arguments, which are shown only after sign-in. Users who
    have the permission through another backend than ``ModelBackend`` are not found.
    """
    if approval.by != approval.By.STAFF:
        return
    users = get_user_model()._default_manager.with_perm(PERMISSION, backend=BACKEND)
    # All with the permission may decide, except the caller.
    approvers = [user for user in users if key_of(user) != approval.user_key]
    emails = [str(getattr(user, user.get_email_field_name(), "") or "") for user in approvers]
    addresses = [email for email in emails if email]
    if not addresses:
        return
    # Users choose their names, and line breaks must not get into the mail.
    who = " ".join(str(approval.user_name).split())
    EmailMessage(
        subject=_("%(tool)s waits for approval") % {"tool": approval.component},
        body=_("%(user)s wants to use %(tool)s. See what it would do, and decide:\n\n%(url)s\n")
        % {"user": who, "tool": approval.component, "url": url},
        bcc=addresses,
    ).send()


# Arguments: their digest and their display --------------------------------------------------------

SALT = "mcp_django.approval"
# A person cannot review more than this.
MAX_BYTES = 100_000
MAX_PREVIEW_BYTES = 20_000
TOO_LARGE = {"too_large": True}


def parse_arguments(raw: bytes) -> dict[str, Any]:
    """Return the arguments, with numbers exactly as they were written.

    Raises:
        ToolError: they are too long to review, or ambiguous.
    """
    if len(raw) > MAX_BYTES:
        raise ToolError(
            f"A person has to approve this call, and its arguments have {len(raw)} bytes; send at "
            f"most {MAX_BYTES}."
        )
    arguments: dict[str, Any] = json.loads(
        raw, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_unique_names
    )
    return arguments


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        # JSON parsers disagree: some take the first, others the last.
        raise ToolError("An argument is named twice; name each once.")
    return members


def approval_digest(server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest that an approval is bound to; it does not depend on argument order.

    It is keyed, since otherwise a short argument could be guessed from its digest.
    """
    text = repr([server, tool, sorted_members(arguments)])
    return salted_hmac(SALT, text, algorithm="sha256").hexdigest()


def stored_preview(tool: Tool, result: Mapping[str, Any]) -> Any:
    """Return the result of a dry run, for the page."""
    preview = result.get("structuredContent")
    if preview is None:
        preview = _result_text(result.get("content", ()))
    preview = tool.mask(preview, limits=PERSON)
    return preview if len(encode(preview)) <= MAX_PREVIEW_BYTES else TOO_LARGE


def _result_text(content: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a result."""
    return "\n".join(str(block["text"]) for block in content if block.get("type") == "text")
