"""``Context``: the request context of a running tool, resource or prompt.

A component requests it by annotation (``def tool(ctx: Context, …)``); clients never see the
parameter. The context does not depend on the transport: it sends messages through ``ClientPort``.

Client requests (``ctx.elicit`` and others) are answered by replay. A question without an answer
ends the run of the function with ``InputRequired``; the runtime gets the answer and runs the
function again from the beginning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.components.questions import (
    Elicit,
    ElicitURL,
    ListRoots,
    Question,
    Root,
    Sample,
    SampledMessage,
    SamplingInput,
)
from mcp_django.conf import docs_url, get_settings
from mcp_django.exceptions import ElicitationUnavailable
from mcp_django.protocol.errors import capabilities_declaration, check_capability_name
from mcp_django.protocol.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from django.http import HttpRequest

    from mcp_django.protocol.content import ResourceContents


class Asker(Protocol):
    """Sends the questions of a running call to the client."""

    @property
    def interaction_id(self) -> str:
        """The id of the interaction, the same in every round."""

    def supports(self, name: str) -> bool:
        """Return whether the client declared this capability."""

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """Return the answers, or raise ``InputRequired``."""


class _NoAsker:
    """The asker where no client can be asked: outside of a call, or in a completion."""

    interaction_id = ""

    def supports(self, name: str) -> bool:
        """Return ``False``."""
        return False

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """Raise an error.

        Raises:
            ElicitationUnavailable: always.
        """
        raise ElicitationUnavailable(
            "Client requests are not available here; only tools, resources and prompts can "
            "send them.",
            data={
                "requiredCapabilities": capabilities_declaration(
                    question.needs for question in questions
                )
            },
        )


class _ClientRequests:
    """The client requests of ``Context``; each method has an async variant with prefix ``a``."""

    _asker: Asker

    @property
    def request(self) -> HttpRequest | None:
        """The HTTP request of the call, ``None`` without HTTP."""
        return None

    @property
    def interaction_id(self) -> str:
        """The id of the interaction: unique, and the same in every round.

        Store side effects that must happen only once under this id, so that a repeated run of the
        function detects them. ``mcp_django.auth.pages.belongs_to`` checks its owner.
        """
        return self._asker.interaction_id

    def supports(self, name: str) -> bool:
        """Return whether the client has a capability: ``elicitation``, ``elicitation.url``,
        ``sampling``, ``sampling.tools`` or ``roots``.

        Raises:
            ValueError: the name is not one of these.
        """
        check_capability_name(name)
        return self._asker.supports(name)

    def ask(self, *questions: Question) -> tuple[Any, ...]:
        """Ask several questions in one round and return the answers.

        A question without an answer ends this run of the function; it runs again from the
        beginning when the answer arrives. So read data before the question, and write after it.

        Raises:
            ElicitationDeclined: the user declined to answer one of them.
            MissingCapability: the client did not declare a capability that a question needs.
        """
        return self._asker.ask(questions)

    async def aask(self, *questions: Question) -> tuple[Any, ...]:
        """``ask`` for async code."""
        if any(question.uses_database for question in questions):
            return await sync_to_async(self._asker.ask)(questions)
        return self._asker.ask(questions)

    def elicit(self, message: str, schema: Any = None, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form and return the validated value.

        ``schema`` is a dataclass, ``TypedDict`` or pydantic model of flat fields, a Django form, a
        single type such as ``bool`` or ``Literal["a", "b"]``, a hand-written JSON Schema, or
        ``None`` for a question that is only accepted or declined. Invalid values are asked again.

        Raises:
            ElicitationDeclined: the user declined; uncaught, it ends the call with that message.
            ElicitationUnavailable: the client does not support forms.
        """
        return self.ask(Elicit(message, schema, key=key))[0]

    async def aelicit(self, message: str, schema: Any = None, *, key: str | None = None) -> Any:
        """``elicit`` for async code."""
        return (await self.aask(Elicit(message, schema, key=key)))[0]

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        """Ask the user to visit a page, for secrets, payments or sign-in at another site.

        ``url`` is absolute or a path of this site. Returns when the user has agreed and ``done()``
        is true; if it is true before the question, the user is not asked. A client of 2025-11-25
        that cannot be asked gets an error with the URL, and calls again: ``done`` must then look
        up the user, since ``interaction_id`` differs in each call. The page must check that its
        visitor is the caller: put ``interaction_id`` in the URL and use
        ``mcp_django.auth.pages.belongs_to``.

        Raises:
            ElicitationDeclined: the user declined.
            ElicitationUnavailable: the client does not support URLs.
            ValueError: the URL is not absolute, not HTTPS or contains credentials.
        """
        self.ask(ElicitURL(message, self._absolute_url(url), done=done, key=key))

    async def aelicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        """``elicit_url`` for async code; ``done`` is still a sync function."""
        await self.aask(ElicitURL(message, self._absolute_url(url), done=done, key=key))

    def _absolute_url(self, url: str) -> str:
        url = str(url)  # may be lazy
        if not url.startswith("/") or url.startswith("//"):
            return url
        if base := get_settings().base_url:
            return base.rstrip("/") + url
        return self.request.build_absolute_uri(url) if self.request else url

    def sample(
        self, messages: SamplingInput | Sequence[SamplingInput], **options: Any
    ) -> SampledMessage:
        """Request a message from the client's language model; ``options`` are those of ``Sample``.

        Raises:
            MissingCapability: the client does not support sampling, or sampling with tools.
        """
        answer: SampledMessage = self.ask(Sample(messages, **options))[0]
        return answer

    async def asample(
        self, messages: SamplingInput | Sequence[SamplingInput], **options: Any
    ) -> SampledMessage:
        """``sample`` for async code."""
        answer: SampledMessage = (await self.aask(Sample(messages, **options)))[0]
        return answer

    def list_roots(self, *, key: str | None = None) -> list[Root]:
        """Request the roots: the folders that the user works in.

        Raises:
            MissingCapability: the client does not support roots.
        """
        roots: list[Root] = self.ask(ListRoots(key=key))[0]
        return roots

    async def alist_roots(self, *, key: str | None = None) -> list[Root]:
        """``list_roots`` for async code."""
        roots: list[Root] = (await self.aask(ListRoots(key=key)))[0]
        return roots


