"""Questions to a client of a handshake revision, and its answers to them.

A question is a JSON-RPC request on the call's own stream; the answer is a message of its own, which
may reach another process. The waiting is done on the event loop: no thread and no connection of the
database is held meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final, Protocol

import msgspec
from django.db import DatabaseError

from mcp_django.conf import get_settings
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import Response
from mcp_django.protocol.shapes import project_question
from mcp_django.runtime.incoming import Invocation
from mcp_django.runtime.telemetry import asking
from mcp_django.schema.values import is_too_deep
from mcp_django.store import inbox, streams
from mcp_django.store.clerk import in_thread
from mcp_django.store.hub import hub, ring
from mcp_django.store.topics import Topic
from mcp_django.store.workers import worker_id

logger = logging.getLogger("mcp_django")

Answer = dict[str, Any]
Send = Callable[[dict[str, Any]], None]

# Answers of one session that wait for another process to take them.
MAX_WAITING: Final = 64
UNREADABLE: Final[Answer] = {"error": {"code": 0, "message": "the answer cannot be read"}}
_OURS = re.compile(r"ask-([0-9a-f]{1,16})-[0-9]{1,9}")


class Answers(Protocol):
    """Where answers to questions of one session arrive."""

    def new_id(self) -> str:
        """An id that no other question of the session has, and no request of the client (RPC-3)."""

    async def wait(self, ids: Iterable[str], *, seconds: float) -> dict[str, Answer]:
        """What was answered within so many seconds, by id."""


async def ask_client(
    invocation: Invocation, questions: Mapping[str, Any], answers: Answers, send: Send
) -> dict[str, Answer]:
    """Send questions and return what the client says to them, by their keys.

    A question that is not answered in time is taken back, and answered with an error (CAN-7).
    """
    assert invocation.interaction is not None
    seconds = get_settings().question_timeout
    ids = {key: answers.new_id() for key in questions}
    with asking(invocation.entry.operation) as asked:
        for key, question in questions.items():
            method, request_id = question["method"], ids[key]
            params = project_question(
                method,
                question["params"],
                invocation.incoming.revision,
                elicitation_id=invocation.interaction.elicitation_id(key),
            )
            send(jsonrpc.request(request_id, method, asked.sent(request_id, method, params)))
        found = await answers.wait(ids.values(), seconds=seconds)
        asked.answered(found)
    unanswered = f"nobody answered within {seconds:g} seconds"
    for request_id in ids.values():
        if request_id not in found:
            reason = {"requestId": request_id, "reason": unanswered}
            send(jsonrpc.notification("notifications/cancelled", reason))
    silence = {"error": {"code": 0, "message": unanswered}}
    return {key: found.get(request_id, silence) for key, request_id in ids.items()}


def read_answer(response: Response) -> Answer:
    """The result of a response, or its error as a member of that name.

    One that nobody can read is the error that says so: whoever asked is not left waiting.
    """
    raw = response.error if response.error is not None else response.result or b"{}"
    try:
        said: Answer = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return UNREADABLE
    if is_too_deep(raw, said):
        return UNREADABLE
    return said if response.error is None else {"error": said}


class LocalAnswers:
    """Answers of a session that lives in one connection."""

    def __init__(self) -> None:
        self._serial = count(1)
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    def new_id(self) -> str:
        """The next id."""
        return f"server-{next(self._serial)}"

    def give(self, request_id: str | int, answer: Answer) -> None:
        """Hand an answer to whoever waits for it; nobody may (HTTP-22)."""
        future = self._waiting.get(str(request_id))
        if future is not None and not future.done():
            future.set_result(answer)

    async def wait(self, ids: Iterable[str], *, seconds: float) -> dict[str, Answer]:
        """What was answered within so many seconds."""
        loop = asyncio.get_running_loop()
        futures = {one: loop.create_future() for one in ids}
        self._waiting.update(futures)
        try:
            await asyncio.wait(futures.values(), timeout=seconds)
            return {one: future.result() for one, future in futures.items() if future.done()}
        finally:
            for one in futures:
                self._waiting.pop(one, None)


class StoredAnswers:
    """Answers of a session that any process may receive.

    The id of a question names the stream that it went out on, so that a process which receives an
    answer can tell whether anybody asked.
    """

    def __init__(self, session_pk: int, stream: int) -> None:
        self._session_pk = session_pk
        self._stream = stream
        self._serial = count(1)

    def new_id(self) -> str:
        """The next id."""
        return f"ask-{self._stream:x}-{next(self._serial)}"

    async def wait(self, ids: Iterable[str], *, seconds: float) -> dict[str, Answer]:
        """What was answered within so many seconds, here or elsewhere."""
        missing = set(ids)
        found: dict[str, Answer] = {}
        rung = asyncio.Event()
        loop = asyncio.get_running_loop()

        def arrive(request_id: str, answer: Answer) -> None:
            found.setdefault(request_id, answer)
            rung.set()

        with _awaited.all_of(self._session_pk, missing, loop, arrive):
            topic = Topic("", "session", str(self._session_pk))
            unsubscribe = hub().subscribe([topic], lambda _: rung.set())
            try:
                async with asyncio.timeout(seconds):
                    while missing - found.keys():
                        await rung.wait()
                        rung.clear()
                        found |= await self._delivered(missing - found.keys())
            except TimeoutError:
                pass
            finally:
                unsubscribe()
        return found

    async def _delivered(self, ids: Iterable[str]) -> dict[str, Answer]:
        """What other processes have put down."""
        try:
            letters = await in_thread(inbox.take, self._session_pk, ids)
        except DatabaseError:
            # What is there still rings again.
            logger.warning("Answers could not be looked up.", exc_info=True)
            return {}
        return {letter.ref: msgspec.json.decode(letter.payload) for letter in letters}


def stream_of(request_id: str | int) -> int | None:
    """The stream on which a question was asked, ``None`` for an id that is not ours."""
    found = _OURS.fullmatch(str(request_id))
    return int(found[1], 16) if found is not None else None


def deliver(session_pk: int, stream: int, request_id: str, answer: Answer) -> None:
    """Hand an answer to the call that waits for it, in this process or another; for a thread.

    One that nobody waits for, or not any more, is dropped (ASK-4).
    """
    if _awaited.give(session_pk, request_id, answer):
        return
    owner = streams.owner_of(session_pk, stream)
    if owner is None or owner == worker_id():
        return
    payload = jsonrpc.encode(answer).decode()
    if not inbox.has_room(session_pk, "answer", size=len(payload), keep=MAX_WAITING):
        logger.warning("An answer of a client is dropped: too many of its session are waiting.")
        return
    inbox.put(session_pk, "answer", request_id, payload)
    ring(Topic("", "session", str(session_pk)))


class _Awaited:
    """The questions that calls of this process wait for."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], Callable[[Answer], None]] = {}
        self._lock = threading.Lock()

    def all_of(
        self,
        session_pk: int,
        ids: Iterable[str],
        loop: asyncio.AbstractEventLoop,
        arrive: Callable[[str, Answer], None],
    ) -> _Place:
        places = {
            (session_pk, one): lambda answer, one=one: loop.call_soon_threadsafe(
                arrive, one, answer
            )
            for one in ids
        }
        return _Place(self._waiting, places, self._lock)

    def give(self, session_pk: int, request_id: str, answer: Answer) -> bool:
        with self._lock:
            arrive = self._waiting.get((session_pk, request_id))
            if arrive is None:
                return False
            arrive(answer)
            return True


class _Place:
    """Keeps entries in a table for as long as it is entered."""

    def __init__(self, table: dict[Any, Any], entries: dict[Any, Any], lock: Any) -> None:
        self._table, self._entries, self._lock = table, entries, lock

    def __enter__(self) -> None:
        with self._lock:
            self._table.update(self._entries)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            for key in self._entries:
                self._table.pop(key, None)


_awaited = _Awaited()
