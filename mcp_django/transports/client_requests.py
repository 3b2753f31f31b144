"""Requests to a client of a handshake revision (elicitation, sampling), and ``tasks/result``.

A client request is a JSON-RPC request on the stream of the call; the client posts its response
separately, possibly to another process. Waiting for the response is done on the event loop and
uses no thread and no database connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from django.db import DatabaseError

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, InvalidParams, InvalidRequest
from mcp_django.execution.call import Call, TaskWait
from mcp_django.execution.results import encode_response
from mcp_django.execution.telemetry import trace_client_requests
from mcp_django.execution.threads import run_in_short_thread
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import Response
from mcp_django.protocol.projection import project_client_request, project_notification
from mcp_django.schema.values import is_too_deep
from mcp_django.storage import inbox, streams, task_rows
from mcp_django.storage.databases import run_in_db_thread
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.pubsub import get_hub, notify
from mcp_django.storage.versions import TopicKey
from mcp_django.tasks import status as task_status
from mcp_django.tasks.handlers import readable_task_after_wait, store_answers
from mcp_django.transports import drain, stream_access
from mcp_django.transports.outgoing import KEEPALIVE, Messages, Outgoing, encode_message

if TYPE_CHECKING:
    from mcp_django.models import Task


logger = logging.getLogger("mcp_django")

Answer = dict[str, Any]
Send = Callable[[dict[str, Any]], None]

# How many of a session's responses may be stored for another process to take.
MAX_WAITING: Final = 64
UNREADABLE: Final[Answer] = {
    "error": {"code": 0, "message": "the answer is not valid JSON or is nested too deeply"}
}
_OURS = re.compile(r"ask-([0-9a-f]{1,16})-[0-9]{1,9}")


class ClientAnswers(Protocol):
    """Receives a client's responses to the client requests of one session."""

    def new_id(self) -> str:
        """Return a request id that is unique in the session, also among the client's own ids."""

    async def wait(self, ids: Iterable[str], *, seconds: float) -> dict[str, Answer]:
        """Wait at most ``seconds`` for responses and return those that arrived, by id."""


async def ask_client(
    call: Call, questions: Mapping[str, Any], answers: ClientAnswers, send: Send
) -> dict[str, Answer]:
    """Send client requests and return the client's answers, by their keys.

    A request that is not answered in time is cancelled, and an error is returned for it.
    """
    assert call.interaction is not None
    seconds = get_settings().client_request_timeout
    ids = {key: answers.new_id() for key in questions}
    with trace_client_requests(call.record.operation) as spans:
        for key, question in questions.items():
            method, request_id = question["method"], ids[key]
            params = project_client_request(
                method,
                question["params"],
                call.revision,
                elicitation_id=call.interaction.elicitation_id(key),
            )
            send(
                jsonrpc.build_request(
                    request_id, method, spans.begin_request(request_id, method, params)
                )
            )
        answers_by_id = await answers.wait(ids.values(), seconds=seconds)
        spans.end_answered(answers_by_id)
    unanswered = f"the client did not answer within {seconds:g} seconds"
    for request_id in ids.values():
        if request_id not in answers_by_id:
            reason = {"requestId": request_id, "reason": unanswered}
            send(jsonrpc.build_notification("notifications/cancelled", reason))
    timeout_error = {"error": {"code": 0, "message": unanswered}}
    return {key: answers_by_id.get(request_id, timeout_error) for key, request_id in ids.items()}


def decode_answer(response: Response) -> Answer:
    """Return the result of a client's response, or ``{"error": ...}`` for an error.

    An unreadable response is returned as an error too, so the call does not keep waiting.
    """
    raw = response.error if response.error is not None else response.result or b"{}"
    try:
        payload: Answer = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return UNREADABLE
    if is_too_deep(raw, payload):
        return UNREADABLE
    return payload if response.error is None else {"error": payload}


