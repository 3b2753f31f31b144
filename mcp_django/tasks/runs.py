"""Runs a task: takes its lease, calls the tool and writes the result to the task's row.

The caller may have lost access since the call was made. So each run authorizes the call again,
and fails with the same message with which a call would have been rejected. A run has no
credential: the caller is restored from the task's row.

One thread per process renews the leases of all tasks that run in it. The thread starts with the
first task and ends with the last.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connections,
    models,
)
from django.urls import get_resolver
from django.utils.module_loading import import_string

from mcp_django.auth.authentication import refresh_principal
from mcp_django.auth.pages import new_interaction
from mcp_django.auth.principal import Principal, anonymous_principal
from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation, CurrentTask
from mcp_django.components.questions import MalformedAnswer, Question
from mcp_django.components.tool import Tool
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    InternalError,
    InvalidParams,
    MCPError,
    NotApproved,
)
from mcp_django.execution import call_log, invoke, results, telemetry
from mcp_django.execution.approval_guard import guard_for
from mcp_django.execution.call import Call, Channel, RetryParams
from mcp_django.execution.interaction import Interaction, RequestState, Unanswered, state_subject
from mcp_django.execution.policy import admit_caller, authorize
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.errors import FORBIDDEN, UNAUTHORIZED
from mcp_django.protocol.jsonrpc import Request, encode
from mcp_django.protocol.revisions import LATEST
from mcp_django.protocol.text import storable
from mcp_django.schema.arguments import InvalidArguments
from mcp_django.storage import task_rows
from mcp_django.storage.databases import write_alias
from mcp_django.tenants import as_tenant, run_as_tenant

if TYPE_CHECKING:
    from mcp_django.models import Task

logger = logging.getLogger("mcp_django")

MAX_MESSAGE_LENGTH = 1000
# How long the database may be unavailable before the outcome of a run is lost.
WRITE_RETRY_SECONDS = 60
RETRY_PAUSE_SECONDS = 0.5
CANNOT_ASK_MESSAGE = (
    "The tool asks the user a question, but the client that started it does not support tasks and "
    "cannot be asked any more. Use a client with tasks, or arguments that need no question."
)
SERVER_ERROR_MESSAGE = "The task failed because of a server error. The error was logged."
WORKER_STOPPED_MESSAGE = "The worker that ran this task was stopped."


def take_lease(pk: str, run: int) -> TaskRun | None:
    """Take the lease of a run and return the run; ``None`` if it was taken or is out of date."""
    row = task_rows.start_run(pk, run)
    if row is None:
        return None
    task_run = TaskRun(row)
    lease_renewer.add(task_run)
    return task_run


def run_inline(pk: str, run: int) -> None:
    """Run a task in this thread, for tests; its lease is not renewed."""
    row = task_rows.start_run(pk, run)
    if row is not None:
        TaskRun(row).perform()


class TaskRun:
    """A run whose lease this process has; also the ``ClientPort`` of its function."""

    def __init__(self, row: Task) -> None:
        self.row = row
        self.pk, self.run = row.pk, row.run
        self.cancellation = Cancellation()
        self._message: str | None = None
        self._lock = threading.Lock()

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Set the task's status message, which is written at most once a second."""
        if message is None:
            message = f"{progress:g}" if total is None else f"{progress:g} / {total:g}"
        with self._lock:
            self._message = message[:MAX_MESSAGE_LENGTH]

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop the log message, since tasks send none."""

    def close_stream(self, seconds: float) -> None:
        """Do nothing, since a task has no connection to close."""

    def cancel(self) -> None:
        """Set ``ctx.cancelled``, and interrupt an async function."""
        self.cancellation.cancel()

    def write_message(self) -> None:
        """Write the last status message, unless it was written before."""
        with self._lock:
            message, self._message = self._message, None
        if message is not None:
            task_rows.set_status_message(self.pk, self.run, message)

    def stop_renewal(self) -> None:
        """Stop renewing the lease."""
        lease_renewer.remove(self)

    def perform(self) -> None:
        """Run the function and write its result, its error or its questions to the row.

        Meanwhile this thread works for the tenant of the task.
        """
        try:
            with as_tenant(self.row.tenant):
                run_as_tenant(self._perform)
        except MCPError as exc:
            self._fail(exc.code, exc.message, exc.data)
        except AccessRefused as exc:
            is_unknown = isinstance(exc, AuthenticationRequired)
            self._fail(UNAUTHORIZED if is_unknown else FORBIDDEN, exc.message)
        except asyncio.CancelledError:
            # The cancellation is in the row already.
            logger.info("The task %s of %s was cancelled.", self.row.short_id, self.row.tool)
        except Exception:
            logger.exception(
                "The task %s of %s could not be run.", self.row.short_id, self.row.tool
            )
            self._fail(InternalError.code, SERVER_ERROR_MESSAGE)
        except BaseException:
            self._fail(InternalError.code, WORKER_STOPPED_MESSAGE)
            raise
        finally:
            self.stop_renewal()

    def _perform(self) -> None:
        if self.cancellation:
            return
        call = _prepare_call(self.row, self.cancellation)
        if isinstance(call.result, dict):
            self._finish(call.result)
            return
        interaction = call.interaction
        assert isinstance(interaction, _TaskInteraction)
        result = invoke.run_until_cancelled(call, self)
        self._write_with_retry(self.write_message)
        if result.get("resultType") == "input_required" and self.row.caller.get("by_handle"):
            self._finish(results.tool_error(CANNOT_ASK_MESSAGE))
        elif result.get("resultType") == "input_required":
            requests, state = interaction.requests, interaction.state().decode()
            self._write_with_retry(
                lambda: task_rows.wait_for_responses(self.pk, self.run, requests, state)
            )
        else:
            self._finish(result)

    def _finish(self, result: dict[str, Any]) -> None:
        try:
            encode(result)
        except (TypeError, ValueError) as exc:
            # From the site's code: a lone surrogate in a text, or an object in a block's meta.
            logger.exception(
                "The result of the task %s cannot be encoded as JSON.", self.row.short_id
            )
            raise InternalError(
                "The result of the task cannot be encoded as JSON. The error was logged."
            ) from exc
        self._write_with_retry(
            lambda: task_rows.finish_task(self.pk, self.run, result=result, message="")
        )

    def _fail(self, code: int, message: str, data: Any = None) -> None:
        error: dict[str, Any] = {"code": code, "message": storable(message)}
        if data is not None:
            error["data"] = data
        try:
            encode(error)
        except (TypeError, ValueError):
            # The data is from the site's code; the error is written without it.
            logger.exception("The data of an error of %s is not valid JSON.", self.row.tool)
            del error["data"]
        self._write_with_retry(lambda: task_rows.finish_task(self.pk, self.run, error=error))

    def _write_with_retry(self, write: Callable[[], object]) -> None:
        """Write an outcome that must not be lost; retry while the database is unavailable."""
        until = time.monotonic() + WRITE_RETRY_SECONDS
        while True:
            try:
                write()
            except (OperationalError, InterfaceError) as exc:
                if connections[write_alias()].in_atomic_block or time.monotonic() > until:
                    raise
                logger.warning(
                    "A task of %s could not be written (%s); trying again.", self.row.tool, exc
                )
                time.sleep(RETRY_PAUSE_SECONDS)
                close_old_connections()
            else:
                return


# From the row to the call -------------------------------------------------------------------------

# Imported by name, since this layer may not import the server's.
ALL_SERVERS_PATH = "mcp_django.server.all_servers"
TRANSPORT = "task"


class _RunningTask(CurrentTask):
    """``ctx.task`` inside a running task, where ``begin`` does nothing."""

    def __init__(self, pk: str) -> None:
        self.id = pk


def _prepare_call(row: Task, cancellation: Cancellation) -> Call:
    """Return the prepared call of a task; its result is an error if the call is no longer valid.

    Raises:
        MCPError: the server or tool no longer exists, or not for this caller.
        AccessRefused: the caller is no longer authorized.
    """
    server = _find_server(row.server)
    principal = _restore_principal(row)
    if principal is None:
        raise AuthenticationRequired("The caller of this task may not use the site any more.")
    call = Call(
        server=server,
        request=Request(id=row.pk, method="tools/call", params=encode({"name": row.tool})),
        envelope=Envelope(
            revision=LATEST,
            client_capabilities=row.capabilities,
            client_info=row.client_info or None,
            progress_token=row.pk,
            trace=row.trace,
        ),
        principal=principal,
        channel=Channel(
            transport=TRANSPORT,
            origin=row.caller.get("origin", "client"),
            acting_user=row.caller.get("acting", ""),
        ),
        cancellation=cancellation,
    )
    operation = telemetry.begin_operation(call)
    call_log.begin(call, call.record)
    try:
        call.result = _prepare_authorized_call(row, call)
    except Exception as exc:
        call_log.end_rejected(call.record, exc)
        if operation is not None:
            operation.end_raised(exc)
        raise
    if isinstance(call.result, dict):
        call_log.end_answered(call, call.result)
        if operation is not None:
            operation.end_returned(call.result)
    return call


def _prepare_authorized_call(row: Task, call: Call) -> dict[str, Any] | None:
    server, principal, record = call.server, call.principal, call.record
    raw = row.arguments.encode()
    admit_caller(server, lambda: principal)
    # The name is from when the task was created, perhaps before the last deployment.
    tool = server.catalog.find_tool(row.tool)
    record.note_component(row.tool, tool)
    if tool is None or not authorize(principal, tool, call_record=record):
        raise InvalidParams(
            f"No tool named {row.tool[:80]!r} on server {row.server!r}; see tools/list."
        )
    record.note_authorized(raw)
    try:
        arguments = tool.arguments_for(principal).parse(raw)
    except InvalidArguments as exc:
        record.note_invalid_arguments(exc.problems)
        return results.tool_error(str(exc))
    # If approval was required when the task was created, the approval was used up then.
    if tool.approval != row.caller.get("approval", "") and guard_for(tool, raw, arguments):
        unasked = NotApproved(f"{tool.name} requires approval now; call it again.")
        record.note_exception(unasked)
        return results.tool_error(str(unasked))
    new_answers = {row.keys[key]: answer for key, answer in row.answers.items() if key in row.keys}
    call.interaction = _TaskInteraction(call, tool, raw, state=row.state, answers=new_answers)
    call.task = _RunningTask(row.pk)
    # The time limit is the task's lifetime, which the lease thread checks.
    call.timeout_seconds = row.ttl_ms / 1000
    call.prepare(
        tool,
        arguments,
        to_result=partial(results.tool_result, tool),
        to_error=partial(results.tool_failure, tool, call.revision),
    )
    return None


def _find_server(name: str) -> Server:
    """Return the server of this name; import the site's URLconf if it is not known yet.

    Raises:
        InternalError: this process has no such server.
    """
    for load in (lambda: None, lambda: get_resolver().url_patterns):
        load()
        for candidate in import_string(ALL_SERVERS_PATH)():
            if candidate.name == name:
                server: Server = candidate
                return server
    raise InternalError(
        f"This process has no server {name!r}; make sure that the workers import it."
    )


PRINCIPAL_FIELDS = ("client_name", "issuer", "subject", "audience", "claims", "credential")


def user_row(principal: Principal) -> Any:
    """Return the row of the caller's user, ``None`` for an anonymous caller."""
    user = principal.user
    # The lazy object of ``request.user`` passes ``isinstance`` too.
    return user if user.is_authenticated and isinstance(user, models.Model) else None


