"""Discovery, sessions, tasks and access: requests of the protocol itself."""

from __future__ import annotations

from typing import Any

from tests.matrix.callers import CALLERS
from tests.matrix.cases import (
    ALL,
    EVERYBODY,
    HTTP,
    NEW,
    OAUTH,
    OLD,
    STREAMING,
    WITH_STAFF,
    WITH_TASKS,
    Case,
    call,
    read,
)


def _notification(method: str, **params: Any) -> Case:
    return Case(method=method, params=params, is_notification=True)


METHODS = {
    "server/discover": Case(method="server/discover", callers=WITH_STAFF),
    "ping": Case(method="ping"),
    "logging/setLevel": Case(method="logging/setLevel", params={"level": "warning"}),
    "logging/setLevel, unknown level": Case(method="logging/setLevel", params={"level": "loud"}),
    "logging/setLevel, no level": Case(method="logging/setLevel"),
    "unknown method": Case(method="tools/absent"),
    "empty method": Case(method=""),
    "method of the server": Case(method="sampling/createMessage", params={"messages": []}),
    "tasks/update, absent task": Case(method="tasks/update", params={"taskId": "x" * 43}),
    "tasks/list": Case(method="tasks/list"),
    "initialize again": Case(
        method="initialize",
        params={
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "tester", "version": "1"},
        },
    ),
    "listen": Case(
        method="subscriptions/listen",
        params={"notifications": {"toolsListChanged": True}},
        leaves=True,
        mounts=(*HTTP, "stdio"),
    ),
    "listen to nothing": Case(method="subscriptions/listen", mounts=(*HTTP, "stdio")),
    "params is a list": Case(
        raw=b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}',
    ),
    "id is a text": Case(
        raw=b'{"jsonrpc":"2.0","id":"a","method":"ping"}',
    ),
    "notification: initialized": _notification("notifications/initialized"),
    "notification: cancelled": _notification("notifications/cancelled", requestId=99),
    "notification: progress": _notification(
        "notifications/progress", progressToken="a", progress=1
    ),
    "notification: unknown": _notification("notifications/absent"),
    "response that was not asked for": Case(raw=b'{"jsonrpc":"2.0","id":7,"result":{}}'),
    "error that was not asked for": Case(
        raw=b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"a"}}'
    ),
}


# Sessions -----------------------------------------------------------------------------------------


def _initialize(version: Any, **options: Any) -> Case:
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "tester", "version": "1"},
    }
    given: dict[str, Any] = {
        "has_session": False,
        "headers": {"mcp-protocol-version": None},
        "revisions": ("2025-11-25",),
    }
    return Case(method="initialize", params=params, **(given | options))


def _in(session: str | None, method: str = "tools/list", **options: Any) -> Case:
    return Case(method=method, headers={"mcp-session-id": session}, revisions=OLD, **options)


def _without_body(verb: str, **options: Any) -> Case:
    given: dict[str, Any] = {"verb": verb, "mounts": HTTP}
    return Case(**(given | options))


def _in_session_as(authorization: str | None) -> Case:
    """Return a request in the session of a member, with other credentials."""
    return Case(
        method="tools/list",
        callers=("member",),
        revisions=OLD,
        headers={"authorization": authorization},
    )


SESSIONS = {
    **{f"initialize {version}": _initialize(version) for version in (*ALL, "1.0", "")},
    "initialize with a number": _initialize(5),
    "initialize without parameters": Case(
        raw=b'{"jsonrpc":"2.0","id":1,"method":"initialize"}',
        has_session=False,
        headers={"mcp-protocol-version": None},
        revisions=("2025-11-25",),
    ),
    "initialize as everybody": _initialize("2025-06-18", callers=EVERYBODY),
    "initialize of another server": _initialize("2025-06-18", server="guarded", callers=WITH_STAFF),
    "no session id": _in(None),
    "unknown session id": _in("u" * 43),
    "invalid session id": _in("not valid"),
    "initialized without session": Case(
        method="notifications/initialized",
        is_notification=True,
        headers={"mcp-session-id": None},
        revisions=OLD,
    ),
    "ping without session": _in(None, "ping"),
    "session of another server": Case(
        method="tools/list", session_server="bare", revisions=OLD, mounts=HTTP
    ),
    "session of another caller": _in_session_as(CALLERS["staff"].authorization),
    "session of a caller without credentials": _in_session_as(None),
    "DELETE of another caller's session": _without_body(
        "DELETE",
        callers=("member",),
        revisions=OLD,
        headers={"authorization": CALLERS["staff"].authorization},
    ),
    "GET": _without_body("GET", headers={"accept": "text/event-stream"}, leaves=True),
    "GET without session": _without_body(
        "GET", headers={"accept": "text/event-stream"}, has_session=False, leaves=True
    ),
    "GET of documents": _without_body("GET", headers={"accept": "application/json"}),
    "GET from a browser": _without_body(
        "GET",
        has_session=False,
        headers={"accept": "text/html,*/*;q=0.8", "mcp-protocol-version": None},
        revisions=("2026-07-28", "2025-11-25"),
    ),
    "GET with an unknown event id": _without_body(
        "GET", headers={"accept": "text/event-stream", "last-event-id": "a"}, leaves=True
    ),
    "DELETE of an unknown session": _without_body(
        "DELETE", has_session=False, headers={"mcp-session-id": "u" * 43}
    ),
    "DELETE without session": _without_body("DELETE", has_session=False),
    "PUT": _without_body("PUT"),
    "HEAD": _without_body("HEAD"),
    # Last, since it ends the session.
    "DELETE": _without_body("DELETE"),
    "call in an ended session": call("add", a=1, case={"revisions": OLD, "mounts": HTTP}),
}