class LocalAnswers:
    """Responses in a session that exists only as long as its connection."""

    def __init__(self) -> None:
        self._serial = count(1)
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    def new_id(self) -> str:
        """Return the next id."""
        return f"server-{next(self._serial)}"

    def deliver(self, request_id: str | int, answer: Answer) -> None:
        """Pass a response to the call that waits for it; drop it if no call does."""
        future = self._waiting.get(str(request_id))
        if future is not None and not future.done():
            future.set_result(answer)

    async def wait(self, ids: Iterable[str], *, seconds: float) -> dict[str, Answer]:
        """Wait at most ``seconds`` for responses and return those that arrived, by id."""
        loop = asyncio.get_running_loop()
        futures = {request_id: loop.create_future() for request_id in ids}
        self._waiting.update(futures)
        try:
            await asyncio.wait(futures.values(), timeout=seconds)
            return {
                request_id: future.result()
                for request_id, future in futures.items()
                if future.done()
            }
        finally:
            for request_id in futures:
                self._waiting.pop(request_id, None)


class StoredAnswers:
    """Responses in a stored session, which any process may receive.

    The id of a client request contains the number of the stream that it was sent on, so the
    process that receives the response can find the process that waits for it.
    """

    def __init__(self, session_pk: int, stream: int) -> None:
        self._session_pk = session_pk
        self._stream = stream
        self._serial = count(1)

    def new_id(self) -> str:
        """Return the next id."""
        return f"ask-{self._stream:x}-{next(self._serial)}"

    async def wait(self, ids: Iterable[str], *, seconds: float) -> dict[str, Answer]:
        """Wait at most ``seconds`` for responses, posted to any process; return them by id."""
        missing = set(ids)
        answers_by_id: dict[str, Answer] = {}
        notified = asyncio.Event()
        loop = asyncio.get_running_loop()

        def arrive(request_id: str, answer: Answer) -> None:
            answers_by_id.setdefault(request_id, answer)
            notified.set()

        with _pending_requests.all_of(self._session_pk, missing, loop, arrive):
            topic = TopicKey("", "session", str(self._session_pk))
            unsubscribe = get_hub().subscribe([topic], lambda _: notified.set())
            try:
                async with asyncio.timeout(seconds):
                    while missing - answers_by_id.keys():
                        await notified.wait()
                        notified.clear()
                        answers_by_id |= await self._delivered(missing - answers_by_id.keys())
            except TimeoutError:
                pass
            finally:
                unsubscribe()
        return answers_by_id

    async def _delivered(self, ids: Iterable[str]) -> dict[str, Answer]:
        """Return the responses that other processes stored."""
        try:
            messages = await run_in_db_thread(inbox.take_messages, self._session_pk, ids)
        except DatabaseError:
            # The next notification triggers another attempt.
            logger.warning("Could not load the client's answers.", exc_info=True)
            return {}
        return {message.ref: msgspec.json.decode(message.payload) for message in messages}


def stream_of_request_id(request_id: str | int) -> int | None:
    """Return the number of the stream in a client request's id; ``None`` for a foreign id."""
    match = _OURS.fullmatch(str(request_id))
    return int(match[1], 16) if match is not None else None


def deliver_answer(session_pk: int, stream: int, request_id: str, answer: Answer) -> None:
    """Pass a response to the call that waits for it, in this process or another; blocking.

    A response that no call waits for is dropped.
    """
    if _pending_requests.deliver(session_pk, request_id, answer):
        return
    owner = streams.find_owner(session_pk, stream)
    if owner is None or owner == worker_id():
        return
    payload = jsonrpc.encode(answer).decode()
    if not inbox.has_room(session_pk, "answer", size=len(payload), keep=MAX_WAITING):
        logger.warning("A client's answer was dropped: its session has too many waiting.")
        return
    inbox.put_message(session_pk, "answer", request_id, payload)
    notify(TopicKey("", "session", str(session_pk)))