logger = logging.getLogger("mcp_django")

# In an optional app, which imports this module, so it cannot be imported here.
UPSTREAM_FUNCTION = "mcp_django.oauth.upstream.access.upstream_of"
_progress_warning_logged = threading.Event()


class ClientPort(Protocol):
    """Sends messages about the running call to the client; thread-safe."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send a progress notification, if the client requested progress."""

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message, if the client requested this level."""

    def close_stream(self, seconds: float) -> None:
        """Close the connection, if the client can reconnect and resume the stream."""


class SessionInfo(Protocol):
    """What a client of a handshake revision declared when it initialized the session."""

    @property
    def client_info(self) -> Mapping[str, Any]:
        """The client's self-reported name and version."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared."""

    @property
    def log_level(self) -> str | None:
        """The level set by ``logging/setLevel``, ``None`` if it was never set."""


class UpstreamAccess(Protocol):
    """The caller's access tokens for a third-party API (``mcp_django.oauth.upstream``)."""

    @property
    def auth(self) -> Any:
        """An ``httpx`` auth object that sends the token with each request, sync or async."""

    def token(self) -> str:
        """Return an access token that is valid now."""

    async def atoken(self) -> str:
        """``token`` for async code."""

    def headers(self) -> dict[str, str]:
        """Return the token as request headers."""

    async def aheaders(self) -> dict[str, str]:
        """``headers`` for async code."""


class NullPort:
    """A null port: the client requested no messages, or cannot get any before the response."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Do nothing."""

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Do nothing."""

    def close_stream(self, seconds: float) -> None:
        """Do nothing."""


class UnstreamedPort(NullPort):
    """The port of a client that requested progress from a server that cannot stream it."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop the notification, and log a warning once per process."""
        if not _progress_warning_logged.is_set():
            _progress_warning_logged.set()
            logger.warning(
                "A component reports progress, but WSGI cannot stream it to the client. Serve the "
                "site over ASGI (see %s). This warning is logged once per process.",
                docs_url("howto/deploy"),
            )


