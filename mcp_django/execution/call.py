"""``Call``: one request, from its admission to its answer, and what can answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol

import msgspec

from mcp_django.auth.authentication import refresh_principal
from mcp_django.auth.limits import ShareKey, share_of
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Catalog, Server
from mcp_django.components.component import Component
from mcp_django.components.context import (
    Asker,
    Cancellation,
    ClientPort,
    Context,
    CurrentTask,
    NullPort,
    UnstreamedPort,
)
from mcp_django.conf import Settings
from mcp_django.exceptions import MCPError
from mcp_django.execution.call_record import CallRecord, Identification
from mcp_django.execution.threads import SINGLE_CLIENT_TRANSPORTS
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Revision
from mcp_django.storage.sessions import ClientSession

if TYPE_CHECKING:
    from django.http import HttpRequest


WHY_NO_STREAMS = "Streams are not available: this site is served over WSGI, not ASGI."


def _no_result(value: Any) -> Result:
    raise AssertionError("The call was not prepared.")


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Channel:
    """What brings requests to a server: a connection, this process, or one HTTP request.

    Each call has the channel of its request. The call log records three of its values: the name of
    the ``transport``; ``origin``, where the requests come from (``client``, ``admin``,
    ``command``); and ``acting_user``, the user who makes them if that is not their caller.
    """

    transport: str = ""
    origin: str = "client"
    acting_user: str = ""
    shares_thread: bool = False
    """Whether one thread does all database work of several calls: in tests, so that all of it is in
    one transaction."""
    can_stream: bool = True
    """Whether more than one message can answer a request; false under WSGI, for example."""
    find_source: Callable[[], str | None] = lambda: "local"
    """Returns the source by which limits count an anonymous caller (``limits.limit_source``):
    ``"local"`` for requests of this process, ``None`` if it is unknown."""

    def component_headers(self) -> Headers | None:
        """Return the headers without those that contain credentials; ``None`` without HTTP."""
        return None

    def build_component_request(self, principal: Principal) -> HttpRequest | None:
        """Build the request as components see it, without credentials; ``None`` without HTTP."""
        return None

    def confirm_caller(self, server: Server, principal: Principal) -> Principal | None:
        """Return the caller with its current rights, ``None`` if its credential is no longer valid.

        Raises:
            SynchronousOnlyOperation: on an event loop, if this needs a query.
        """
        return refresh_principal(principal)


class ClientDialogue(Asker, Protocol):
    """The client requests of a call (``interaction``)."""

    @property
    def is_continued(self) -> bool:
        """Whether the call continues an earlier one."""

    @property
    def must_stop(self) -> bool:
        """Whether the function has to stop, since answers are missing or a task begins."""

    @property
    def starts_task(self) -> bool:
        """Whether the function started a task."""

    def mark_approval_boundary(self) -> None:
        """Note that all further questions are asked after the approval."""

    def start_task(self) -> NoReturn:
        """Stop the function, to start a task."""

    def state(self) -> bytes:
        """Return the state of the interaction, encoded."""

    def result(self) -> dict[str, Any]:
        """Return the questions as the result of the request."""

    def elicitation_id(self, key: str) -> str:
        """Return the id of an elicitation by URL."""

    def resume(self, answers: Mapping[str, Any]) -> None:
        """Take the answers of the client, for the next run of the function."""

    def replay_port(self, port: ClientPort | None) -> ClientPort | None:
        """Return a port that sends no message twice."""


class RequiredApproval(Protocol):
    """The approval guard of a call (``approval_guard``)."""

    def require(self, call: Call, run_dry: Callable[[Call], Result]) -> None:
        """Reject the call unless it is approved; ``run_dry`` runs its dry run, for a preview."""

    def release(self) -> None:
        """Make the approval usable again, since the function did not finish."""


class CountedUses(Protocol):
    """Counts the uses of several requests together (``quotas``)."""

    def add(self, quotas: Any) -> None:
        """Add the uses of a request."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Call:
    """One request, from its admission to its answer.

    A transport creates it when envelope and caller are known. The handler of its method either sets
    ``result``, which ends the admission, or prepares the call of a component, which the transport
    then runs: ``component``, ``arguments``, ``to_result`` and ``to_error``.

    ``session`` is what a client of a handshake revision negotiated. ``can_ask`` is true where the
    server can send a client request (elicitation, sampling, roots) while it serves this request;
    stateless revisions do not need that. ``record`` is the call record.
    """

    server: Server
    request: Request
    envelope: Envelope
    principal: Principal
    channel: Channel = field(default_factory=Channel)
    session: ClientSession | None = None
    can_ask: bool = False
    catalog: Catalog | None = None
    """The catalog that the whole call uses. A transport sets it if it authorized the caller with
    this catalog; otherwise the admission sets it."""
    name: str = ""
    """The name or URI of the component, if the transport already knows it."""
    created_at: float = field(default_factory=monotonic)
    asks_again: bool = False
    """Whether the call waits after its admission, so it is authorized again before it begins."""
    has_begun: bool = False
    """Whether the function has begun, perhaps to run again with the answers of the client."""
    usage_batch: CountedUses | None = None
    """Counts the uses of several requests together; ``None`` counts each use immediately."""
    record: CallRecord = field(default_factory=CallRecord)
    cancellation: Cancellation = field(default_factory=Cancellation)
    result: Result | OpenAnswer | None = None
    """The answer of the handler; ``None`` if the prepared call of a component remains to be run."""

    plan: Plan | None = None
    """What a call of the component does; ``None`` until the plan is looked up."""
    params: RetryParams | None = None
    """The decoded parameters of a call of a component."""
    raw_arguments: bytes = b"{}"
    """The JSON of the arguments."""
    component: Component = field(init=False)
    """Set by the plan, or by ``prepare``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    to_result: Callable[[Any], Result] = _no_result
    """Converts the value that the function returned to a result."""
    to_error: Callable[[Exception], Result] = _no_result
    """Converts an exception to a result, or raises the JSON-RPC error for it."""
    interaction: ClientDialogue | None = None
    """The client requests of the call; without it the function cannot send any."""
    approval_guard: RequiredApproval | None = None
    """The approval guard of a call that must be approved before it runs."""
    task: CurrentTask | None = None
    """The task that this call runs as, or that its function can start."""
    task_factory: Callable[[Call, bytes], Result] | None = None
    """Creates a task of the call, given the encoded state of its interaction; returns the result
    that the client gets."""
    start_as_task: bool = False
    """Whether the call becomes a task before its function runs."""
    must_become_task: bool = False
    """Whether the call must become a task, since its client accepts no other result."""
    timeout_seconds: float | None = None
    """The time limit; ``None`` means that of the component, or else of the settings."""
    stream: ResponseStream | None = None
    """The stream of server-sent events that may answer the request; ``None`` if one JSON document
    answers it, or if the transport's messages are not events."""
    encoded: tuple[Result, bytes] | None = None
    """The last result that was encoded, and its JSON."""
    outer: Call | None = None
    """The call that this one is a part of."""
    _request: HttpRequest | None = field(default=None, init=False)

    def __repr__(self) -> str:
        # Only the method: its headers contain credentials, and components reach the call through
        # their context.
        return f"<Call {self.request.method}>"

    @property
    def headers(self) -> Headers | None:
        """The headers of the HTTP request without those that contain credentials."""
        return self.channel.component_headers()

    def http_request(self) -> HttpRequest | None:
        """Return the request as components see it, always the same object; ``None`` without HTTP.

        It has no credentials and no cookies.
        """
        if self._request is None:
            if self.outer is not None:
                self._request = self.outer.http_request()
            else:
                self._request = self.channel.build_component_request(self.principal)
        return self._request

    def confirm(self, principal: Principal) -> None:
        """Replace the caller with its current state, since its rights may have changed."""
        self.principal, self._request = principal, None

    @property
    def network(self) -> str | None:
        """The source by which limits count an anonymous caller, empty if it is unknown.

        ``None`` for an authenticated caller.
        """
        return None if self.principal.is_authenticated else self.channel.find_source() or ""

    @property
    def thread_key(self) -> ShareKey:
        """The key whose share of threads the call uses; ``None`` for a process's only client."""
        if self.channel.transport in SINGLE_CLIENT_TRANSPORTS:
            return None
        return share_of(self.principal, self.channel.find_source)

    @property
    def revision(self) -> Revision:
        """The protocol revision that the response must use."""
        return self.envelope.revision

    @property
    def asked_for_logs(self) -> bool:
        """Whether the client requested a log level, rather than leave it to the server."""
        if self.session is not None:
            return self.session.log_level is not None
        return self.envelope.log_level is not None

    @property
    def wants_stream(self) -> bool:
        """Whether the component is slow, or can send messages that the client requested."""
        if self.component.slow or self.component.function.context_parameter is None:
            return self.component.slow
        return self.envelope.progress_token is not None or self.asked_for_logs

    def prepare(
        self,
        component: Component,
        arguments: Mapping[str, Any],
        *,
        to_result: Callable[[Any], Result],
        to_error: Callable[[Exception], Result],
    ) -> None:
        """Prepare the call of a component: it is authorized, and its arguments are valid."""
        self.component, self.arguments = component, arguments
        self.to_result, self.to_error = to_result, to_error

    def nested(self) -> Call:
        """Return a call of another component as a part of this call, which alone is recorded."""
        return Call(
            server=self.server,
            request=self.request,
            envelope=self.envelope,
            principal=self.principal,
            channel=self.channel,
            session=self.session,
            can_ask=self.can_ask,
            catalog=self.catalog,
            outer=self,
        )

    def context(self, port: ClientPort | None = None) -> Context:
        """Return the ``Context`` for the component's function."""
        interaction = self.interaction
        if interaction is not None:
            port = interaction.replay_port(port)
        if (
            port is None
            and not self.channel.can_stream
            and self.envelope.progress_token is not None
        ):
            port = UnstreamedPort()
        return Context(
            server=self.server.unwrapped,
            principal=self.principal,
            protocol_version=self.revision.version,
            client=self.envelope.client_info,
            trace=self.envelope.trace,
            request=self.http_request,
            read_resource=lambda uri: self.server.read_resource(self, uri, interaction),
            port=port or NullPort(),
            session=self.session,
            asker=interaction,
            cancellation=self.cancellation,
            task=self.task,
        )


