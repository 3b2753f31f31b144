"""``Incoming``: one request on its way to a handler, and what can become of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component
from mcp_django.context import Cancellation, ClientPort, Context, Silence
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Revision
from mcp_django.runtime.ports import Server

if TYPE_CHECKING:
    from django.http import HttpRequest


def _no_request() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request whose envelope and caller are known.

    ``can_stream`` is false where the transport gives one answer and nothing before or after it
    (WSGI).
    """

    server: Server
    request: Request
    envelope: Envelope
    principal: Principal
    headers: Headers | None = None
    can_stream: bool = True
    http_request: Callable[[], HttpRequest | None] = _no_request

    @property
    def revision(self) -> Revision:
        """The revision that the answer has to be in."""
        return self.envelope.revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A call of a component that was admitted and whose arguments hold; nothing has run yet.

    ``conclude`` makes a result of the returned value and ``excuse`` one of an exception, or
    raises the JSON-RPC error that the exception means.
    """

    incoming: Incoming
    component: Component
    arguments: Mapping[str, Any]
    conclude: Callable[[Any], dict[str, Any]]
    excuse: Callable[[Exception], dict[str, Any]]
    cancellation: Cancellation = field(default_factory=Cancellation)

    @property
    def wants_stream(self) -> bool:
        """Whether the client asked for messages that this component can send, or must not wait."""
        envelope = self.incoming.envelope
        asked = envelope.progress_token is not None or envelope.log_level is not None
        talks = self.component.function.context_parameter is not None
        return self.component.slow or (asked and talks)

    def context(self, port: ClientPort | None = None) -> Context:
        """The context that the component's function gets."""
        incoming = self.incoming
        return Context(
            server=incoming.server,
            principal=incoming.principal,
            protocol_version=incoming.revision.version,
            client=incoming.envelope.client_info,
            trace=incoming.envelope.trace,
            request=incoming.http_request,
            read_resource=lambda uri: incoming.server.read_resource(incoming, uri),
            port=port or Silence(),
            cancellation=self.cancellation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """An admitted ``subscriptions/listen``: what will be honored of what was asked for."""

    incoming: Incoming
    kinds: frozenset[str]
    uris: tuple[str, ...]


Result = dict[str, Any]
Outcome = Result | Invocation | Listening
