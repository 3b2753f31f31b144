"""``Context``: what a tool, resource or prompt knows of the call it serves.

A component asks for it by annotation (``def tool(ctx: Context, …)``); clients never see the
parameter. The context knows no transport: it speaks to the client through ``ClientPort``.

Questions to the client (``ctx.elicit`` and the like) are answered by replay. A question without
an answer ends the run of the function with ``InputRequired``; the runtime gets the answer and
runs the function again, from its beginning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from mcp_django.conf import get_settings
from mcp_django.core.questions import (
    Elicit,
    ElicitURL,
    ListRoots,
    Question,
    Root,
    Said,
    Sample,
    SampledMessage,
)
from mcp_django.exceptions import ElicitationUnavailable
from mcp_django.protocol.errors import check_askable, requirement
from mcp_django.protocol.revisions import LOG_LEVELS

if TYPE_CHECKING:
    from django.http import HttpRequest

    from mcp_django.protocol.content import ResourceContents


# Questions of a running call ----------------------------------------------------------------------


class Asker(Protocol):
    """Whom the running call may ask."""

    @property
    def interaction_id(self) -> str:
        """The same in every round."""

    def supports(self, name: str) -> bool:
        """Whether the client declared it."""

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """The answers, or ``InputRequired``."""


class _Nobody:
    """Nobody can be asked: outside of a call, or in one whose answer cannot be a question."""

    interaction_id = ""

    def supports(self, name: str) -> bool:
        """Whether the client declared it: there is none."""
        return False

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """Refuse.

        Raises:
            ElicitationUnavailable: always.
        """
        raise ElicitationUnavailable(
            "Nobody can be asked here: only a tool, a resource that is read and a prompt may ask.",
            data={"requiredCapabilities": requirement(one.needs for one in questions)},
        )


class _Asking:
    """What a ``Context`` can ask; every method has an ``a`` twin for async code."""

    _asker: Asker

    @property
    def request(self) -> HttpRequest | None:
        """The HTTP request that carries the call, ``None`` where there is none."""
        return None

    @property
    def interaction_id(self) -> str:
        """The same in every round of this interaction, and of no other.

        What must happen once is stored under it: a retry then finds that it happened (MRT-6).
        ``mcp_django.auth.pages.belongs_to`` tells whose it is.
        """
        return self._asker.interaction_id

    def supports(self, name: str) -> bool:
        """Whether the client can be asked: ``elicitation``, ``elicitation.url``, ``sampling``,
        ``sampling.tools`` or ``roots``.

        Raises:
            ValueError: there is no such thing to ask for.
        """
        check_askable(name)
        return self._asker.supports(name)

    def ask(self, *questions: Question) -> tuple[Any, ...]:
        """The answers to several questions, asked in one round.

        A question without an answer ends this run of the function; it runs again from its
        beginning once the answer is there. So: read before the question, write after it.

        Raises:
            ElicitationDeclined: the user does not want to answer one of them.
            MissingCapability: the client did not declare what they need.
        """
        return self._asker.ask(questions)

    async def aask(self, *questions: Question) -> tuple[Any, ...]:
        """``ask`` for async code."""
        if any(one.uses_database for one in questions):
            return await sync_to_async(self._asker.ask)(questions)
        return self._asker.ask(questions)

    def elicit(self, message: str, schema: Any = None, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and get it filled in.

        ``schema`` is a dataclass, ``TypedDict`` or pydantic model of flat fields, a Django form, a
        single type such as ``bool`` or ``Literal["a", "b"]``, a schema written by hand, or
        nothing for a question that is just accepted. What does not fit is asked again.

        Raises:
            ElicitationDeclined: the user said no; uncaught it ends the call with that sentence.
            ElicitationUnavailable: the client has no forms.
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
        """Send the user to a page, for secrets, payments and sign-in elsewhere.

        ``url`` is absolute or a path of this site. Returns once the user agreed to go there and
        ``done()`` is true; where it is true at once, nobody is asked. A client of 2025-11-25 that
        cannot be asked gets an error with the address, and calls again: then ``done`` has to look
        for the user, since ``interaction_id`` is another one in each call. The page has to check
        that its visitor is the caller: ``interaction_id`` in the URL and
        ``mcp_django.auth.pages.belongs_to`` do that.

        Raises:
            ElicitationDeclined: the user said no.
            ElicitationUnavailable: the client opens no pages.
            ValueError: users are not sent to such an address.
        """
        self.ask(ElicitURL(message, self._absolute(url), done=done, key=key))

    async def aelicit_url(
        self,
        message: str,
        url: str,
        *,
        done: Callable[[], bool] | None = None,
        key: str | None = None,
    ) -> None:
        """``elicit_url`` for async code; ``done`` is a sync function all the same."""
        await self.aask(ElicitURL(message, self._absolute(url), done=done, key=key))

    def _absolute(self, url: str) -> str:
        url = str(url)  # it may be a lazy one
        if not url.startswith("/") or url.startswith("//"):
            return url
        if base := get_settings().base_url:
            return base.rstrip("/") + url
        return self.request.build_absolute_uri(url) if self.request else url

    def sample(self, messages: Said | Sequence[Said], **options: Any) -> SampledMessage:
        """Ask the client's language model; ``options`` are those of ``Sample``.

        Raises:
            MissingCapability: the client lends no model, or none that uses tools.
        """
        answer: SampledMessage = self.ask(Sample(messages, **options))[0]
        return answer

    async def asample(self, messages: Said | Sequence[Said], **options: Any) -> SampledMessage:
        """``sample`` for async code."""
        answer: SampledMessage = (await self.aask(Sample(messages, **options)))[0]
        return answer

    def list_roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the folders that the user works in.

        Raises:
            MissingCapability: the client has none.
        """
        roots: list[Root] = self.ask(ListRoots(key=key))[0]
        return roots

    async def alist_roots(self, *, key: str | None = None) -> list[Root]:
        """``list_roots`` for async code."""
        roots: list[Root] = (await self.aask(ListRoots(key=key)))[0]
        return roots


