"""Tools that wait for a person: who says yes to a call, and what happens until then.

The tool's function knows nothing of it. Before it runs, the ``Gate`` looks for a yes to this very
call, takes it, and lets it through; without one the call is written down for a person to decide
on a page of the site, in the site's own session (``transports.approval_page``). A client that can
send its user to a page is asked to; every other one is told where the page is, in band.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcp_django.core.questions import ElicitURL, check_accepted
from mcp_django.core.tool import Tool
from mcp_django.exceptions import NotApproved, ToolError
from mcp_django.protocol.text import visible
from mcp_django.runtime import approving_shown as shown
from mcp_django.runtime.approving_page import page_url
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.journal.entry import Entry
from mcp_django.signals import approval_requested
from mcp_django.store import approvals

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
        arguments = shown.read(self._raw)
        subject = self._subject(arguments)
        row = approvals.find(subject) or self._ask(invocation, subject, arguments)
        if self._send(invocation, row):
            row = approvals.find(subject) or self._ask(invocation, subject, arguments)
        while row.state == approvals.GRANTED:
            if approvals.use(row):
                self._held = row.pk
                if invocation.interaction is not None:
                    invocation.interaction.pass_gate()
                return
            # Another call like this was quicker.
            row = approvals.find(subject) or self._ask(invocation, subject, arguments)
        raise NotApproved(self._told(row))

    def give_back(self) -> None:
        """Keep the yes for the next round of a call that asked something before it did anything."""
        if self._held is not None:
            approvals.give_back(self._held)
            self._held = None

    def _subject(self, arguments: Mapping[str, Any]) -> approvals.Subject:
        server, name = self._incoming.server.name, self._tool.name
        return approvals.Subject(
            server=server,
            component=name,
            by=self._tool.approval,
            principal=self._incoming.principal.key,
            arguments_digest=shown.digest(server, name, arguments),
        )

    # Asking -----------------------------------------------------------------------------------

    def _ask(
        self, invocation: Invocation, subject: approvals.Subject, arguments: Mapping[str, Any]
    ) -> Approval:
        principal = self._incoming.principal
        if approvals.waiting(subject.server, principal.user_key) >= MAX_WAITING:
            raise NotApproved(
                f"{MAX_WAITING} calls wait for approval already; wait until those are decided."
            )
        row = approvals.ask(
            subject,
            user_key=principal.user_key,
            user_name=principal.user.get_username()[:MAX_NAME],
            client=self._client(),
            arguments=shown.shown(self._tool, arguments),
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
        # Whoever runs calls looks at gates.
        from mcp_django.runtime.calls import perform

        if self._tool.dry_run is None:
            return None
        arguments = self._tool.dry_run.of(invocation.arguments)
        dry = replace(invocation, arguments=arguments, gate=None, interaction=None, entry=Entry())
        result = perform(dry)
        if result.get("isError"):
            raise ToolError(shown.texts(result["content"]))
        return shown.preview_of(self._tool, result)

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
                is_decided=row.state != approvals.PENDING,
            )
        except ValueError:
            # The page is not where users may be sent: without TLS, or nowhere at all.
            return False
        interaction.ask([question])
        return True

    def _told(self, row: Approval) -> str:
        """What the model reads: that nothing happened, and what would help."""
        if row.state == approvals.REFUSED:
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