def caller_details(call: Call) -> dict[str, Any]:
    """Return the caller's attributes that have no column of their own."""
    principal = call.principal
    expires = principal.expires_at
    return {
        **{name: getattr(principal, name) for name in PRINCIPAL_FIELDS},
        "claims": storable(dict(principal.claims)),
        "expires_at": expires.isoformat() if expires is not None else None,
        "origin": call.channel.origin,
        "acting": call.channel.acting_user,
    }


def _restore_principal(row: Task) -> Principal | None:
    """Return the caller, ``None`` if no longer authorized. Uses the database.

    An access token that expired meanwhile does not end a task if the client can refresh the token.
    A revoked token ends it, and so does an expired one that cannot be refreshed.
    """
    if row.user is None:
        # A caller without a user row cannot be looked up again.
        anonymous = anonymous_principal()
        return anonymous if row.principal == anonymous.key else None
    caller = row.caller
    expires = caller["expires_at"]
    scopes = row.scopes
    principal = Principal(
        key=row.principal,
        user=row.user,
        backend=row.backend,
        scopes=None if scopes is None else frozenset(scopes),
        client_id=row.client_id,
        expires_at=datetime.fromisoformat(expires) if expires else None,
        **{name: caller[name] for name in PRINCIPAL_FIELDS},
    )
    if not row.user.is_active:
        return None
    return refresh_principal(principal)