# Context ------------------------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")

# Of an optional app, which may import this module and not the other way round.
UPSTREAM = "mcp_django.oauth.upstream.access.upstream_of"
_is_told = threading.Event()


class ClientPort(Protocol):
    """Where messages about the running call go; may be called from any thread."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress, if the client asked for it."""

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message, if the client asked for this level."""

    def hang_up(self, seconds: float) -> None:
        """Close the connection, if the client can come back for the rest."""


class Session(Protocol):
    """What a client of a handshake revision said of itself when it began."""

    @property
    def client_info(self) -> Mapping[str, Any]:
        """What the client says of itself."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client can be asked for."""

    @property
    def log_level(self) -> str | None:
        """The level of ``logging/setLevel``, ``None`` before there was one."""


class UpstreamAccess(Protocol):
    """What the caller lets the site do at a third party (``mcp_django.oauth.upstream``)."""

    @property
    def auth(self) -> Any:
        """For ``httpx``: sends the token with each request, sync or async."""

    def token(self) -> str:
        """An access token that is good now."""

    async def atoken(self) -> str:
        """``token`` for async code."""

    def headers(self) -> dict[str, str]:
        """The token as the header of a request."""

    async def aheaders(self) -> dict[str, str]:
        """``headers`` for async code."""


class Silence:
    """A client that asked for no messages, or cannot get any before the answer."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it."""

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop it."""

    def hang_up(self, seconds: float) -> None:
        """There is no connection to close."""


class Unstreamed(Silence):
    """A client that asked for progress at a server that cannot stream it."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Drop it, and say so in the log once per process."""
        if not _is_told.is_set():
            _is_told.set()
            logger.warning(
                "A component reports progress, and this server cannot send it: it is served over "
                "WSGI, which has no streams. Serve the site over ASGI; docs/deploy.md says how. "
                "This is said once."
            )