@dataclass(slots=True, eq=False, weakref_slot=True)
class Cancellation:
    """A flag that is set when the caller no longer needs the result of a call."""

    requested_by_client: bool = field(default=False, init=False)
    """Whether the client requested the cancellation, and so expects no response."""
    _is_set: bool = field(default=False, init=False)
    _callbacks: list[Callable[[], None]] = field(default_factory=list, init=False)

    def expire(self) -> None:
        """Set the flag for a call that ended or timed out; the client still gets its response."""
        self._is_set = True

    def cancel(self) -> None:
        """Set the flag because the client does not wait for a response; idempotent."""
        self._is_set = self.requested_by_client = True
        # Another thread may do the same; ``pop`` gives each callback to only one of them.
        while True:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for cancellation by the client; it runs in the cancelling thread."""
        self._callbacks.append(callback)
        if self.requested_by_client:
            self.cancel()

    def __bool__(self) -> bool:
        return self._is_set


class CurrentTask:
    """``ctx.task``: the task of a call. This base class is for calls that cannot become tasks.

    ``id`` is the task's id, empty if the call is not a task.
    """

    id = ""

    @property
    def is_task(self) -> bool:
        """Whether the function runs as a task, so the client does not wait for a response."""
        return bool(self.id)

    def begin(self) -> None:
        """Continue the call as a task, if the client supports tasks.

        This run of the function ends here; the function runs again as a task, from the beginning,
        with the answers so far. So ask questions before this call, and write data after it.
        """

    async def abegin(self) -> None:
        """``begin`` for async code."""
        self.begin()


class Context(_ClientRequests):
    """The request context of a call.

    ``user`` is the authenticated Django user (or ``AnonymousUser``). ``principal`` contains how
    the caller was authenticated, and the scopes. ``request`` is the Django request (``None``
    without HTTP). ``server`` is the ``MCPServer``. ``client`` is the client's self-reported name
    and version (never base a security decision on it). ``protocol_version`` is the revision in
    use. ``task`` is the task that the call is or may become.
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
        session: SessionInfo | None = None,
        asker: Asker | None = None,
        cancellation: Cancellation | None = None,
        task: CurrentTask | None = None,
    ) -> None:
        self.server = server
        self.principal = principal
        self.protocol_version = protocol_version
        self.client: Mapping[str, Any] = client or {}
        self.trace: Mapping[str, str] = trace or {}
        self._request = request
        self._read_resource = read_resource
        self._port: ClientPort = port or NullPort()
        self._session = session
        self._asker = asker or _NoAsker()
        self.task = task or CurrentTask()
        # Not `or`: a flag that is not set is false.
        self._cancellation = Cancellation() if cancellation is None else cancellation

    def __repr__(self) -> str:
        return f"<Context server={self.server.name!r} principal={self.principal.key!r}>"

    @property
    def user(self) -> Any:
        """The caller's Django user, or ``AnonymousUser``."""
        return self.principal.user

    @property
    def request(self) -> HttpRequest | None:
        """The HTTP request of the call, ``None`` without HTTP."""
        return self._request()

    @property
    def session(self) -> SessionInfo | None:
        """The session of a handshake revision; ``None`` at 2026-07-28, which has no sessions."""
        return self._session

    @property
    def cancelled(self) -> bool:
        """Whether the caller no longer needs the result.

        A synchronous tool cannot be interrupted; a long-running one checks this between its steps
        and returns early. Its result is discarded.
        """
        return bool(self._cancellation)

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send a progress notification; without effect unless the client requested progress.

        ``progress`` must increase with each call; other values are dropped.
        """
        self._port.progress(progress, total, message)

    async def areport_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """``report_progress`` for async code."""
        self._port.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message with ``data`` (any JSON value) to the client.

        Without effect unless the client requested this level or a less severe one. The message
        must not contain secrets or personal data.

        Raises:
            ValueError: the level is not one of the eight syslog levels.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not a log level; use one of {', '.join(LOG_LEVELS)}.")
        self._port.log(level, data, logger)

    async def alog(self, level: str, data: Any, logger: str | None = None) -> None:
        """``log`` for async code."""
        self.log(level, data, logger)

    def upstream(self, name: str) -> UpstreamAccess:
        """Return the caller's own access to a provider of ``OAUTH["UPSTREAM"]``.

        A user whose account is not connected is asked to connect it, as with ``elicit_url``; so
        call this before writing data. The token that the client presented is never passed on.

        Raises:
            UpstreamNotConnected: the account is not connected, and the client does not support
                URL elicitation.
            ElicitationDeclined: the user declined to connect.
            ImproperlyConfigured: the provider is not configured, or ``mcp_django.oauth`` is not
                installed.
        """
        if not apps.is_installed("mcp_django.oauth"):
            raise ImproperlyConfigured(
                f"ctx.upstream({name!r}) needs 'mcp_django.oauth' in INSTALLED_APPS."
            )
        access: UpstreamAccess = import_string(UPSTREAM_FUNCTION)(self, name)
        return access

    async def aupstream(self, name: str) -> UpstreamAccess:
        """``upstream`` for async code."""
        return await sync_to_async(self.upstream)(name)

    def close_stream(self, seconds: float = 1.0) -> None:
        """Close the connection of a long call, which continues; the client resumes the stream.

        Only for 2025-11-25, whose clients reconnect after ``seconds``; without effect for other
        revisions, whose clients would lose the response.
        """
        self._port.close_stream(seconds)

    async def aclose_stream(self, seconds: float = 1.0) -> None:
        """``close_stream`` for async code."""
        self._port.close_stream(seconds)

    def read_resource(self, uri: str) -> Sequence[ResourceContents]:
        """Return the contents of a resource of this server, with the caller's permissions.

        Raises:
            ResourceNotFound: the resource does not exist, or the caller may not see it.
        """
        assert self._read_resource is not None
        return self._read_resource(uri)

    async def aread_resource(self, uri: str) -> Sequence[ResourceContents]:
        """``read_resource`` for async code."""
        return await sync_to_async(self.read_resource)(uri)
