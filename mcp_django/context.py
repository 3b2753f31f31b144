"""``Context``: what a tool, resource or prompt knows of the call it serves.

A component asks for it by annotation (``def tool(ctx: Context, …)``); clients never see the
parameter. The context knows no transport: it speaks to the client through ``ClientPort``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async

from mcp_django.protocol.envelope import LOG_LEVELS

if TYPE_CHECKING:
    from django.http import HttpRequest

    from mcp_django.protocol.content import ResourceContents


class ClientPort(Protocol):
    """Where messages about the running call go; may be called from any thread."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress, if the client asked for it."""

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message, if the client asked for this level."""


class Silence:
    """A client that asked for no messages, or cannot get any before the answer."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it."""

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop it."""


class Cancellation:
    """A flag that the transport raises when nobody waits for the answer any more."""

    __slots__ = ("_raised",)

    def __init__(self) -> None:
        self._raised = False

    def cancel(self) -> None:
        """Raise the flag; more than once is harmless."""
        self._raised = True

    def __bool__(self) -> bool:
        return self._raised


class Context:
    """The call being served.

    ``user`` is the authenticated Django user (or ``AnonymousUser``), ``principal`` says how the
    caller was authenticated and with which scopes, ``request`` is the Django request (``None``
    without HTTP), ``server`` the ``MCPServer``, ``client`` the client's self-reported name and
    version (never base a security decision on it), ``protocol_version`` the revision in use.
    """

    def __init__(
        self,
        *,
        server: Any,
        principal: Any,
        protocol_version: str,
        client: Mapping[str, Any] | None = None,
        trace: Mapping[str, str] | None = None,
        request: Callable[[], HttpRequest | None] = lambda: None,
        read_resource: Callable[[str], Sequence[ResourceContents]] | None = None,
        port: ClientPort | None = None,
        cancellation: Cancellation | None = None,
    ) -> None:
        self.server = server
        self.principal = principal
        self.protocol_version = protocol_version
        self.client: Mapping[str, Any] = client or {}
        self.trace: Mapping[str, str] = trace or {}
        self._request = request
        self._read_resource = read_resource
        self._port: ClientPort = port or Silence()
        # Not `or`: a flag that is not raised is false.
        self._cancellation = Cancellation() if cancellation is None else cancellation

    def __repr__(self) -> str:
        return f"<Context server={self.server.name!r} principal={self.principal.key!r}>"

    @property
    def user(self) -> Any:
        """The caller's user."""
        return self.principal.user

    @property
    def request(self) -> HttpRequest | None:
        """The HTTP request that carries the call, ``None`` where there is none."""
        return self._request()

    @property
    def session(self) -> None:
        """The protocol session: ``None``, since 2026-07-28 has none (SES-9)."""
        return None

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more.

        A synchronous tool cannot be interrupted; one that runs long looks here between its steps
        and returns early. What it returns is discarded.
        """
        return bool(self._cancellation)

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the client how far the call is; silent unless the client asked (PRG-1).

        ``progress`` has to grow from call to call; values that do not are dropped.
        """
        self._port.progress(progress, total, message)

    async def areport_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """``report_progress`` for async code."""
        self._port.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send ``data`` (any JSON value) to the client's log.

        Silent unless the client asked for this level or a less severe one (LOG-4). Never put
        secrets or personal data here (LOG-7).

        Raises:
            ValueError: the level is none of the eight syslog names.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is no log level; use one of {', '.join(LOG_LEVELS)}.")
        self._port.log(level, data, logger)

    async def alog(self, level: str, data: Any, logger: str | None = None) -> None:
        """``log`` for async code."""
        self.log(level, data, logger)

    def read_resource(self, uri: str) -> Sequence[ResourceContents]:
        """Read a resource of this server as the caller may.

        Raises:
            ResourceNotFound: there is none, or the caller may not see it.
        """
        assert self._read_resource is not None
        return self._read_resource(uri)

    async def aread_resource(self, uri: str) -> Sequence[ResourceContents]:
        """``read_resource`` for async code."""
        return await sync_to_async(self.read_resource)(uri)