# Tasks --------------------------------------------------------------------------------------------

AS_TASK: dict[str, Any] = {"as_task": True}


def _task_of(first: dict[str, Any]) -> dict[str, Any]:
    result = first.get("result", {})
    task = result.get("task", result)
    return {"taskId": task.get("taskId", "absent")}


def _with_task(method: str, tool: str, **options: Any) -> Case:
    return Case(
        method=method,
        params=_task_of,
        first=call(tool, case=AS_TASK),
        as_task=True,
        **options,
    )


def _handle_of(first: dict[str, Any]) -> dict[str, Any]:
    content = first.get("result", {}).get("structuredContent") or {}
    return {"name": "get_result", "arguments": {"handle": content.get("handle", "absent")}}


TASKS = {
    "optional": call("job", a=2, case=AS_TASK),
    "optional on the loop": call("job_later", a=2, case=AS_TASK),
    "optional, client without tasks": call("job", a=2),
    "optional on the loop, client without tasks": call("job_later", a=2),
    "optional, invalid arguments": call("job", a="x", case=AS_TASK),
    "required": call("only_job", case=AS_TASK),
    "required, client without tasks": call("only_job"),
    "polled": call("polled", case=AS_TASK),
    "polled, client without tasks": call("polled"),
    "result of a polled one": Case(
        method="tools/call", params=_handle_of, first=call("polled", case={})
    ),
    "result of an absent one": call("get_result", handle="absent"),
    "not a task, asked for as one": call("add", a=1, case=AS_TASK),
    "get": _with_task("tasks/get", "job"),
    "get of a failed one": _with_task("tasks/get", "failing_job"),
    "get of one on the loop": _with_task("tasks/get", "job_later"),
    "get of an absent one": Case(method="tasks/get", params={"taskId": "x" * 43}, as_task=True),
    "result": _with_task("tasks/result", "job", revisions=(*WITH_TASKS, *NEW)),
    "cancel of one that ended": _with_task("tasks/cancel", "job"),
    "update of one that ended": _with_task("tasks/update", "job"),
    "ask before": call(
        "ask_before", case={**AS_TASK, "revisions": NEW, "capabilities": {"elicitation": {}}}
    ),
}


# Access -------------------------------------------------------------------------------------------

ACCESS = {
    "tools/list as everybody": Case(
        method="tools/list", server="", callers=("stranger", "revoked", "invalid", *OAUTH)
    ),
    "call as everybody": call("look", case={"callers": ("stranger", "revoked", "invalid", *OAUTH)}),
    "call with a scope as everybody": call("change", case={"callers": OAUTH}),
    "read as everybody": read("matrix://text", callers=("stranger", "invalid", "oauth-other")),
    "prompt as everybody": Case(
        method="prompts/get", params={"name": "guide"}, callers=("stranger", "revoked")
    ),
    "discover as everybody": Case(
        method="server/discover", callers=("stranger", "revoked", "invalid", *OAUTH)
    ),
    "ping as everybody": Case(method="ping", callers=("stranger", "revoked", *OAUTH)),
    "unknown method as everybody": Case(
        method="absent", callers=("stranger", "invalid", "oauth-other")
    ),
    "guarded server": call("look", case={"server": "guarded", "callers": WITH_STAFF}),
    "guarded server, list": Case(method="tools/list", server="guarded", callers=WITH_STAFF),
    "guarded server, discover": Case(
        method="server/discover", server="guarded", callers=WITH_STAFF
    ),
    "notification as a stranger": Case(
        method="notifications/initialized", is_notification=True, callers=("stranger", "invalid")
    ),
    "not JSON as a stranger": Case(raw=b"{", callers=("stranger", "invalid"), mounts=HTTP),
    "GET as a stranger": _without_body(
        "GET", headers={"accept": "text/event-stream"}, callers=("stranger",), mounts=STREAMING
    ),
    "malformed authorization": call(
        "add", a=1, case={"callers": ("member",), "headers": {"authorization": "Bearer"}}
    ),
    "basic authorization": call(
        "add", a=1, case={"callers": ("member",), "headers": {"authorization": "Basic YTpi"}}
    ),
    "token in the query": call(
        "add", a=1, case={"callers": ("stranger",), "suffix": "?access_token=a", "mounts": HTTP}
    ),
    "token in a form": Case(
        raw=b"access_token=a",
        callers=("stranger",),
        headers={"content-type": "application/x-www-form-urlencoded"},
    ),
}