@dataclass(slots=True, kw_only=True)
class ResponseStream:
    """The state of a stream of server-sent events."""

    has_begun: bool = False
    """Whether a message or a keep-alive is sent before the response, which is an event then."""


class OpenAnswer:
    """An answer that is not a result, or not yet: a stream of events, or a wait."""


@dataclass(frozen=True, slots=True)
class TaskWait(OpenAnswer):
    """The wait of a ``tasks/result`` for an unfinished task, answered when the task ends."""

    task_id: str


Step = Callable[[Call], None]
"""Decides something about a call; sets ``call.result`` to answer without running the function."""


def run_steps(call: Call, steps: Iterable[Step]) -> None:
    """Run the steps, up to the first that answers the call."""
    for step in steps:
        step(call)
        if call.result is not None:
            return


Result = dict[str, Any]
HandlerResult = Result | OpenAnswer | None
"""What a handler returns; ``None`` if it prepared the call of a component."""


class RetryParams(msgspec.Struct, rename="camel", kw_only=True):
    """The additional parameters of a retry; answers stay raw until a question needs them."""

    input_responses: dict[str, msgspec.Raw] | None = None
    request_state: str | None = None

    @property
    def is_retry(self) -> bool:
        """Whether the request continues an earlier one."""
        return bool(self.input_responses) or self.request_state is not None


