"""Tools that need approval: who approves a call, and what happens until then.

The tool's function does not know about it. Before it runs, the ``Gate`` looks for an approval of
this very call, uses it up, and lets the call through; without one the call is written down for a
person to decide on a page of the site, in the site's own session (``transports.site_pages``). A
client that can send its user to a page is asked to; every other client gets the page's address in
band.

An approval is bound to the exact arguments. A person sees all of them except secrets: arguments
too long to be reviewed are refused, and invisible characters or characters that reverse the text
are written out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.urls import NoReverseMatch, reverse
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from mcp_django.auth.principal import key_of
from mcp_django.conf import get_settings
from mcp_django.core.questions import ElicitURL, check_accepted
from mcp_django.core.tool import Tool
from mcp_django.exceptions import NotApproved, ToolError
from mcp_django.execution.call import Incoming, Invocation
from mcp_django.execution.call_record import Entry
from mcp_django.execution.invoke import perform
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.text import storable, visible
from mcp_django.schema.secrets import HIDDEN, is_secret, without_secrets
from mcp_django.schema.structure import Path
from mcp_django.signals import approval_decided, approval_requested
from mcp_django.storage import approval_rows

if TYPE_CHECKING:
    from mcp_django.models import Approval

# A caller who asks for more is not waiting for somebody but busying him.
MAX_WAITING = 50
MAX_NAME = 255


def gate_of(
    incoming: Incoming, tool: Tool, raw: bytes, arguments: Mapping[str, Any]
) -> Gate | None:
    """What a call has to pass; nothing where no person has to be asked about it."""
    if not tool.approval or (tool.dry_run is not None and tool.dry_run.is_one(arguments)):
        return None
    return Gate(incoming, tool, raw)


class DecideOnPage(ElicitURL):
    """Send the caller to the page on which he decides; what he decided is looked up afterwards."""

    def __init__(self, message: str, url: str, *, is_decided: bool) -> None:
        super().__init__(message, url, key="approval")
        self._is_decided = is_decided

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to decide."""
        return self._is_decided

    def read(self, answer: Mapping[str, Any]) -> None:
        """Nothing: to accept means to be willing to go there."""
        check_accepted(answer)


class Gate:
    """Lets one call through once a person has said yes to it."""

    def __init__(self, incoming: Incoming, tool: Tool, raw: bytes) -> None:
        self._incoming = incoming
        self._tool = tool
        self._raw = raw
        self._held: int | None = None

    def enter(self, invocation: Invocation) -> None:
        """Take the yes for this call. Uses the database; not within the transaction of the call.

        Raises:
            NotApproved: there is none, or there was a no.
            InputRequired: the caller is sent to the page first.
            ToolError: there is nothing to approve, since the call would fail.
        """
        if self._incoming.acting:
            # Who acts as another could say yes to himself.
            raise NotApproved(
                f"Nothing was done: {self._tool.name} waits for approval, and is not used in "
                "another user's name."
            )
        arguments = read(self._raw)
        subject = self._subject(arguments)
        row = approval_rows.find(subject) or self._ask(invocation, subject, arguments)
        if self._send(invocation, row):
            row = approval_rows.find(subject) or self._ask(invocation, subject, arguments)
        while row.state == approval_rows.GRANTED:
            if approval_rows.use(row):
                self._held = row.pk
                if invocation.interaction is not None:
                    invocation.interaction.pass_gate()
                return
            # Another call like this was quicker.
            row = approval_rows.find(subject) or self._ask(invocation, subject, arguments)
        raise NotApproved(self._told(row))

    def give_back(self) -> None:
        """Keep the yes for the next round of a call that asked something before it did anything."""
        if self._held is not None:
            approval_rows.give_back(self._held)
            self._held = None

    def _subject(self, arguments: Mapping[str, Any]) -> approval_rows.Subject:
        server, name = self._incoming.server.name, self._tool.name
        return approval_rows.Subject(
            server=server,
            component=name,
            by=self._tool.approval,
            principal=self._incoming.principal.key,
            arguments_digest=digest(server, name, arguments),
        )

    # Asking -----------------------------------------------------------------------------------

    def _ask(
        self, invocation: Invocation, subject: approval_rows.Subject, arguments: Mapping[str, Any]
    ) -> Approval:
        principal = self._incoming.principal
        if approval_rows.waiting(subject.server, principal.user_key) >= MAX_WAITING:
            raise NotApproved(
                f"{MAX_WAITING} calls wait for approval already; wait until those are decided."
            )
        row = approval_rows.ask(
            subject,
            user_key=principal.user_key,
            user_name=principal.user.get_username()[:MAX_NAME],
            client=self._client(),
            arguments=shown(self._tool, arguments),
            preview=self._preview(invocation),
        )
        url = page_url(self._incoming, row.code)
        approval_requested.send_robust(sender=type(row), approval=row, url=url)
        return row

    def _client(self) -> str:
        said = (self._incoming.envelope.client_info or {}).get("name", "")
        name = self._incoming.principal.client_name or (said if isinstance(said, str) else "")
        return visible(name)[:MAX_NAME]

    def _preview(self, invocation: Invocation) -> Any:
        """What the call would change, as its caller would see it.

        Raises:
            ToolError: it would change nothing but fail, which needs no person.
        """
        if self._tool.dry_run is None:
            return None
        arguments = self._tool.dry_run.of(invocation.arguments)
        dry = replace(invocation, arguments=arguments, gate=None, interaction=None, entry=Entry())
        result = perform(dry)
        if result.get("isError"):
            raise ToolError(_texts(result["content"]))
        return preview_of(self._tool, result)

    # Telling ----------------------------------------------------------------------------------

    def _send(self, invocation: Invocation, row: Approval) -> bool:
        """Send the caller to the page; whether he has been sent, in this round or an earlier one.

        Somebody else's decision may take a day, and no connection waits for it.
        """
        interaction = invocation.interaction
        if self._tool.approval != "caller" or interaction is None:
            return False
        if not interaction.supports("elicitation.url"):
            return False
        try:
            question = DecideOnPage(
                f"{self._title} waits for your approval. Open the page to see what it would do, "
                "and decide there.",
                page_url(self._incoming, row.code),
                is_decided=row.state != approval_rows.PENDING,
            )
        except ValueError:
            # The page is not where users may be sent: without TLS, or nowhere at all.
            return False
        interaction.ask([question])
        return True

    def _told(self, row: Approval) -> str:
        """What the model reads: that nothing happened, and what would help."""
        if row.state == approval_rows.REFUSED:
            reason = f" The reason given: {row.reason}" if row.reason else ""
            return f"Nothing was done: this call of {self._tool.name} was not approved.{reason}"
        url = page_url(self._incoming, row.code)
        if self._tool.approval == "caller":
            who = "approval by the user"
            how = f"Ask the user to open {url or 'this site'} and decide there, and then"
        else:
            who = f"approval by somebody else on this site{f', at {url}' if url else ''}"
            how = "Tell the user; once it is approved,"
        return (
            f"Nothing was done yet: this call of {self._tool.name} waits for {who}. "
            f"{how} call again with the same arguments."
        )

    @property
    def _title(self) -> str:
        return str(self._tool.title) or self._tool.name


