"""What a mount hands to the core, and what it gets back.

``Reply`` is finished; ``Work`` is a call whose answer is one JSON document and that the mount runs
where it belongs; ``Stream`` is a series of events that a loop pumps.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mcp_django.core.context import Cancellation
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import Batch, Failure, Notification, Request, Response
from mcp_django.runtime.incoming import Invocation, Result

if TYPE_CHECKING:
    from django.http import HttpRequest

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

Endpoint = Literal["mcp", "sse", "messages", "health"]
"""The endpoint of Streamable HTTP, one of the two of HTTP+SSE, or whether the site is well."""

HeaderList = tuple[tuple[str, str], ...]
Message = Request | Notification | Response | Batch | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One HTTP request. ``request`` builds its Django form when somebody wants it.

    ``scheme`` is that of its client: what ``SECURE_PROXY_SSL_HEADER`` says counts.
    """

    verb: str
    scheme: str
    headers: Headers
    body: bytes
    query: str
    path: str
    request: Callable[[], HttpRequest]
    can_stream: bool
    endpoint: Endpoint = "mcp"
    cancellation: Cancellation = field(default_factory=Cancellation)
    message: Message | None = None
    """What the body says, where the mount has decoded it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A finished answer."""

    status: int
    headers: HeaderList = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A call that was admitted and is answered with one JSON document."""

    invocation: Invocation
    headers: HeaderList
    ask: Callable[[Result], Stream] | None = None
    """What becomes of a call that asks on a stream of its own, where it can."""

    @property
    def is_async(self) -> bool:
        """Whether the component's function belongs on the event loop."""
        return self.invocation.component.function.is_async


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer of many events; ``open`` starts it on the running loop."""

    headers: HeaderList
    open: Callable[[], AsyncGenerator[bytes, None]]


Outcome = Reply | Work | Stream
