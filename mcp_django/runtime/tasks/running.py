"""One run of a task, from the lease to the row that says what came of it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.db import InterfaceError, OperationalError, close_old_connections, connections

from mcp_django.core.context import Cancellation
from mcp_django.exceptions import AccessRefused, AuthenticationRequired, InternalError, MCPError
from mcp_django.protocol.errors import FORBIDDEN, UNAUTHORIZED
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.text import storable
from mcp_django.runtime import calls
from mcp_django.runtime.results import tool_error
from mcp_django.runtime.tasks.interaction import TaskInteraction
from mcp_django.runtime.tasks.lease import keeper
from mcp_django.runtime.tasks.rebuilding import rebuild
from mcp_django.store import tasks
from mcp_django.store.databases import alias

if TYPE_CHECKING:
    from mcp_django.models import Task

logger = logging.getLogger("mcp_django")

MAX_MESSAGE = 1000
# How long a database may be away before what came of a run is lost.
PATIENCE_SECONDS = 60
PAUSE_SECONDS = 0.5
UNHEARD = (
    "It has a question, and the client that began it cannot be asked any more; call the tool from "
    "a client with tasks, or without what makes it ask."
)
BROKEN = "The task could not be run for a reason that is no fault of the request; it was logged."
STOPPED = "The worker that ran this task was stopped."


def take(pk: str, run: int) -> Running | None:
    """A run with its lease; ``None`` where it was taken, or is not wanted any more."""
    row = tasks.start(pk, run)
    if row is None:
        return None
    taken = Running(row)
    keeper.hold(taken)
    return taken


def perform_here(pk: str, run: int) -> None:
    """Run a task at once, while nobody else looks at it: its lease is not renewed."""
    row = tasks.start(pk, run)
    if row is not None:
        Running(row).perform()


class Running:
    """A run that this process holds the lease of, and the port by which it reports."""

    def __init__(self, row: Task) -> None:
        self.row = row
        self.pk, self.run = row.pk, row.run
        self.cancellation = Cancellation()
        self._message: str | None = None
        self._lock = threading.Lock()

    # What its function reports ----------------------------------------------------------------

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Become the message of the task, which is written once a second at most."""
        if message is None:
            message = f"{progress:g}" if total is None else f"{progress:g} / {total:g}"
        with self._lock:
            self._message = message[:MAX_MESSAGE]

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop it: tasks have no log messages (TKE-11)."""

    def hang_up(self, seconds: float) -> None:
        """There is no connection to close."""

    # What its keeper does ---------------------------------------------------------------------

    def stop(self) -> None:
        """Raise ``ctx.cancelled``, and interrupt what can be interrupted."""
        self.cancellation.cancel()

    def tell(self) -> None:
        """Write down what was reported last, if it was not written yet."""
        with self._lock:
            message, self._message = self._message, None
        if message is not None:
            tasks.tell(self.pk, self.run, message)

    def let_go(self) -> None:
        """Hold the lease no more."""
        keeper.let_go(self)

    # The run ----------------------------------------------------------------------------------

    def perform(self) -> None:
        """Run the function and write down what came of it, or what it asks."""
        try:
            self._perform()
        except MCPError as exc:
            self._fail(exc.code, exc.message, exc.data)
        except AccessRefused as exc:
            is_unknown = isinstance(exc, AuthenticationRequired)
            self._fail(UNAUTHORIZED if is_unknown else FORBIDDEN, exc.message)
        except asyncio.CancelledError:
            # Whoever cancelled it has written that down.
            logger.info("The task %s of %s was cancelled.", self.row.short_id, self.row.tool)
        except Exception:
            logger.exception(
                "The task %s of %s could not be run.", self.row.short_id, self.row.tool
            )
            self._fail(InternalError.code, BROKEN)
        except BaseException:
            self._fail(InternalError.code, STOPPED)
            raise
        finally:
            self.let_go()

    def _perform(self) -> None:
        if self.cancellation:
            return
        outcome = rebuild(self.row, self.cancellation)
        if isinstance(outcome, dict):
            self._finish(outcome)
            return
        interaction = outcome.interaction
        assert isinstance(interaction, TaskInteraction)
        result = calls.run_until_cancelled(outcome, self)
        self._insist(self.tell)
        if result.get("resultType") == "input_required" and self.row.caller.get("by_handle"):
            self._finish(tool_error(UNHEARD))
        elif result.get("resultType") == "input_required":
            requests, state = interaction.requests, interaction.state().decode()
            self._insist(lambda: tasks.asked(self.pk, self.run, requests, state))
        else:
            self._finish(result)

    def _finish(self, result: dict[str, Any]) -> None:
        try:
            encode(result)
        except (TypeError, ValueError) as exc:
            # The site put it there: half a surrogate pair in a text, an object in a block's meta.
            logger.exception("The result of the task %s is no JSON.", self.row.short_id)
            raise InternalError("The result cannot be written as JSON; it was logged.") from exc
        self._insist(lambda: tasks.finish(self.pk, self.run, result=result, message=""))

    def _fail(self, code: int, message: str, data: Any = None) -> None:
        error: dict[str, Any] = {"code": code, "message": storable(message)}
        if data is not None:
            error["data"] = data
        try:
            encode(error)
        except (TypeError, ValueError):
            # The site put it there; the error is one without it.
            logger.exception("The data of an error of %s is no JSON.", self.row.tool)
            del error["data"]
        self._insist(lambda: tasks.finish(self.pk, self.run, error=error))

    def _insist(self, write: Callable[[], object]) -> None:
        """Write what cannot be found out again, although the database is away for a moment."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                write()
            except (OperationalError, InterfaceError) as exc:
                if connections[alias()].in_atomic_block or time.monotonic() > until:
                    raise
                logger.warning("A task of %s could not be written (%s); again.", self.row.tool, exc)
                time.sleep(PAUSE_SECONDS)
                close_old_connections()
            else:
                return