# A waiting call as pages show it ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a dry run answered, as a page shows it."""

    changes: tuple[tuple[str, str, str], ...] = ()
    """Fields with what was and what would be."""
    rest: tuple[tuple[str, str], ...] = ()
    is_too_large: bool = False

    @classmethod
    def of(cls, kept: Any) -> Preview | None:
        """A preview as it is kept; ``None`` where there is none."""
        if kept is None:
            return None
        if not isinstance(kept, dict):
            return cls(rest=(("", _text(kept)),))
        if kept.get("too_large") is True:
            return cls(is_too_large=True)
        kept = {name: value for name, value in kept.items() if name != "preview"}
        changes = kept.pop("changes", {})
        if not isinstance(changes, dict):
            changes, kept = {}, {**kept, "changes": changes}
        return cls(
            changes=tuple(_change(name, one) for name, one in changes.items()),
            rest=lines(kept),
        )


def _change(name: str, change: Any) -> tuple[str, str, str]:
    if not isinstance(change, dict):
        return name, "", _text(change)
    return name, _text(change.get("from")), _text(change.get("to"))


def lines(values: Any) -> tuple[tuple[str, str], ...]:
    """The members of an object with their values as text."""
    return tuple((name, _text(value)) for name, value in values.items())


def _text(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)


# The page: its address and its permissions --------------------------------------------------------

PERMISSION = "mcp_django.decide_approval"


def page_url(incoming: Incoming, code: str) -> str:
    """The address of the page: whole where the site's is known, empty where there is no page.

    A server that is mounted by ``server.asgi`` alone has none.
    """
    request = incoming.http_request()
    match = getattr(request, "resolver_match", None)
    # A mount may have variables of its own: a language, a tenant.
    variables = match.kwargs if match is not None else {}
    try:
        mount = reverse(f"{incoming.server.namespace}:endpoint", kwargs=variables)
    except NoReverseMatch:
        return ""
    path = f"{mount.rstrip('/')}/approvals/{code}"
    if base := get_settings().base_url:
        return base.rstrip("/") + path
    return request.build_absolute_uri(path) if request is not None else path


def may_decide(row: Approval, user: Any) -> bool:
    """Whether this user may say yes or no: the caller himself, or anybody of the staff but him."""
    if not (user.is_authenticated and user.is_active):
        return False
    is_caller = key_of(user) == row.user_key
    if row.by == row.By.CALLER:
        return is_caller
    # Four eyes: superusers too decide about others' calls alone.
    return not is_caller and bool(user.has_perm(PERMISSION))


def may_see(row: Approval, user: Any) -> bool:
    """Whether this user may look at the page: who may decide, and whose call it is."""
    is_caller = user.is_authenticated and user.is_active and key_of(user) == row.user_key
    return is_caller or may_decide(row, user)


