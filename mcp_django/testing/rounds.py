"""Requests of the test client as one user, who answers the questions of the component."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Self

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from mcp_django.auth.principal import anonymous_principal, principal_for
from mcp_django.exceptions import MCPError
from mcp_django.protocol.revisions import LATEST, REVISIONS
from mcp_django.server import MCPServer, mcp
from mcp_django.signals import component_failed
from mcp_django.tasks import worker as task_worker
from mcp_django.testing.answers import (
    ALL_CAPABILITIES,
    ErrorResponse,
    NotificationRecorder,
    build_answers,
)
from mcp_django.testing.connection import RemoteClient
from mcp_django.testing.transports import (
    CHANNELS,
    AuthenticatedTestServer,
    ServerUnderTest,
    check_transport,
)
from mcp_django.transports.memory import LocalClient, Message

CLIENT = {"name": "mcp_django.test", "version": "1"}
# What the current request writes; requests of one client may run concurrently.
_recording: ContextVar[_WriteRecorder | None] = ContextVar("recording", default=None)


class Rounds:
    """Sends requests as one user, and answers the questions of the component."""

    def __init__(
        self,
        *,
        user: Any = None,
        server: MCPServer = mcp,
        scopes: Sequence[str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        protocol_version: str = LATEST.version,
        raise_exceptions: bool = True,
        allow_early_writes: bool = False,
        answers: Sequence[Any] = (),
        transport: str = "memory",
    ) -> None:
        check_transport(transport, protocol_version)
        self._raises = raise_exceptions
        self._allows_early_writes = allow_early_writes
        self._recorder = NotificationRecorder()
        self._capabilities = dict(ALL_CAPABILITIES if capabilities is None else capabilities)
        if protocol_version not in REVISIONS:
            versions = ", ".join(REVISIONS)
            raise ValueError(
                f"{protocol_version!r} is not a known revision of MCP; use one of {versions}."
            )
        self._default_answers = tuple(answers)
        self._left: list[Any] = []
        # Other transports run functions in threads whose connections cannot be watched here.
        self._is_watched = transport == "memory"
        declared: dict[str, Any] = {
            "client_info": CLIENT,
            "capabilities": self._capabilities,
            "answer": self._answer,
            "hear": self._hear,
        }
        revision = REVISIONS[protocol_version]
        if user is None:
            principal = anonymous_principal()
        else:
            allowed = None if scopes is None else frozenset(scopes)
            principal = principal_for(user, scopes=allowed)
        self._client: LocalClient | RemoteClient
        if transport == "memory":
            self._client = LocalClient(
                ServerUnderTest(server), principal, revision=revision, **declared
            )
        else:
            channel = CHANNELS[transport](AuthenticatedTestServer(server, principal))
            self._client = RemoteClient(channel, revision, **declared)

    def close(self) -> None:
        """Close the connection and the session, if the transport has them."""
        if isinstance(self._client, RemoteClient):
            self._client.close()

    async def aclose(self) -> None:
        """Close the connection; ``close`` for async tests."""
        await sync_to_async(self.close)()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def _hear(self, message: Message) -> None:
        self._recorder.add(message)

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request with any method and return its result."""
        writes = self._begin(params)
        if self._is_watched:
            writes.start()
        recording = _recording.set(writes)
        try:
            with self._raise_bugs(), self._run_tasks_inline():
                return result_of(self._client.request(method, params))
        finally:
            _recording.reset(recording)
            if self._is_watched:
                writes.stop()

    async def arequest(
        self, method: str, params: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request with any method; ``request`` for async tests."""
        writes = self._begin(params)
        # Started in the thread in which a synchronous function runs.
        if self._is_watched:
            await sync_to_async(writes.start)()
        recording = _recording.set(writes)
        try:
            with self._raise_bugs(), self._run_tasks_inline():
                return result_of(await self._client.arequest(method, params))
        finally:
            _recording.reset(recording)
            if self._is_watched:
                await sync_to_async(writes.stop)()

    def answer(
        self, method: str, params: Mapping[str, Any], answers: Sequence[Any]
    ) -> dict[str, Any]:
        """Send a request and answer its questions until the answers are used up."""
        with self._answering(answers or self._default_answers):
            return self.request(method, params)

    async def aanswer(
        self, method: str, params: Mapping[str, Any], answers: Sequence[Any]
    ) -> dict[str, Any]:
        """Send a request and answer its questions; ``answer`` for async tests."""
        with self._answering(answers or self._default_answers):
            return await self.arequest(method, params)

    @contextmanager
    def _answering(self, answers: Sequence[Any]) -> Iterator[None]:
        """Answer questions with ``answers``, all of which have to be used within the block.

        None of them is kept for a later request.

        Raises:
            AssertionError: an answer was not used.
        """
        self._left = list(answers)
        try:
            yield
            if self._left:
                raise AssertionError(f"The component did not ask for the answers {self._left!r}.")
        finally:
            self._left = []

    def _begin(self, params: Mapping[str, Any] | None) -> _WriteRecorder:
        """Return a recorder for the write statements of the request."""
        request_params = params or {}
        self._recorder = NotificationRecorder()
        return _WriteRecorder(str(request_params.get("name") or request_params.get("uri")))

    @contextmanager
    def _raise_bugs(self) -> Iterator[None]:
        """Raise a component's unexpected exception, instead of the server's generic error."""
        bugs: list[Exception] = []

        def keep(exception: Exception, **kwargs: Any) -> None:
            bugs.append(exception)

        component_failed.connect(keep)
        try:
            yield
        except MCPError:
            if not (self._raises and bugs):
                raise
        finally:
            component_failed.disconnect(keep)
        if self._raises and bugs:
            raise bugs[0]

    def _run_tasks_inline(self) -> AbstractContextManager[None]:
        """Run tasks before their call returns, in the test's transaction; only in memory."""
        return task_worker.run_tasks_inline() if self._is_watched else nullcontext()

    def _answer(self, questions: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the user's answers to client requests, if there are answers left."""
        writes = _recording.get()
        if writes is not None and not self._allows_early_writes:
            writes.check()
        if not self._left:
            return None
        answers: Mapping[str, Any] = build_answers(questions, self._left)
        del self._left[: len(questions)]
        return answers


def result_of(response: Message) -> dict[str, Any]:
    """Return the result in a response.

    Raises:
        MCPError: the response is an error.
    """
    if "error" in response:
        raise ErrorResponse(response["error"])
    result: dict[str, Any] = response["result"]
    return result


_WRITE = re.compile(
    r"\s*(INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|ALTER|DROP|TRUNCATE)\b", re.IGNORECASE
)
# Rows of this package are written outside the function's transaction, so they are ignored.
_OWN = re.compile(r"[\"`]?mcp_django_", re.IGNORECASE)


class _WriteRecorder:
    """Records the SQL statements that write, in this thread and on new connections.

    A function that asks a question runs again from the start when it is answered. The writes of
    the first run are rolled back if the function is synchronous; if it is async, they stay and are
    made again.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.statements: list[str] = []
        self._watched: list[BaseDatabaseWrapper] = []

    def start(self) -> None:
        """Start recording."""
        connection_created.connect(self._watch, weak=False, dispatch_uid=id(self))
        for connection in connections.all(initialized_only=True):
            self._watch(connection)

    def stop(self) -> None:
        """Stop recording."""
        connection_created.disconnect(dispatch_uid=id(self))
        for connection in self._watched:
            connection.execute_wrappers.remove(self._record)
        self._watched.clear()

    def check(self) -> None:
        """Check that nothing was written.

        Raises:
            AssertionError: there was a write; the text names the component and the statement.
        """
        if self.statements:
            raise AssertionError(
                f"{self._name} writes before it asks, but is run again from the start when it is "
                f"answered: {self.statements[0][:200]}. Write after the question, or pass "
                "allow_early_writes=True."
            )

    def _watch(self, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        if connection not in self._watched:
            connection.execute_wrappers.append(self._record)
            self._watched.append(connection)

    def _record(
        self,
        execute: Callable[..., Any],
        sql: Any,
        params: Any,
        many: bool,  # noqa: FBT001 - Django's signature
        context: Any,
    ) -> Any:
        # psycopg and MySQL drivers take bytes, and psycopg has objects for composed statements.
        text = sql.decode("latin-1") if isinstance(sql, bytes) else str(sql)
        if _WRITE.match(text) and not _OWN.search(text):
            self.statements.append(text)
        return execute(sql, params, many, context)