class ComponentMethod(NamedTuple):
    """A method that uses a component: what tools, resources and prompts do differently."""

    name: str
    params: type[RetryParams]
    """The parameters of the method."""
    name_parameter: str
    """The parameter that names the component."""
    find: Callable[[Catalog, str], Component | None]
    """Finds a component by its name, its URI or an alias."""
    siblings: Callable[[Catalog], Iterable[Component]]
    """Returns all components of the kind."""
    unknown: Callable[[Call], MCPError]
    """Returns the error for a name without a component that the caller may see."""
    read_arguments: Step
    """Reads the arguments and sets how the value of the function is converted to a result."""


class Plan(NamedTuple):
    """What a call of one component does, at one revision, on one server."""

    method: ComponentMethod
    component: Component | None
    """``None`` for a name without a component."""
    admission: tuple[Step, ...]
    """The steps that apply, in order."""
    continued: tuple[Step, ...]
    """The steps of a call that continues an earlier one with the client's answers."""
    nested: tuple[Step, ...]
    """The steps of a part of another call; only that outer call is counted and asks the client."""
    about: Identification | None
    """The columns of the call log that are the same for all these calls."""
    where: Literal["loop", "thread"]
    """Where the call is admitted and run, if nothing about its caller has to be looked up."""
    server: Server
    settings: Settings
