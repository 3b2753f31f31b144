"""The request context (``RequestContext``) and the outcomes that a handler returns for it.

A handler returns a result, or one of these: a ``PreparedCall``, a prepared call of a component; a
``ListenRequest``, a stream of changes; or a ``TaskResultWait``, the wait for the result of a task.
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
    NullPort,
    UnstreamedPort,
)
from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.execution.call_record import CallRecord
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Revision
from mcp_django.protocol.text import clip
from mcp_django.schema.values import MAX_DEPTH, is_too_deep
from mcp_django.storage.sessions import ClientSession

if TYPE_CHECKING:
    from django.http import HttpRequest

    from mcp_django.execution.approval_guard import ApprovalGuard
    from mcp_django.execution.interaction import Interaction
    from mcp_django.execution.quotas import UsageBatch


def _no_request() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The context of one request whose envelope and caller are known.

    ``session`` is what a client of a handshake revision negotiated. ``can_stream`` is false where
    the transport sends a single response and nothing else (WSGI), or the client accepts nothing
    else. ``can_ask`` is true where the server can send a client request (elicitation, sampling,
    roots) while it serves this request; stateless revisions do not need that. For the call log,
    ``origin`` is where the request came from (``client``, ``admin``, ``command``), ``acting_user``
    the user who makes the call if that is not the principal, ``transport`` the name of the
    transport, and ``call_record`` the call record.
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
    acting_user: str = ""
    transport: str = ""
    call_record: CallRecord = field(default_factory=CallRecord, compare=False, repr=False)
    http_request: Callable[[], HttpRequest | None] = _no_request
    is_authorized: bool = False
    """Whether the caller was authorized by this same request, so that the catalog is current."""
    usage_batch: UsageBatch | None = None
    """Counts the uses of several requests together; ``None`` counts each use immediately."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A prepared call of a component: authorized, with valid arguments, and not yet run.

    ``to_result`` converts the returned value to a result. ``to_error`` converts an exception to a
    result, or raises the JSON-RPC error for it. ``interaction`` holds the client requests of the
    call (elicitation, sampling, roots); without one the function cannot send any.
    """

    request_context: RequestContext
    component: Component
    arguments: Mapping[str, Any]
    to_result: Callable[[Any], dict[str, Any]]
    to_error: Callable[[Exception], dict[str, Any]]
    cancellation: Cancellation = field(default_factory=Cancellation)
    interaction: Interaction | None = None
    approval_guard: ApprovalGuard | None = None
    """The approval guard of a call that must be approved before it runs."""
    task: CurrentTask | None = None
    """The task that this call runs as, or that its function can start."""
    task_factory: Callable[[bytes], dict[str, Any]] | None = None
    """Creates a task from the encoded state of the interaction and returns the client's result."""
    start_as_task: bool = False
    """Whether the call becomes a task before its function runs."""
    must_become_task: bool = False
    """Whether the call must become a task, since its client accepts no other result."""
    timeout_seconds: float | None = None
    """The time limit; ``None`` means that of the component, or else of the settings."""
    call_record: CallRecord = field(default_factory=CallRecord, compare=False, repr=False)
    """The call record. By default the call is part of another call, which has the record."""

    @property
    def wants_stream(self) -> bool:
        """Whether the component is slow, or the client asked for messages that it can send."""
        request_context = self.request_context
        asked = (
            request_context.envelope.progress_token is not None or request_context.asked_for_logs
        )
        talks = self.component.function.context_parameter is not None
        return self.component.slow or (asked and talks)

    def context(self, port: ClientPort | None = None) -> Context:
        """Return the ``Context`` for the component's function."""
        request_context, interaction = self.request_context, self.interaction
        if interaction is not None:
            port = interaction.replay_port(port)
        if (
            port is None
            and not request_context.can_stream
            and request_context.envelope.progress_token is not None
        ):
            port = UnstreamedPort()
        return Context(
            server=request_context.server.unwrapped,
            principal=request_context.principal,
            protocol_version=request_context.revision.version,
            client=request_context.envelope.client_info,
            trace=request_context.envelope.trace,
            request=request_context.http_request,
            read_resource=lambda uri: request_context.server.read_resource(
                request_context, uri, interaction
            ),
            port=port or NullPort(),
            session=request_context.session,
            asker=interaction,
            cancellation=self.cancellation,
            task=self.task,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenRequest:
    """An authorized ``subscriptions/listen``: the part of the request that the server honors."""

    request_context: RequestContext
    kinds: frozenset[str]
    uris: tuple[str, ...]
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResultWait:
    """An authorized ``tasks/result`` of an unfinished task, answered when the task ends."""

    request_context: RequestContext
    task_id: str
    cancellation: Cancellation = field(default_factory=Cancellation)


Result = dict[str, Any]
Outcome = Result | PreparedCall | ListenRequest | TaskResultWait


# ``inputResponses``: the client's answers ---------------------------------------------------------

# An answer is decoded only when a question needs it. Answers under other keys are never decoded, so
# they cost no more than their bytes.


class RetryParams(msgspec.Struct, rename="camel", kw_only=True):
    """The additional parameters of a retry; answers stay raw until a question needs them."""

    input_responses: dict[str, msgspec.Raw] | None = None
    request_state: str | None = None

    @property
    def is_retry(self) -> bool:
        """Whether the request continues an earlier one."""
        return bool(self.input_responses) or self.request_state is not None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A placeholder for a missing answer; ``params`` are the parameters of the request for it."""

    params: dict[str, Any]


def check_error_answer(method: str, answer: Mapping[str, Any]) -> None:
    """Check that the client did not answer with an error, as handshake revisions allow.

    Raises:
        ToolError: the answer is an error.
    """
    error = answer.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        raise ToolError(f"{method} was refused: {str(error.get('message'))[:200]}")


def decode_answer(key: str, raw: msgspec.Raw) -> dict[str, Any]:
    """Return one answer as plain JSON values.

    Raises:
        InvalidParams: the answer cannot be decoded, is not an object, or is nested too deeply.
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
    """A ``django.core.signing`` signer for one purpose, in the form that ``protocol`` expects.

    Values signed for another purpose are invalid. Values signed with a key of
    ``SECRET_KEY_FALLBACKS`` are valid.
    """

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def sign(self, value: str) -> str:
        """Return the value with its signature."""
        return DjangoSigner(salt=self._salt).sign(value)

    def unsign(self, value: str) -> str:
        """Return the value without its signature.

        Raises:
            ValueError: the signature is invalid.
        """
        try:
            return DjangoSigner(salt=self._salt).unsign(value)
        except BadSignature as exc:
            raise ValueError("the signature is invalid") from exc


CURSOR_SIGNER = _SaltedSigner("mcp_django.cursors")
