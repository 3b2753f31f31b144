"""Requests to a client of a handshake revision: questions and their answers, and ``tasks/result``.

A question is a JSON-RPC request on the call's own stream; the answer is a message of its own,
which may reach another process. The waiting is done on the event loop: no thread and no database
connection is held meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from django.db import DatabaseError

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, InvalidParams, InvalidRequest
from mcp_django.execution import task_status
from mcp_django.execution.call import Awaiting, Invocation
from mcp_django.execution.handlers.tasks import readable_now, take_answers
from mcp_django.execution.pipeline import respond
from mcp_django.execution.telemetry import asking
from mcp_django.execution.threads import at_desk
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import Response
from mcp_django.protocol.shapes import project_notification, project_question
from mcp_django.schema.values import is_too_deep
from mcp_django.storage import inbox, streams, task_rows
from mcp_django.storage.databases import in_thread
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.pubsub import hub, ring
from mcp_django.storage.versions import Topic
from mcp_django.transports import drain, listen
from mcp_django.transports.outgoing import SILENCE, Messages, Outgoing

if TYPE_CHECKING:
    from mcp_django.models import Task


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


# The stream of ``tasks/result`` -------------------------------------------------------------------

# A change rings. That a worker is gone does not: whoever looks finds out.
LOOK_SECONDS = 5.0


async def messages(awaiting: Awaiting, *, answers: Answers | None = None) -> Messages:
    """Each change of the task, each of its questions as a request, then its outcome (2025-11-25).

    Without ``answers`` there is nobody to ask, and a task that asks ends the wait. Between two
    changes the stream holds a task of the loop and an event. A client that leaves it does not
    cancel the task (CAN-6).

    Raises:
        MCPError: the call met an error, the task is gone, or nobody answers.
    """
    yield SILENCE
    waiting = _Waiting(awaiting, answers)
    topic = task_rows.topic_of(awaiting.task_id)
    leave = hub().subscribe([topic], lambda _: waiting.rung.set())
    try:
        await hub().ready([topic])
        with (
            drain.idle(waiting.end) as draining,
            listen.watching(
                awaiting.incoming.server,
                awaiting.incoming.principal,
                waiting.send_away,
                after=listen.SHORT_SECONDS,
                ends_at_expiry=False,
            ),
        ):
            while True:
                waiting.rung.clear()
                row = await at_desk(waiting.look)
                for message in waiting.changes(row):
                    yield Outgoing(jsonrpc.encode(message))
                if row.is_terminal:
                    break
                if waiting.is_sent_away:
                    raise InvalidRequest("Your access was taken away; the task goes on.")
                if draining.is_set():
                    raise InternalError("The server is stopping; ask for the result again.")
                for message in await waiting.ask(row):
                    yield Outgoing(jsonrpc.encode(message))
                if await waiting.wait():
                    yield SILENCE
        for message in await waiting.ask(row):
            yield Outgoing(jsonrpc.encode(message))
        result = task_status.outcome(row, awaiting.incoming.server, awaiting.incoming.revision)
        yield Outgoing(respond(awaiting.incoming, result), is_response=True)
    finally:
        leave()
        waiting.stop()


class _Waiting:
    """What one stream has told and asked of a task so far."""

    def __init__(self, awaiting: Awaiting, answers: Answers | None) -> None:
        self.rung = asyncio.Event()
        self.is_sent_away = False
        self._incoming = awaiting.incoming
        self._task_id = awaiting.task_id
        self._answers = answers
        self._told: tuple[str, str] | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._ids: dict[str, str] = {}
        self._spoke = asyncio.get_running_loop().time()
        self._failure: BaseException | None = None

    def end(self) -> None:
        """Look at once whether the process stops."""
        self.rung.set()

    def send_away(self) -> None:
        """The caller would not be let in again."""
        self.is_sent_away = True
        self.rung.set()

    def stop(self) -> None:
        """Wait for no answer any more."""
        for task in self._asking.values():
            task.cancel()

    def look(self) -> Task:
        """The row as it is now; for a thread.

        Raises:
            InvalidParams: it is not there any more.
        """
        row = readable_now(self._incoming, self._task_id)
        if row is None:
            raise InvalidParams("The task is not there any more.")
        return row

    def changes(self, row: Task) -> Iterable[dict[str, Any]]:
        """The notification of a change since the last look.

        Raises:
            InvalidRequest: a question was not answered in time.
        """
        if self._failure is not None:
            yield from map(self._take_back, [*self._ids])
            raise self._failure
        told = (row.status, row.status_message)
        if told != self._told:
            if self._told is not None:
                params = task_status.detailed(row)
                method = "notifications/tasks/status"
                projected = project_notification(method, params, self._incoming.revision)
                if projected is not None:
                    yield jsonrpc.notification(method, projected)
            self._told = told

    async def ask(self, row: Task) -> list[dict[str, Any]]:
        """The questions that were not asked here yet, as requests that name the task (TKD-8).

        Raises:
            InvalidRequest: there is nobody to ask.
        """
        # Another stream of the client may have been quicker, or the task is over.
        stale = [key for key in self._ids if key not in row.questions]
        for key in stale:
            self._asking[key].cancel()
        messages = [self._take_back(key) for key in stale]
        fresh = {key: one for key, one in row.questions.items() if key not in self._asking}
        if fresh and self._answers is None:
            raise InvalidRequest("The task waits for answers, which cannot travel here.")
        for key, question in fresh.items():
            assert self._answers is not None
            self._ids[key] = request_id = self._answers.new_id()
            params = self._params(key, question)
            messages.append(jsonrpc.request(request_id, question["method"], params))
            answering = asyncio.create_task(self._answered(key, request_id, self._answers))
            self._asking[key] = answering
            answering.add_done_callback(self._note)
        if fresh:
            # Somebody has to wait for the answers before the questions leave.
            await asyncio.sleep(0)
        return messages

    async def wait(self) -> bool:
        """Wait until it is time to look again; whether a sign of life is due."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self.rung.wait()
        except TimeoutError:
            pass
        if loop.time() - self._spoke < get_settings().keepalive_seconds:
            return False
        self._spoke = loop.time()
        return True

    def _params(self, key: str, question: Mapping[str, Any]) -> dict[str, Any]:
        params = project_question(
            question["method"],
            question["params"],
            self._incoming.revision,
            elicitation_id=f"{self._task_id}.{key}",
        )
        meta = {**params.get("_meta", {}), **task_status.related(self._task_id)}
        return {**params, "_meta": meta}

    async def _answered(self, key: str, request_id: str, answers: Answers) -> None:
        """Wait for one answer, and give it to the task.

        Raises:
            InvalidRequest: none came in time; the task still waits for it.
        """
        seconds = get_settings().question_timeout
        found = await answers.wait([request_id], seconds=seconds)
        if request_id not in found:
            raise InvalidRequest(
                f"Nobody answered within {seconds:g} seconds; the task waits on. Come again."
            )
        self._ids.pop(key, None)
        await at_desk(partial(self._give, {key: found[request_id]}))

    def _give(self, answers: dict[str, Any]) -> None:
        take_answers(self.look(), answers)

    def _note(self, answering: asyncio.Task[None]) -> None:
        if not answering.cancelled() and self._failure is None:
            self._failure = answering.exception()
        self.rung.set()

    def _take_back(self, key: str) -> dict[str, Any]:
        """A question that nobody needs to answer any more (CAN-7)."""
        reason = {"requestId": self._ids.pop(key), "reason": "no answer is waited for any more"}
        return jsonrpc.notification("notifications/cancelled", reason)