class Cancellation:
    """A flag that is raised when what a call returns does not matter any more."""

    __slots__ = ("__weakref__", "_callbacks", "_raised", "is_wish")

    def __init__(self) -> None:
        self._raised = False
        self._callbacks: list[Callable[[], None]] = []
        self.is_wish = False
        """Whether the client wanted it, and so waits for no answer."""

    def expire(self) -> None:
        """Raise the flag for a call that is over; its client has been answered, or will be."""
        self._raised = True

    def cancel(self) -> None:
        """Raise the flag because nobody waits for the answer; more than once is harmless."""
        self._raised = self.is_wish = True
        # Another thread may do the same: each callback is taken by one of them.
        while True:
            try:
                callback = self._callbacks.pop()
            except IndexError:
                return
            callback()

    def then(self, callback: Callable[[], None]) -> None:
        """Call this when the client cancels, in the thread that finds out."""
        self._callbacks.append(callback)
        if self.is_wish:
            self.cancel()

    def __bool__(self) -> bool:
        return self._raised


class CurrentTask:
    """``ctx.task``: the task that a call is, or may become; this one is of a call that stays one.

    ``id`` is the task's id, empty before there is one.
    """

    id = ""

    @property
    def is_task(self) -> bool:
        """Whether the function runs as a task, and nobody waits at the other end."""
        return bool(self.id)

    def begin(self) -> None:
        """Let the rest of the function go on as a task, if the client can follow one.

        The function leaves here and runs again as a task, from its beginning to its end, with the
        answers that it has got so far; so ask before, and change something after.
        """

    async def abegin(self) -> None:
        """``begin`` for async code."""
        self.begin()


class Context(_Asking):
    """The call being served.

    ``user`` is the authenticated Django user (or ``AnonymousUser``), ``principal`` says how the
    caller was authenticated and with which scopes, ``request`` is the Django request (``None``
    without HTTP), ``server`` the ``MCPServer``, ``client`` the client's self-reported name and
    version (never base a security decision on it), ``protocol_version`` the revision in use,
    ``task`` the task that the call is or may become.
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
        session: Session | None = None,
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
        self._port: ClientPort = port or Silence()
        self._session = session
        self._asker = asker or _Nobody()
        self.task = task or CurrentTask()
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
    def session(self) -> Session | None:
        """What the client agreed on at a handshake revision; 2026-07-28 has no sessions (SES-9)."""
        return self._session

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

    def upstream(self, name: str) -> UpstreamAccess:
        """The caller's own access at a provider of ``OAUTH["UPSTREAM"]``.

        A user who has not connected his account is asked to, as by ``elicit_url``: so ask for it
        before writing anything. The token that the client presented is not involved (AUT-10).

        Raises:
            UpstreamNotConnected: there is no access, and the client cannot send its user to a page.
            ElicitationDeclined: the user does not want to connect.
            ImproperlyConfigured: there is no such provider, or no ``mcp_django.oauth``.
        """
        if not apps.is_installed("mcp_django.oauth"):
            raise ImproperlyConfigured(
                f"ctx.upstream({name!r}) needs 'mcp_django.oauth' in INSTALLED_APPS."
            )
        found: UpstreamAccess = import_string(UPSTREAM)(self, name)
        return found

    async def aupstream(self, name: str) -> UpstreamAccess:
        """``upstream`` for async code."""
        return await sync_to_async(self.upstream)(name)

    def hang_up(self, seconds: float = 1.0) -> None:
        """Close the connection of a long call and go on; the client comes back for the rest.

        For 2025-11-25, whose clients ask again after so many seconds; without effect for others,
        which would lose the answer (RSM-6).
        """
        self._port.hang_up(seconds)

    async def ahang_up(self, seconds: float = 1.0) -> None:
        """``hang_up`` for async code."""
        self._port.hang_up(seconds)

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