class _TaskInteraction(Interaction):
    """The answers that a task has from its earlier runs, and the questions that it asks now.

    Between two runs the state is stored in the task's row and is never sent to the client.
    ``state`` is empty before the first question, ``answers`` are by the keys of the interaction.
    """

    def __init__(
        self,
        call: Call,
        tool: Tool,
        arguments: bytes,
        *,
        state: str,
        answers: Mapping[str, Any],
    ) -> None:
        # A valid answer is an object; without one the question is asked again.
        responses = {
            key: msgspec.Raw(encode(answer))
            for key, answer in answers.items()
            if isinstance(answer, dict)
        }
        super().__init__(call, tool, arguments, RetryParams(input_responses=responses))
        self._is_first = False
        if state:
            self._state = msgspec.json.decode(state, type=RequestState)
        else:
            self._state = RequestState(
                subject=state_subject(call, tool, arguments),
                interaction_id=new_interaction(call.principal),
            )
        self._answered = dict(self._state.answered)

    @property
    def requests(self) -> Mapping[str, dict[str, Any]]:
        """The open questions by their keys."""
        return self._requests

    def _sign(self) -> str:
        return ""

    def _handle_malformed(self, question: Question, exc: MalformedAnswer) -> Any:
        # The request that sent the answer was answered already, so only the question is repeated.
        self._count_correction(str(exc))
        return Unanswered(question.to_params())


