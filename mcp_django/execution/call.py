"""``Incoming``: one request on its way to a handler, and what can become of it.

A handler answers at once or returns an ``Invocation``, a call of a component that is ready to
run; a ``Listening``, a stream of changes; or an ``Awaiting``, the wait for the result of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from django.core.signing import BadSignature, Signer as DjangoSigner

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.core.component import Component
from mcp_django.core.context import (
    Cancellation,
    ClientPort,
    Context,
    CurrentTask,
    Silence,
    Unstreamed,
)
from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.execution.call_record import Entry
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.errors import clip
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Revision
from mcp_django.schema.values import MAX_DEPTH, is_too_deep
from mcp_django.storage.sessions import ClientSession

if TYPE_CHECKING:
    from django.http import HttpRequest

    from mcp_django.execution.approval_guard import Gate
    from mcp_django.execution.interaction import Interaction
    from mcp_django.execution.quotas import Tally


def _no_request() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request whose envelope and caller are known.

    ``session`` is what a client of a handshake revision agreed on. ``can_stream`` is false where
    the transport gives one answer and nothing before or after it (WSGI), or the client takes
    nothing else; ``can_ask`` is true where a question can travel while the request is served, which
    no request of a stateless revision needs. ``origin`` says for the call log where it came from
    (``client``, ``admin``, ``command``), ``acting`` who really calls if not the principal,
    ``transport`` how it came, and ``entry`` becomes its line there.
    """

    server: Server
    request: Request
    envelope: Envelope
    principal: Principal
    headers: Headers | None = None
    session: ClientSession | None = None
    can_stream: bool = True
    can_ask: bool = False
    origin: str = "client"
    acting: str = ""
    transport: str = ""
    entry: Entry = field(default_factory=Entry, compare=False, repr=False)
    http_request: Callable[[], HttpRequest | None] = _no_request
    was_let_in: bool = False
    """Whether the caller came in with this very request, so that what is offered is known."""
    tally: Tally | None = None
    """Where uses are counted together with those of other requests; ``None``: at once."""

    @property
    def revision(self) -> Revision:
        """The revision that the answer has to be in."""
        return self.envelope.revision

    @property
    def asked_for_logs(self) -> bool:
        """Whether the client wants log messages, and did not just leave it to the server."""
        if self.session is not None:
            return self.session.log_level is not None
        return self.envelope.log_level is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A call of a component that was admitted and whose arguments hold; nothing has run yet.

    ``conclude`` makes a result of the returned value and ``excuse`` one of an exception, or
    raises the JSON-RPC error that the exception means. ``interaction`` has the questions of the
    call; without one nobody can be asked.
    """

    incoming: Incoming
    component: Component
    arguments: Mapping[str, Any]
    conclude: Callable[[Any], dict[str, Any]]
    excuse: Callable[[Exception], dict[str, Any]]
    cancellation: Cancellation = field(default_factory=Cancellation)
    interaction: Interaction | None = None
    gate: Gate | None = None
    """What it has to pass before it runs: somebody has to say yes to it."""
    task: CurrentTask | None = None
    """The task that it is, or begins when its function says so."""
    become: Callable[[bytes], dict[str, Any]] | None = None
    """Makes a task of it, given how far it has come, and says what its client is answered."""
    at_once: bool = False
    """Whether it becomes a task before its function runs."""
    at_last: bool = False
    """Whether it becomes one even if its function ends without: its client knows no other end."""
    seconds: float | None = None
    """How long it may take; ``None``: as its component says, and a request may."""
    entry: Entry = field(default_factory=Entry, compare=False, repr=False)
    """Its line in the call log; without one given it is a part of another call, which has one."""

    @property
    def wants_stream(self) -> bool:
        """Whether the client asked for messages that this component can send, or must not wait."""
        incoming = self.incoming
        asked = incoming.envelope.progress_token is not None or incoming.asked_for_logs
        talks = self.component.function.context_parameter is not None
        return self.component.slow or (asked and talks)

    def context(self, port: ClientPort | None = None) -> Context:
        """The context that the component's function gets."""
        incoming, interaction = self.incoming, self.interaction
        if interaction is not None:
            port = interaction.listen_through(port)
        if (
            port is None
            and not incoming.can_stream
            and incoming.envelope.progress_token is not None
        ):
            port = Unstreamed()
        return Context(
            server=incoming.server.itself,
            principal=incoming.principal,
            protocol_version=incoming.revision.version,
            client=incoming.envelope.client_info,
            trace=incoming.envelope.trace,
            request=incoming.http_request,
            read_resource=lambda uri: incoming.server.read_resource(incoming, uri, interaction),
            port=port or Silence(),
            session=incoming.session,
            asker=interaction,
            cancellation=self.cancellation,
            task=self.task,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """An admitted ``subscriptions/listen``: what will be honored of what was asked for."""

    incoming: Incoming
    kinds: frozenset[str]
    uris: tuple[str, ...]
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaiting:
    """An admitted ``tasks/result`` of a task that is not over, which is answered at its end."""

    incoming: Incoming
    task_id: str
    cancellation: Cancellation = field(default_factory=Cancellation)


Result = dict[str, Any]
Outcome = Result | Invocation | Listening | Awaiting


# ``inputResponses``: what a client answers --------------------------------------------------------

# Answers are read no sooner and no further than they are needed. Answers under other keys are
# never looked at, so they cost no more than their bytes.


class RoundParams(msgspec.Struct, rename="camel", kw_only=True):
    """The parameters that a retry has in addition; answers stay raw until a question needs them."""

    input_responses: dict[str, msgspec.Raw] | None = None
    request_state: str | None = None

    @property
    def is_retry(self) -> bool:
        """Whether the request goes on with an earlier one."""
        return bool(self.input_responses) or self.request_state is not None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Stands where an answer is still to come; ``params`` are those of the request for it."""

    params: dict[str, Any]


def check_refusal(method: str, answer: Mapping[str, Any]) -> None:
    """A client of a handshake revision may answer a question with an error.

    Raises:
        ToolError: it did.
    """
    error = answer.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        raise ToolError(f"{method} was refused: {str(error.get('message'))[:200]}")


def read_response(key: str, raw: msgspec.Raw) -> dict[str, Any]:
    """One answer, as plain JSON values.

    Raises:
        InvalidParams: it is no object, or one that would cost more than it says.
    """
    place, text = f"params.inputResponses[{clip(key)!r}]", bytes(raw)
    try:
        answer = msgspec.json.decode(text)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"{place} cannot be read: {clip(exc)}.") from None
    except RecursionError:
        raise InvalidParams(f"{place} is nested too deep.") from None
    if is_too_deep(text, answer):
        raise InvalidParams(f"{place} is nested deeper than {MAX_DEPTH} levels.")
    if not isinstance(answer, dict):
        raise InvalidParams(f"{place} must be an object.")
    return answer


# Signing with rotating keys -----------------------------------------------------------------------


class _SaltedSigner:
    """``django.core.signing`` for one purpose, with the methods that the protocol layer expects.

    A value signed for another purpose does not hold. One that was signed under a key of
    ``SECRET_KEY_FALLBACKS`` still does.
    """

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def sign(self, value: str) -> str:
        """The value with its signature."""
        return DjangoSigner(salt=self._salt).sign(value)

    def unsign(self, value: str) -> str:
        """The value without its signature.

        Raises:
            ValueError: the signature does not hold.
        """
        try:
            return DjangoSigner(salt=self._salt).unsign(value)
        except BadSignature as exc:
            raise ValueError("the signature does not hold") from exc


CURSORS = _SaltedSigner("mcp_django.cursors")
