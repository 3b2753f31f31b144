"""The stream of ``tasks/result``: a task's changes, what it asks, and its outcome (2025-11-25).

Between two changes it holds a task of the loop and an event: no thread, no database connection.
Whoever leaves it leaves the task alone (CAN-6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, InvalidParams, InvalidRequest
from mcp_django.protocol import jsonrpc, shapes
from mcp_django.protocol.shapes import project_question
from mcp_django.runtime.dispatch import respond
from mcp_django.runtime.handlers.tasks import readable_now, take_answers
from mcp_django.runtime.incoming import Awaiting
from mcp_django.runtime.tasks import describing
from mcp_django.store import tasks
from mcp_django.store.hub import hub
from mcp_django.transports import drain, watch
from mcp_django.transports.client_answers import Answers
from mcp_django.transports.desk import at_desk
from mcp_django.transports.outgoing import SILENCE, Messages, Outgoing

if TYPE_CHECKING:
    from mcp_django.models import Task

# A change rings. That a worker is gone does not: whoever looks finds out.
LOOK_SECONDS = 5.0


async def messages(awaiting: Awaiting, *, answers: Answers | None = None) -> Messages:
    """Each change of the task, each of its questions as a request, then its outcome.

    Without ``answers`` there is nobody to ask, and a task that asks ends the wait.

    Raises:
        MCPError: the call met an error, the task is gone, or nobody answers.
    """
    yield SILENCE
    waiting = _Waiting(awaiting, answers)
    topic = tasks.topic_of(awaiting.task_id)
    leave = hub().subscribe([topic], lambda _: waiting.rung.set())
    try:
        await hub().ready([topic])
        with (
            drain.idle(waiting.end) as draining,
            watch.watching(
                awaiting.incoming.server,
                awaiting.incoming.principal,
                waiting.send_away,
                after=watch.SHORT_SECONDS,
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
        result = describing.outcome(row, awaiting.incoming.server, awaiting.incoming.revision)
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
                params = describing.detailed(row)
                method = "notifications/tasks/status"
                projected = shapes.project_notification(method, params, self._incoming.revision)
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

    def _params(self, key: str, question: Mapping[str, Any]) -> dict[str, Any]:
        params = project_question(
            question["method"],
            question["params"],
            self._incoming.revision,
            elicitation_id=f"{self._task_id}.{key}",
        )
        meta = {**params.get("_meta", {}), **describing.related(self._task_id)}
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