# Leases of running tasks --------------------------------------------------------------------------

# The thread also writes the status messages, since the tasks' own threads may be inside a
# transaction, and checks which tasks were cancelled.

RENEW_SECONDS = 10
# How often cancellation is checked, and how often at most a status message is written.
CHECK_SECONDS = 1

# Appended to the warning on SQLite, whose other writers wait for a task in a transaction.
SQLITE_LOCKED_HINT = " If a task runs in a transaction, declare its tool with atomic=False."


class LeasedRun(Protocol):
    """A run whose lease is renewed."""

    pk: str
    run: int

    def cancel(self) -> None:
        """Cancel the run; called in the lease thread."""

    def write_message(self) -> None:
        """Write the last status message; called in the lease thread."""


class LeaseRenewer:
    """Renews the leases of the runs of one process."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int], LeasedRun] = {}
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, run: LeasedRun) -> None:
        """Renew the lease of a run from now on."""
        with self._lock:
            self._runs[run.pk, run.run] = run
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mcp-leases", daemon=True)
                self._thread.start()

    def remove(self, run: LeasedRun) -> None:
        """Stop renewing the lease of a run; does nothing if it is not renewed."""
        with self._lock:
            self._runs.pop((run.pk, run.run), None)
            if not self._runs:
                self._changed.set()

    def _run(self) -> None:
        renewed = time.monotonic()
        try:
            while True:
                self._changed.wait(CHECK_SECONDS)
                with self._lock:
                    self._changed.clear()
                    if not self._runs:
                        self._thread = None
                        return
                now = time.monotonic()
                is_due = now - renewed >= RENEW_SECONDS
                if self._check_runs(renew=is_due) and is_due:
                    renewed = now
        finally:
            connections.close_all()

    def _check_runs(self, *, renew: bool) -> bool:
        """Check the runs and renew their leases if due; return whether that succeeded."""
        with self._lock:
            runs = list(self._runs.values())
        try:
            wanted_ids = task_rows.filter_wanted({run.pk: run.run for run in runs})
            for run in runs:
                if run.pk not in wanted_ids or (
                    renew and not task_rows.renew_lease(run.pk, run.run)
                ):
                    self.remove(run)
                    run.cancel()
                else:
                    run.write_message()
        except DatabaseError as exc:
            hint = SQLITE_LOCKED_HINT if "database is locked" in str(exc) else ""
            logger.warning("Leases of tasks could not be renewed (%s); trying again.%s", exc, hint)
            connections.close_all()
            return False
        except Exception:
            # If this thread ended, all tasks of the process would lose their leases.
            logger.exception("The renewal of leases failed; trying again.")
            return False
        return True


lease_renewer = LeaseRenewer()
