"""``MCPClient``: the test client, which supports every revision and runs in this process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from asgiref.sync import sync_to_async

from mcp_django.exceptions import MCPError, MethodNotFound
from mcp_django.execution.call import Call
from mcp_django.protocol import envelope, sse
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.testing.answers import (
    CallResult,
    ErrorResponse,
    NotificationRecorder,
    build_answers,
    raise_for_error,
)
from mcp_django.testing.connection import RemoteClient
from mcp_django.testing.rounds import Rounds, result_of
from mcp_django.transports.memory import with_tasks
from mcp_django.transports.subscriptions import acquire_listen_slot, subscription_events

# Over other transports a task runs in its own thread; in memory it has run before the first poll.
TIMEOUT_SECONDS = 10
POLL_SECONDS = 0.02
TERMINAL_STATUSES = ("completed", "failed", "cancelled")


class _TaskMethods(Rounds):
    """Methods for tasks, for both revisions that have them."""

    def get_task(self, task_id: str) -> dict[str, Any]:
        """Return the current state of a task, in the format of the revision."""
        return self.request("tasks/get", {"taskId": task_id})

    def cancel_task(self, task_id: str) -> dict[str, Any]:
        """Cancel a task."""
        return self.request("tasks/cancel", {"taskId": task_id})

    def task_result(
        self, task: CallResult | str, *, answers: Sequence[Any] = (), check: bool = True
    ) -> CallResult:
        """Send the ``answers`` to a task, wait for it and return the result of its call.

        If the task asks more questions than there are answers, the result has ``questions``.

        Raises:
            ToolFailed: the tool returned an error; with ``check=False`` it is returned instead.
            MCPError: the task failed or was cancelled.
            TimeoutError: the task did not finish in time.
        """
        task_id = task if isinstance(task, str) else task.task_id
        with self._answering(answers):
            if self._client.revision.tasks:
                raw = self.request("tasks/result", {"taskId": task_id})
            else:
                raw = self._poll_task(task_id)
        result = CallResult(raw=raw)
        return raise_for_error(f"The tool of task {task_id}", result) if check else result

    async def atask_result(
        self, task: CallResult | str, *, answers: Sequence[Any] = (), check: bool = True
    ) -> CallResult:
        """Get the result of a task; ``task_result`` for async tests."""
        return await sync_to_async(self.task_result)(task, answers=answers, check=check)

    def _poll_task(self, task_id: str) -> dict[str, Any]:
        until = time.monotonic() + TIMEOUT_SECONDS
        while (task := self.get_task(task_id))["status"] not in TERMINAL_STATUSES:
            if task["status"] == "input_required":
                if not self._left:
                    return {"resultType": "input_required", **task}
                responses = build_answers(task["inputRequests"], self._left)
                del self._left[: len(responses)]
                self.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
            elif time.monotonic() > until:
                raise TimeoutError(f"The task did not finish within {TIMEOUT_SECONDS} seconds.")
            else:
                time.sleep(POLL_SECONDS)
        if "error" in task:
            raise ErrorResponse(task["error"])
        if "result" not in task:
            message = task.get("statusMessage") or f"The task was {task['status']}."
            raise ErrorResponse({"code": INTERNAL_ERROR, "message": message})
        result: dict[str, Any] = task["result"]
        return result


Arguments: TypeAlias = Mapping[str, Any] | None


class MCPClient(_TaskMethods):
    """A test client for one server, as one user.

    ``scopes`` are the scopes of the credential (``None``: unrestricted). ``capabilities`` are
    those that the client declares (default: all). An unexpected exception in a component is
    raised in the test, as Django's test client does; with ``raise_exceptions=False`` it becomes
    the generic error that a real client gets. Methods that run functions of the site have an
    async variant with the prefix ``a``; for others, async tests use ``arequest``.

    ``protocol_version`` is the revision to use; a session of a handshake revision is initialized
    at the first request. ``answers`` are the user's answers in the order of the questions, for
    every call or, as an argument of a call, only for that one: a dictionary or value for a form,
    ``ACCEPT``, ``DECLINE`` or ``CANCEL``, text for sampling, URIs for roots.

    ``transport`` is ``memory`` (no transport), ``http``, ``stdio`` or ``sse`` (only 2024-11-05);
    all run in this process. All except ``memory`` run functions in their own threads and keep
    resources open: use ``with MCPClient(...) as client``, or call ``close``.

    Raises:
        ToolFailed: a tool returned an error and the call did not have ``check=False``.
        ValueError: the revision or transport is unknown, or they cannot be combined.
        MCPError: the server returned a JSON-RPC error (``.code``, ``.message``, ``.data``).
        AccessRefused: the caller is not authorized, has to authenticate or lacks a scope.
        AssertionError: answers are missing or left over, or a component wrote to the database
            before it asked (``allow_early_writes=True`` permits that).
    """

    def discover(self) -> dict[str, Any]:
        """Return the result of ``server/discover``."""
        return self.request("server/discover")

    def list_tools(self) -> list[dict[str, Any]]:
        """Return all tools that the user may see, from all pages."""
        return self._all("tools/list", "tools")

    def list_resources(self) -> list[dict[str, Any]]:
        """Return all resources that the user may see, from all pages.

        It includes the resources that templates list.
        """
        return self._all("resources/list", "resources")

    def list_resource_templates(self) -> list[dict[str, Any]]:
        """Return all resource templates that the user may see, from all pages."""
        return self._all("resources/templates/list", "resourceTemplates")

    def list_prompts(self) -> list[dict[str, Any]]:
        """Return all prompts that the user may see, from all pages."""
        return self._all("prompts/list", "prompts")

    def list_skills(self) -> list[dict[str, Any]]:
        """Return the entries of all skills that the user may see, from all pages."""
        return self._all("skills/list", "skills")

    def _all(self, method: str, member: str) -> list[dict[str, Any]]:
        try:
            page = self.request(method)
        except MCPError as exc:
            # A server without such components does not have the method.
            if exc.code != MethodNotFound.code:
                raise
            return []
        components = list(page[member])
        while "nextCursor" in page:
            page = self.request(method, {"cursor": page["nextCursor"]})
            components.extend(page[member])
        return components

    def call_tool(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        answers: Sequence[Any] = (),
        as_task: bool = False,
        check: bool = True,
    ) -> CallResult:
        """Call a tool; with ``check=False`` a failure is returned as a result with ``is_error``.

        If the tool asks more questions than there are ``answers``, the result has ``questions``.
        With ``as_task`` the client supports tasks: a call that runs as one returns a ``task_id``,
        for ``task_result``. In memory, the task has then run as far as it can without an answer.

        Raises:
            ToolFailed: the tool returned an error, or the arguments are invalid.
        """
        params = self._calling(name, arguments, as_task=as_task)
        result = self._call_result(self.answer("tools/call", params, answers))
        return raise_for_error(f"The tool {name!r}", result) if check else result

    async def acall_tool(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        answers: Sequence[Any] = (),
        as_task: bool = False,
        check: bool = True,
    ) -> CallResult:
        """Call a tool; ``call_tool`` for async tests."""
        params = self._calling(name, arguments, as_task=as_task)
        result = self._call_result(await self.aanswer("tools/call", params, answers))
        return raise_for_error(f"The tool {name!r}", result) if check else result

    def _calling(self, name: str, arguments: Arguments, *, as_task: bool) -> dict[str, Any]:
        params = _named(name, arguments)
        if not as_task:
            return params
        if self._client.revision.tasks:
            return {**params, "task": {}}
        declared = {envelope.CLIENT_CAPABILITIES: with_tasks(self._capabilities)}
        return {**params, "_meta": declared}

    def _call_result(self, raw: dict[str, Any]) -> CallResult:
        recorder, self._recorder = self._recorder, NotificationRecorder()
        return CallResult(
            raw=raw,
            progress=recorder.params("notifications/progress", "progress", "total", "message"),
            logs=recorder.params("notifications/message", "level", "data", "logger"),
        )

    def read_resource(self, uri: str, *, answers: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Read a resource and return its contents."""
        return list(
            _check_complete(self.answer("resources/read", {"uri": uri}, answers))["contents"]
        )

    async def aread_resource(
        self, uri: str, *, answers: Sequence[Any] = ()
    ) -> list[dict[str, Any]]:
        """Read a resource; ``read_resource`` for async tests."""
        result = await self.aanswer("resources/read", {"uri": uri}, answers)
        return list(_check_complete(result)["contents"])

    def get_prompt(
        self, name: str, arguments: Arguments = None, *, answers: Sequence[Any] = ()
    ) -> list[dict[str, Any]]:
        """Get a prompt and return its messages."""
        result = self.answer("prompts/get", _named(name, arguments), answers)
        return list(_check_complete(result)["messages"])

    async def aget_prompt(
        self, name: str, arguments: Arguments = None, *, answers: Sequence[Any] = ()
    ) -> list[dict[str, Any]]:
        """Get a prompt; ``get_prompt`` for async tests."""
        result = await self.aanswer("prompts/get", _named(name, arguments), answers)
        return list(_check_complete(result)["messages"])

    def complete(
        self, ref: str, argument: str, value: str, *, context: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return completions for an argument of a prompt (by name) or a template (by URI)."""
        params = _completing(ref, argument, value, context)
        return list(self.request("completion/complete", params)["completion"]["values"])

    async def acomplete(
        self, ref: str, argument: str, value: str, *, context: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return completions for an argument; ``complete`` for async tests."""
        params = _completing(ref, argument, value, context)
        result = await self.arequest("completion/complete", params)
        return list(result["completion"]["values"])

    @asynccontextmanager
    async def listen(
        self, *, uris: Sequence[str] = (), lists: Sequence[str] = (), tasks: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Subscribe to changes; yield an iterator of notifications, the acknowledgement first.

        ``uris`` are resources, ``lists`` names kinds (``tools``, ``resources``, ``prompts``) and
        ``tasks`` are task ids.
        """
        subscriptions: dict[str, Any] = {f"{kind}ListChanged": True for kind in lists}
        params: dict[str, Any] = {"notifications": subscriptions}
        if uris:
            subscriptions["resourceSubscriptions"] = list(uris)
        if tasks:
            subscriptions["taskIds"] = list(tasks)
            params["_meta"] = {envelope.CLIENT_CAPABILITIES: with_tasks(self._capabilities)}
        client = self._client
        message = client.message("subscriptions/listen", params)
        if isinstance(client, RemoteClient):
            await sync_to_async(client.initialize)()
            async with client.listen(message) as messages:
                yield messages
            return
        opened = await sync_to_async(client.open)(message)
        if not isinstance(opened, Call):
            result_of(opened)
            raise TypeError("The server answered subscriptions/listen without a stream.")
        place = acquire_listen_slot(opened)
        stream = subscription_events(opened, place)
        try:
            yield _messages(stream)
        finally:
            await stream.aclose()


async def _messages(stream: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    decoder = sse.EventDecoder()
    async for part in stream:
        for event in decoder.feed(part):
            yield msgspec.json.decode(event.data)


def _named(name: str, arguments: Arguments) -> dict[str, Any]:
    return {"name": name, "arguments": dict(arguments or {})}


def _completing(
    ref: str, argument: str, value: str, context: Mapping[str, str] | None
) -> dict[str, Any]:
    reference = (
        {"type": "ref/resource", "uri": ref}
        if "://" in ref
        else {"type": "ref/prompt", "name": ref}
    )
    chosen = {"context": {"arguments": dict(context)}} if context else {}
    return {"ref": reference, "argument": {"name": argument, "value": value}, **chosen}


def _check_complete(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result; raise ``AssertionError`` if it has unanswered client requests."""
    build_answers(result.get("inputRequests", {}), ())
    return result