def decide(row: Approval, user: Any, *, is_granted: bool, reason: str = "") -> bool:
    """Decide about a call; ``False`` where that was done before, or it is too late.

    Raises:
        PermissionError: it is not for this user to decide.
    """
    if not may_decide(row, user):
        raise PermissionError("Not for this user to decide.")
    name = user.get_username()[:MAX_NAME]
    if not approval_rows.decide(row, is_granted=is_granted, by=name, reason=storable(reason[:500])):
        return False
    _log(row, user, is_granted=is_granted)
    approval_decided.send_robust(sender=type(row), approval=row, user=user)
    return True


def _log(row: Approval, user: Any, *, is_granted: bool) -> None:
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry

    message = _("Granted.") if is_granted else _("Refused.")
    LogEntry.objects.log_actions(user.pk, [row], CHANGE, message)


# Arguments: their digest and their display --------------------------------------------------------

SALT = "mcp_django.approval"
# More than this nobody reads before he says yes.
MAX_BYTES = 100_000
MAX_PREVIEW_BYTES = 20_000
MAX_DIGITS = 15
TOO_LARGE = {"too_large": True}


def read(raw: bytes) -> dict[str, Any]:
    """The arguments, number by number as they were written.

    Raises:
        ToolError: a person could not tell what they say.
    """
    if len(raw) > MAX_BYTES:
        raise ToolError(
            f"A person has to approve this call, and its arguments have {len(raw)} bytes; send at "
            f"most {MAX_BYTES}."
        )
    found: dict[str, Any] = json.loads(
        raw, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_once
    )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # One reader takes the first of them, another the last.
        raise ToolError("An argument is named twice; name each once.")
    return found


def digest(server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """What a yes is bound to, whatever the order in which arguments were written.

    Keyed, since a short argument could be guessed from its digest otherwise.
    """
    text = repr([server, tool, _ordered(arguments)])
    return salted_hmac(SALT, text, algorithm="sha256").hexdigest()


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [(name, _ordered(value[name])) for name in sorted(value)]
    if isinstance(value, list):
        return [_ordered(one) for one in value]
    return value


def shown(tool: Tool, value: Any, path: Path = ()) -> Any:
    """Values for a person: without the secrets among them, and with nothing that cannot be seen."""
    if path and is_secret(tool.arguments.json_schema, path, sensitive=tool.sensitive):
        return HIDDEN
    if isinstance(value, Mapping):
        return {visible(name): shown(tool, one, (*path, name)) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(tool, one, (*path, n)) for n, one in enumerate(value)]
    if isinstance(value, str):
        return visible(without_secrets(value))
    return _exact(value) if isinstance(value, Decimal) else value


def _exact(number: Decimal) -> int | str:
    """A number of which no digit is lost on the way to the page."""
    is_short = number.is_finite() and len(number.as_tuple().digits) <= MAX_DIGITS
    if is_short and number.as_tuple().exponent == 0:
        return int(number)
    return str(number)


def preview_of(tool: Tool, result: Mapping[str, Any]) -> Any:
    """What a dry run answered, for the page."""
    found = result.get("structuredContent")
    if found is None:
        found = _texts(result.get("content", ()))
    found = shown(tool, found)
    return found if len(encode(found)) <= MAX_PREVIEW_BYTES else TOO_LARGE


def _texts(content: Iterable[Mapping[str, Any]]) -> str:
    """The text of a result."""
    return "\n".join(str(one["text"]) for one in content if one.get("type") == "text")


# Mail to approvers --------------------------------------------------------------------------------

BACKEND = "django.contrib.auth.backends.ModelBackend"


def mail_approvers(sender: Any, *, approval: Any, url: str, **kwargs: Any) -> None:
    """Tell those who may approve a call that one waits.

    It is a receiver of ``approval_requested``, for sites that connect it.

    Whose own calls wait for himself is told by his client. The mail names the tool, the user and
    the page, and no arguments: those are shown where the reader has signed in. Users who hold the
    permission by another backend than Django's own are not found.
    """
    if approval.by != approval.By.STAFF:
        return
    addresses = [found for found in map(_address, _approvers(approval)) if found]
    if not addresses:
        return
    # A name is somebody's own choice, and a header is one line.
    who = " ".join(str(approval.user_name).split())
    EmailMessage(
        subject=_("%(tool)s waits for approval") % {"tool": approval.component},
        body=_("%(user)s wants to use %(tool)s. See what it would do, and decide:\n\n%(url)s\n")
        % {"user": who, "tool": approval.component, "url": url},
        bcc=addresses,
    ).send()


def _approvers(approval: Any) -> list[Any]:
    """The users who may decide about a call: all with the permission but the caller."""
    found = get_user_model()._default_manager.with_perm(PERMISSION, backend=BACKEND)
    return [user for user in found if key_of(user) != approval.user_key]


def _address(user: Any) -> str:
    return str(getattr(user, user.get_email_field_name(), "") or "")