class _PendingRequests:
    """The client requests whose responses calls of this process wait for."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], Callable[[Answer], None]] = {}
        self._lock = threading.Lock()

    def all_of(
        self,
        session_pk: int,
        ids: Iterable[str],
        loop: asyncio.AbstractEventLoop,
        arrive: Callable[[str, Answer], None],
    ) -> _TemporaryEntries:
        places = {
            (session_pk, request_id): lambda answer, request_id=request_id: (
                loop.call_soon_threadsafe(arrive, request_id, answer)
            )
            for request_id in ids
        }
        return _TemporaryEntries(self._waiting, places, self._lock)

    def deliver(self, session_pk: int, request_id: str, answer: Answer) -> bool:
        with self._lock:
            arrive = self._waiting.get((session_pk, request_id))
            if arrive is None:
                return False
            arrive(answer)
            return True


class _TemporaryEntries:
    """Context manager that adds entries to a dictionary and removes them on exit."""

    def __init__(self, table: dict[Any, Any], entries: dict[Any, Any], lock: Any) -> None:
        self._table, self._entries, self._lock = table, entries, lock

    def __enter__(self) -> None:
        with self._lock:
            self._table.update(self._entries)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            for key in self._entries:
                self._table.pop(key, None)


_pending_requests = _PendingRequests()


# Changes are published. A lost worker publishes nothing, so the row is polled as well.
POLL_SECONDS = 5.0


async def task_result_messages(call: Call, *, answers: ClientAnswers | None = None) -> Messages:
    """Yield a task's status changes, its client requests, then its outcome (2025-11-25).

    Without ``answers`` no requests can be sent to the client, and a task that needs input ends the
    wait with an error. Between two changes the stream uses one asyncio task and an event. A client
    that closes the stream does not cancel the task.

    Raises:
        MCPError: the call failed, the task no longer exists, or the client does not answer.
    """
    if call.stream is not None:
        call.stream.has_begun = True
    yield KEEPALIVE
    assert isinstance(call.result, TaskWait)
    waiting = _TaskResultStream(call, call.result.task_id, answers)
    topic = task_rows.task_topic(call.result.task_id)
    leave = get_hub().subscribe([topic], lambda _: waiting.notified.set())
    try:
        await get_hub().prepare([topic])
        with (
            drain.idle_stream(waiting.end) as draining,
            stream_access.watch_access(
                call.server,
                call.principal,
                waiting.revoke,
                after=stream_access.SHORT_SECONDS,
                ends_at_expiry=False,
            ),
        ):
            while True:
                waiting.notified.clear()
                row = await run_in_short_thread(waiting.load_task)
                for message in waiting.changes(row):
                    yield encode_message(call, message)
                if row.is_terminal:
                    break
                if waiting.is_revoked:
                    raise InvalidRequest("Your access was revoked; the task continues.")
                if draining.is_set():
                    raise InternalError("The server is shutting down; request the result again.")
                for message in await waiting.ask(row):
                    yield encode_message(call, message)
                if await waiting.wait():
                    yield KEEPALIVE
        for message in await waiting.ask(row):
            yield encode_message(call, message)
        result = task_status.call_result(row, call.server, call.revision)
        yield Outgoing(encode_response(call, result), is_response=True)
    finally:
        leave()
        waiting.stop()


class _TaskResultStream:
    """The state of one ``tasks/result`` stream: the status and client requests sent so far."""

    def __init__(self, call: Call, task_id: str, answers: ClientAnswers | None) -> None:
        self.notified = asyncio.Event()
        self.is_revoked = False
        self._call = call
        self._task_id = task_id
        self._answers = answers
        self._sent_status: tuple[str, str] | None = None
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._ids: dict[str, str] = {}
        self._spoke = asyncio.get_running_loop().time()
        self._failure: BaseException | None = None

    def end(self) -> None:
        """Wake the stream, so it checks immediately whether the process is stopping."""
        self.notified.set()

    def revoke(self) -> None:
        """Record that the caller's access was revoked, and wake the stream."""
        self.is_revoked = True
        self.notified.set()

    def stop(self) -> None:
        """Stop waiting for the client's responses."""
        for task in self._asking.values():
            task.cancel()

    def load_task(self) -> Task:
        """Return the task's current row; blocking.

        Raises:
            InvalidParams: the task no longer exists, or the caller may not read it.
        """
        row = readable_task_after_wait(self._call, self._task_id)
        if row is None:
            raise InvalidParams("The task no longer exists.")
        return row

    def changes(self, row: Task) -> Iterable[dict[str, Any]]:
        """Yield a notification if the task's status changed since the last call.

        Raises:
            InvalidRequest: a client request was not answered in time.
        """
        if self._failure is not None:
            yield from map(self._cancel_request, [*self._ids])
            raise self._failure
        status = (row.status, row.status_message)
        if status != self._sent_status:
            if self._sent_status is not None:
                params = task_status.task_details(row)
                method = "notifications/tasks/status"
                projected = project_notification(method, params, self._call.revision)
                if projected is not None:
                    yield jsonrpc.build_notification(method, projected)
            self._sent_status = status

    async def ask(self, row: Task) -> list[dict[str, Any]]:
        """Return the client requests not sent here yet, each with the task's id in ``_meta``.

        Raises:
            InvalidRequest: the task needs input, and this stream cannot carry client requests.
        """
        # These may have been answered on another stream of the client, or the task is finished.
        stale = [key for key in self._ids if key not in row.questions]
        for key in stale:
            self._asking[key].cancel()
        messages = [self._cancel_request(key) for key in stale]
        fresh = {
            key: question for key, question in row.questions.items() if key not in self._asking
        }
        if fresh and self._answers is None:
            raise InvalidRequest(
                "The task needs input, but this transport cannot send requests to the client."
            )
        for key, question in fresh.items():
            assert self._answers is not None
            self._ids[key] = request_id = self._answers.new_id()
            params = self._params(key, question)
            messages.append(jsonrpc.build_request(request_id, question["method"], params))
            answering = asyncio.create_task(self._answered(key, request_id, self._answers))
            self._asking[key] = answering
            answering.add_done_callback(self._note)
        if fresh:
            # Start waiting for the responses before the requests are sent.
            await asyncio.sleep(0)
        return messages

    async def wait(self) -> bool:
        """Wait until the row must be read again; return whether a keep-alive is due."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self.notified.wait()
        except TimeoutError:
            pass
        if loop.time() - self._spoke < get_settings().keepalive_seconds:
            return False
        self._spoke = loop.time()
        return True

    def _params(self, key: str, question: Mapping[str, Any]) -> dict[str, Any]:
        params = project_client_request(
            question["method"],
            question["params"],
            self._call.revision,
            elicitation_id=f"{self._task_id}.{key}",
        )
        meta = {**params.get("_meta", {}), **task_status.related_task_meta(self._task_id)}
        return {**params, "_meta": meta}

    async def _answered(self, key: str, request_id: str, answers: ClientAnswers) -> None:
        """Wait for one response and pass it to the task.

        Raises:
            InvalidRequest: it did not arrive in time; the task keeps waiting for it.
        """
        seconds = get_settings().client_request_timeout
        answers_by_id = await answers.wait([request_id], seconds=seconds)
        if request_id not in answers_by_id:
            raise InvalidRequest(
                f"The client did not answer within {seconds:g} seconds; the task is still waiting. "
                "Send tasks/result again."
            )
        self._ids.pop(key, None)
        answer = answers_by_id[request_id]
        await run_in_short_thread(lambda: store_answers(self.load_task(), {key: answer}))

    def _note(self, answering: asyncio.Task[None]) -> None:
        if not answering.cancelled() and self._failure is None:
            self._failure = answering.exception()
        self.notified.set()

    def _cancel_request(self, key: str) -> dict[str, Any]:
        """Return the notification that cancels a client request."""
        reason = {"requestId": self._ids.pop(key), "reason": "an answer is not needed anymore"}
        return jsonrpc.build_notification("notifications/cancelled", reason)
