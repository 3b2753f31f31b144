"""What the test client does with tasks: look at them, answer them, wait for them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from asgiref.sync import sync_to_async

from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.test.answering import next_round
from mcp_django.test.answers import CallResult, ErrorResponse, checked
from mcp_django.test.rounds import Rounds

# A task of a transport runs in a thread of its own; over memory it has run before anybody looks.
PATIENCE_SECONDS = 10
LOOK_SECONDS = 0.02
OVER = ("completed", "failed", "cancelled")


class Following(Rounds):
    """Tasks, as a client of either revision follows them."""

    def get_task(self, task_id: str) -> dict[str, Any]:
        """A task as it is now, in the words of the revision."""
        return self.request("tasks/get", {"taskId": task_id})

    def cancel_task(self, task_id: str) -> dict[str, Any]:
        """Cancel a task."""
        return self.request("tasks/cancel", {"taskId": task_id})

    def task_result(
        self, task: CallResult | str, *, answers: Sequence[Any] = (), check: bool = True
    ) -> CallResult:
        """What the call of a task comes to, once it has been told the ``answers``.

        A task that still asks when they are used up has ``questions``.

        Raises:
            ToolFailed: the tool said that it failed; with ``check=False`` a result says so.
            MCPError: the task failed, or was cancelled.
            TimeoutError: it works for longer than a test waits.
        """
        task_id = task if isinstance(task, str) else task.task_id
        self._left = list(answers)
        if REVISIONS[self._version].tasks:
            raw = self.request("tasks/result", {"taskId": task_id})
        else:
            raw = self._follow(task_id)
        if self._left:
            raise AssertionError(f"Nothing asked for the answers {self._left!r}.")
        result = CallResult(raw=raw)
        return checked(f"The tool of task {task_id}", result) if check else result

    async def atask_result(
        self, task: CallResult | str, *, answers: Sequence[Any] = (), check: bool = True
    ) -> CallResult:
        """``task_result`` for asynchronous tests."""
        return await sync_to_async(self.task_result)(task, answers=answers, check=check)

    def _follow(self, task_id: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := self.get_task(task_id))["status"] not in OVER:
            if found["status"] == "input_required":
                if not self._left:
                    return {"resultType": "input_required", **found}
                self._tell(task_id, found)
            elif time.monotonic() > until:
                raise TimeoutError(f"The task works for more than {PATIENCE_SECONDS} seconds.")
            else:
                time.sleep(LOOK_SECONDS)
        return _outcome(found)

    def _tell(self, task_id: str, asking: Mapping[str, Any]) -> None:
        given = next_round(asking, self._left)["inputResponses"]
        del self._left[: len(given)]
        self.request("tasks/update", {"taskId": task_id, "inputResponses": given})


def _outcome(task: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in task:
        raise ErrorResponse(task["error"])
    if "result" not in task:
        message = task.get("statusMessage") or f"The task was {task['status']}."
        raise ErrorResponse({"code": INTERNAL_ERROR, "message": message})
    result: dict[str, Any] = task["result"]
    return result
