"""A message that does not match the published schema is detected, whatever is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.published.definitions import REVISIONS, problem, published, without_excuse

pytest.importorskip("jsonschema_rs")

A, B, C, D, E = REVISIONS
TOOL = {"name": "add", "inputSchema": {"type": "object"}}
CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
TASK = {
    "taskId": "1",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttl": None,
}


def result(value: Any, **changes: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": value, **changes}


def error(code: int, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "No.", **more}}


def rpc(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method, **more}
    return message if params is None else {**message, "params": params}


def content(**block: Any) -> dict[str, Any]:
    return result({"content": [block], "resultType": "complete"})


IMAGE = {"type": "image", "mimeType": "image/png"}
LINK = {"type": "resource_link", "name": "x"}
PROGRESS = {"progressToken": 1, "progress": 1}

RIGHT = [
    *((revision, "ping", result({})) for revision in REVISIONS[:-1]),
    (A, "tools/list", result({"tools": [TOOL]})),
    (E, "tools/list", result({"tools": [TOOL], **CACHED})),
    (A, "tools/call", content(**IMAGE, data="aGk=")),
    (B, "tools/call", content(type="audio", mimeType="audio/wav", data="aGk=")),
    (C, "tools/call", content(**LINK, uri="https://example.com/x")),
    (D, "tools/call", result({"task": TASK})),
    (E, "tools/call", result({"resultType": "task", "taskId": "1"})),
    (E, "tools/call", result({"resultType": "input_required", "requestState": "x"})),
    (D, "tasks/result", content(type="text", text="done")),
    (E, "tasks/get", result({"resultType": "complete", "taskId": "1", "status": "working"})),
    (E, "skills/list", result({"resultType": "complete", "skills": []})),
    (A, None, rpc("notifications/progress", PROGRESS)),
    (E, None, rpc("notifications/tasks", {"taskId": "1"})),
    (A, None, rpc("ping", id="p")),
    (C, None, rpc("elicitation/create", FORM := {"message": "?", "requestedSchema": {
        "type": "object", "properties": {"value": {"type": "string"}}}}, id="q")),
    (A, "nothing", error(-32601)),
    (E, None, {"jsonrpc": "2.0", "error": {"code": -32700, "message": "No."}}),
    (E, "tools/list", error(-32022, data={"supported": [E], "requested": "1"})),
]  # fmt: skip

WRONG = [
    # Every message.
    (A, "ping", [], "a message is an object"),
    (A, "ping", {"jsonrpc": "2.0", "id": 1}, "a message is a request"),
    (A, "ping", {**result({}), **error(1)}, "a message is a request"),
    (A, "ping", result({}, jsonrpc="1.0"), '"2.0" was expected'),
    (E, "ping", {"id": 1, "result": CACHED}, '"jsonrpc" is a required property'),
    (A, "ping", {"jsonrpc": "2.0", "result": {}}, '"id" is a required property'),
    (E, "server/discover", result({}, id=None), "JSONRPCResultResponse: id"),
    (A, "ping", result([]), "Result: the whole"),
    # Results.
    (A, "tools/list", result({"tools": [{"name": "add"}]}), '"inputSchema" is a required'),
    (A, "tools/call", content(type="audio", mimeType="audio/wav", data="aGk="), "content/0"),
    (B, "tools/call", content(**LINK, uri="https://example.com/x"), "content/0"),
    (C, "tools/call", result({"content": [], "structuredContent": [1]}), "structuredContent"),
    (D, "tools/call", content(**IMAGE, data="no base64"), 'is not a "byte"'),
    (E, "tools/call", content(**LINK, uri="no address"), 'is not a "uri"'),
    (D, "tools/call", result({"task": {**TASK, "status": "lost"}}), "CreateTaskResult: task"),
    (D, "tasks/result", result({"content": "done"}), "CallToolResult: content"),
    (E, "tools/list", result({"tools": [], **CACHED, "ttlMs": -1}), "ttlMs"),
    (E, "tools/list", result({"tools": [], "resultType": "complete"}), '"ttlMs" is a required'),
    (E, "tools/call", result({"content": []}), '"resultType" is a required property'),
    (E, "tools/call", result({"content": [], "resultType": "done"}), "no result of the type"),
    (E, "tools/list", result({"resultType": "input_required"}), "no result of the type"),
    (
        E,
        "tools/call",
        result({"resultType": "input_required", "inputRequests": {"a": {"method": "ping"}}}),
        "InputRequiredResult: inputRequests/a",
    ),
    (E, "tasks/get", result({"resultType": "complete", "result": {}}), "CallToolResult"),
    (D, "skills/list", result({}), "'skills/list' has no result"),
    (A, "tasks/get", result(TASK), "'tasks/get' has no result"),
    (E, "ping", result({"resultType": "complete"}), "'ping' has no result"),
    (A, None, result({}), "None has no result"),
    # Errors.
    (A, "ping", error("no"), "error/code"),
    (E, "ping", {"jsonrpc": "2.0", "id": 1, "error": "no"}, "error"),
    (C, None, {"jsonrpc": "2.0", "error": {"code": 1, "message": "No."}}, '"id" is a required'),
    (D, "tools/call", error(-32042, data={}), "URLElicitationRequiredError"),
    (E, "tools/list", error(-32022, data={"supported": [E]}), "UnsupportedProtocolVersionError"),
    # Notifications.
    (A, None, rpc("notifications/progress", {"progress": 1}), "ProgressNotification: params"),
    (A, None, rpc("notifications/nothing"), "no notification 'notifications/nothing'"),
    (A, None, rpc("notifications/initialized"), "no notification"),
    (C, None, rpc("notifications/elicitation/complete", {"elicitationId": "1"}), "no notific"),
    (D, None, rpc("notifications/tasks", {"taskId": "1"}), "no notification"),
    (E, None, rpc("notifications/tasks", {"result": {}}), "CallToolResult"),
    # Requests of the server.
    (B, None, rpc("elicitation/create", FORM, id=1), "no request 'elicitation/create'"),
    (E, None, rpc("elicitation/create", FORM, id=1), "no request 'elicitation/create'"),
    (C, None, rpc("elicitation/create", {"message": "?"}, id=1), '"requestedSchema" is a req'),
    (A, None, rpc("tools/list", id=1), "no request 'tools/list'"),
    (A, None, rpc("ping", id=None), "JSONRPCRequest: id"),
    # Values that cannot be keys of a dictionary.
    (A, None, rpc([]), "JSONRPCNotification: method"),
    (A, None, rpc({}, id=1), "JSONRPCRequest: method"),
    (E, "ping", error([]), "error/code"),
    (E, "tools/call", result({"content": [], "resultType": []}), "no result of the type []"),
]


@pytest.mark.parametrize(("revision", "method", "message"), RIGHT)
def test_what_is_as_published_has_no_problem(revision, method, message):
    assert problem(message, revision, method) is None


@pytest.mark.parametrize(("revision", "method", "message", "reason"), WRONG)
def test_what_is_not_as_published_is_named(revision, method, message, reason):
    text = problem(message, revision, method)
    assert text is not None
    assert f"is no message of {revision}" in text
    assert reason in text


def test_the_alias_is_judged_by_the_revision_that_it_became():
    assert published("DRAFT-2026-v1").revision == E


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_error_without_an_id_is_excused_where_its_schema_asks_for_one(revision):
    absent = {"jsonrpc": "2.0", "error": {"code": 1, "message": "No."}}
    needs_one = problem(absent, revision) is not None
    assert needs_one == (revision in {A, B, C})
    assert problem(without_excuse(absent, revision), revision) is None
    # Nothing else is excused: neither null, nor a result without an id.
    null = {**absent, "id": None}
    assert problem(without_excuse(null, revision), revision) is not None
    for message in (null, {"jsonrpc": "2.0", "result": {}}):
        assert without_excuse(message, revision) is message
