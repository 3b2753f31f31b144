"""Down-projection: each shape in each revision."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mcp_django.protocol.envelope import SERVER_INFO, SUBSCRIPTION_ID
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.projection import (
    project_block,
    project_capabilities,
    project_implementation,
    project_notification,
    project_prompt,
    project_resource,
    project_result,
    project_tool,
)
from mcp_django.protocol.revisions import (
    DRAFT_2026_V1,
    HANDSHAKE,
    REVISIONS,
    STATELESS,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
    Revision,
)
from tests.spec import spec

A, B, C, D, E, X = (
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
    DRAFT_2026_V1,
)
IDENTITY = {"name": "shop", "version": "1"}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ICONS = [{"src": "https://shop.example/x.png"}]
META = {"com.example/a": 1}
MOMENT = {"audience": ["user"], "priority": 1, "lastModified": "2025-01-12T15:00:58Z"}
TIMELESS = {"audience": ["user"], "priority": 1}
every_revision = pytest.mark.parametrize(
    "revision", REVISIONS.values(), ids=lambda revision: revision.version
)
handshake = pytest.mark.parametrize("revision", HANDSHAKE, ids=lambda revision: revision.version)


def project(
    method: str, result: dict[str, Any], revision: Revision, **options: Any
) -> dict[str, Any]:
    before = copy.deepcopy(result)
    projected = project_result(method, result, revision, identity=IDENTITY, **options)
    assert result == before, "the given result was changed"
    return projected


# Every result


@spec("RPC-6", "VER-10")
@pytest.mark.parametrize("revision", STATELESS, ids=lambda r: r.version)
def test_a_stateless_result_has_a_type_and_names_the_server(revision):
    assert project("tools/call", {"content": []}, revision) == {
        "resultType": "complete",
        "content": [],
        "_meta": {SERVER_INFO: IDENTITY},
    }


@spec("MET-6", "VER-10")
def test_the_author_s_meta_stays_beside_the_identity():
    result = {"content": [], "_meta": META}
    assert project("tools/call", result, E)["_meta"] == {**META, SERVER_INFO: IDENTITY}
    assert project_result("tools/call", result, E, identity=None)["_meta"] == META
    assert "_meta" not in project_result("tools/call", {"content": []}, E, identity=None)


@spec("RPC-7", "CCH-6", "EXT-4")
@handshake
def test_a_handshake_result_has_nothing_of_the_stateless_ones(revision):
    result = {
        "resultType": "complete",
        "ttlMs": 5,
        "cacheScope": "public",
        "completion": {"values": ["a"]},
        "_meta": META,
    }
    assert project("completion/complete", result, revision) == {
        "completion": {"values": ["a"]},
        "_meta": META,
    }


@spec("RPC-7", "PNG-1")
@handshake
@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
)
def test_empty_handshake_results_are_exactly_empty(method, revision):
    assert project(method, {}, revision) == {}
    assert project(method, {"resultType": "complete", "_meta": META}, revision) == {}


@spec("CCH-1", "CCH-4", "RSC-11")
@pytest.mark.parametrize("method", [m.name for m in REQUESTS.values() if m.cacheable])
def test_cacheable_results_always_have_hints(method):
    hints = {"ttlMs": 0, "cacheScope": "private"}
    assert project(method, {}, E).items() >= hints.items()
    given = {"ttlMs": 60_000, "cacheScope": "public"}
    assert project(method, given, E).items() >= given.items()


@spec("CCH-1", "PRM-6")
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "completion/complete", "own/x"])
def test_other_results_have_no_hints(method):
    assert not {"ttlMs", "cacheScope"} & {*project(method, {}, E)}


@spec("CCH-2", "MRT-11", "EXT-2")
@pytest.mark.parametrize("kind", ["input_required", "task"])
def test_a_result_of_another_type_keeps_it_and_has_no_hints(kind):
    result = {"resultType": kind, "ttlMs": 0, "cacheScope": "private", "requestState": "s"}
    assert project("resources/read", result, E) == {
        "resultType": kind,
        "requestState": "s",
        "_meta": {SERVER_INFO: IDENTITY},
    }


@spec("VER-7", "ALS-2")
def test_only_the_draft_names_the_server_in_the_discover_body():
    result: dict[str, Any] = {"supportedVersions": [], "capabilities": {}}
    assert "serverInfo" not in project("server/discover", result, E)
    assert project("server/discover", result, X)["serverInfo"] == IDENTITY
    assert "serverInfo" not in project("tools/list", {"tools": []}, X)
    assert "serverInfo" not in project_result("server/discover", result, X, identity=None)


@spec("SUB-9", "SUB-12", "ALS-2")
@pytest.mark.parametrize("request_id", [0, 1, "1", ""])
def test_a_subscription_id_keeps_its_type_except_at_the_draft(request_id):
    result = {"_meta": {SUBSCRIPTION_ID: request_id}}
    dated = project("subscriptions/listen", result, E)["_meta"][SUBSCRIPTION_ID]
    draft = project("subscriptions/listen", result, X)["_meta"][SUBSCRIPTION_ID]
    assert (dated, type(dated)) == (request_id, type(request_id))
    assert draft == str(request_id)


# Notifications


@spec("PRG-2")
@every_revision
def test_a_progress_message_exists_from_the_second_revision_on(revision):
    params = {"progressToken": 1, "progress": 0.5, "total": 1, "message": "half"}
    expected = dict(params)
    if revision is A:
        del expected["message"]
    assert project_notification("notifications/progress", params, revision) == expected
    assert "message" in params


@spec("SUB-9", "ALS-2")
def test_a_notification_s_subscription_id_is_text_at_the_draft():
    method = "notifications/tools/list_changed"
    params = {"_meta": {SUBSCRIPTION_ID: 1, **META}}
    assert project_notification(method, params, E) == params
    assert project_notification(method, params, X) == {"_meta": {SUBSCRIPTION_ID: "1", **META}}
    assert project_notification(method, {"_meta": META}, X) == {"_meta": META}
    assert params == {"_meta": {SUBSCRIPTION_ID: 1, **META}}


def test_absent_params_are_the_empty_object():
    assert project_notification("notifications/tools/list_changed", None, D) == {}


@every_revision
def test_a_notification_that_a_revision_lacks_is_none(revision):
    notification = project_notification("notifications/elicitation/complete", {}, revision)
    assert (notification is not None) == (revision in (D, X))
    assert project_notification("notifications/own", {}, revision) is None


# The handshake


@spec("VER-14", "VER-17", "EXT-4", "CMP-1")
@pytest.mark.parametrize(
    ("revision", "info", "capabilities"),
    [
        (A, {"name", "version"}, {"tools", "logging"}),
        (B, {"name", "version"}, {"tools", "logging", "completions"}),
        (C, {"name", "version", "title"}, {"tools", "logging", "completions"}),
        (
            D,
            {"name", "version", "title", "description", "icons", "websiteUrl"},
            {"tools", "logging", "completions"},
        ),
    ],
)
def test_initialize_names_only_what_the_revision_knows(revision, info, capabilities):
    everything = {
        "name": "shop",
        "version": "1",
        "title": "Shop",
        "description": "A shop.",
        "icons": ICONS,
        "websiteUrl": "https://shop.example/",
    }
    flags: dict[str, Any] = {"tools": {}, "logging": {}, "completions": {}, "extensions": {}}
    result = {
        "protocolVersion": revision.version,
        "capabilities": flags,
        "serverInfo": everything,
        "instructions": "Be kind.",
    }
    projected = project("initialize", result, revision)
    assert {*projected["serverInfo"]} == info
    assert {*projected["capabilities"]} == capabilities
    assert projected["instructions"] == "Be kind."
    assert project_implementation(everything, E) == everything
    assert project_capabilities(flags, E) == flags


# Tools

TOOL = {
    "name": "refund",
    "title": "Refund",
    "description": "Refund an order.",
    "inputSchema": {"$schema": DIALECT, "type": "object", "oneOf": []},
    "outputSchema": {"$schema": DIALECT, "type": "object"},
    "annotations": {"readOnlyHint": False},
    "icons": ICONS,
    "_meta": META,
}
PLAIN = {"type": "object", "oneOf": []}


@spec("TOOL-2", "TOOL-16", "UIX-3", "OUT-5", "OUT-6", "MET-6")
@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (A, {"name": "refund", "description": "Refund an order.", "inputSchema": PLAIN}),
        (
            B,
            {
                "name": "refund",
                "description": "Refund an order.",
                "inputSchema": PLAIN,
                "annotations": {"title": "Refund", "readOnlyHint": False},
            },
        ),
        (
            C,
            {
                "name": "refund",
                "title": "Refund",
                "description": "Refund an order.",
                "inputSchema": PLAIN,
                "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": False},
                "_meta": META,
            },
        ),
        (D, TOOL),
        (E, TOOL),
    ],
)
def test_a_tool_has_the_members_of_its_revision(revision, expected):
    assert project("tools/list", {"tools": [TOOL]}, revision)["tools"] == [expected]
    assert project_tool(TOOL, revision) == expected


@spec("UIX-3")
def test_a_title_falls_back_to_the_annotations():
    bare = {"name": "x", "title": "X", "inputSchema": {"type": "object"}}
    assert project_tool(bare, B)["annotations"] == {"title": "X"}
    own = {**bare, "annotations": {"title": "Own"}}
    assert project_tool(own, B)["annotations"] == {"title": "Own"}
    untitled = {"name": "x", "inputSchema": {"type": "object"}}
    assert project_tool(untitled, B) == untitled


@spec("OUT-3", "OUT-5")
@pytest.mark.parametrize("revision", [C, D, E], ids=lambda r: r.version)
def test_an_output_schema_that_is_no_object_is_wrapped_before_the_stateless_revision(revision):
    schema = {"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}}
    tool = {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}
    output_schema = project_tool(tool, revision)["outputSchema"]
    if revision is E:
        assert output_schema == schema
    else:
        assert output_schema["type"] == "object"
        assert output_schema["properties"]["result"]["items"] == {
            "$ref": "#/properties/result/$defs/a"
        }


@spec("OUT-4", "OUT-5")
@pytest.mark.parametrize("value", [None, False, 0, "", [], [1], "x", {"a": 1}])
@every_revision
def test_structured_content_is_left_out_wrapped_or_as_it_is(revision, value):
    result = {"content": [], "structuredContent": value}
    projected = project("tools/call", result, revision)
    if revision in (A, B):
        assert "structuredContent" not in projected
    elif revision in (C, D) and not isinstance(value, dict):
        assert projected["structuredContent"] == {"result": value}
    else:
        assert projected["structuredContent"] == value


@spec("OUT-5")
def test_the_tool_s_schema_decides_about_wrapping_if_it_is_known():
    result = {"content": [], "structuredContent": {"a": 1}}
    optional = {"anyOf": [{"type": "object"}, {"type": "null"}]}
    wrapped = project("tools/call", result, D, output_schema=optional)
    assert wrapped["structuredContent"] == {"result": {"a": 1}}
    plain = project("tools/call", result, D, output_schema={"type": "object"})
    assert plain["structuredContent"] == {"a": 1}


@spec("TOOL-5", "OUT-9")
@every_revision
def test_an_error_result_is_the_same_everywhere(revision):
    result = {"content": [{"type": "text", "text": "No."}], "isError": True}
    assert project("tools/call", result, revision).items() >= result.items()


# Content

LINK = {
    "type": "resource_link",
    "uri": "shop://x",
    "name": "x",
    "title": "X",
    "icons": ICONS,
    "annotations": MOMENT,
    "_meta": META,
}
AUDIO = {
    "type": "audio",
    "data": "AP8=",
    "mimeType": "audio/wav",
    "annotations": MOMENT,
    "_meta": META,
}


@spec("TOOL-14", "PRM-5")
@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (
            A,
            {
                "type": "resource",
                "resource": {"uri": "attachment:audio", "mimeType": "audio/wav", "blob": "AP8="},
                "annotations": TIMELESS,
            },
        ),
        (
            B,
            {
                "type": "audio",
                "data": "AP8=",
                "mimeType": "audio/wav",
                "annotations": TIMELESS,
            },
        ),
        (C, AUDIO),
        (E, AUDIO),
    ],
)
def test_audio_becomes_a_resource_where_it_is_unknown(revision, expected):
    assert project_block(AUDIO, revision) == expected


@spec("TOOL-14", "PRM-5")
@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (A, {"type": "text", "text": "X: shop://x", "annotations": TIMELESS}),
        (B, {"type": "text", "text": "X: shop://x", "annotations": TIMELESS}),
        (C, {key: value for key, value in LINK.items() if key != "icons"}),
        (D, LINK),
        (E, LINK),
    ],
)
def test_a_link_becomes_text_where_it_is_unknown(revision, expected):
    assert project_block(LINK, revision) == expected


@spec("TOOL-14")
def test_a_link_without_title_is_named():
    link = {"type": "resource_link", "uri": "shop://x", "name": "x"}
    assert project_block(link, A) == {"type": "text", "text": "x: shop://x"}


@spec("UIX-4")
@every_revision
def test_annotations_and_meta_are_cut_to_the_revision(revision):
    contents = {"uri": "shop://x", "text": "t", "_meta": META}
    block = {"type": "resource", "resource": contents, "annotations": MOMENT, "_meta": META}
    only = {"type": "text", "text": "t", "annotations": {"lastModified": "2025-01-12"}}
    if revision in (A, B):
        assert project_block(block, revision) == {
            "type": "resource",
            "resource": {"uri": "shop://x", "text": "t"},
            "annotations": TIMELESS,
        }
        assert project_block(only, revision) == {"type": "text", "text": "t"}
    else:
        assert project_block(block, revision) == block
        assert project_block(only, revision) == only


@spec("TOOL-14", "PRM-5")
@handshake
def test_every_block_of_a_result_or_prompt_is_projected(revision):
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "t"}, AUDIO, LINK]
    expected = [project_block(block, revision) for block in blocks]
    assert project("tools/call", {"content": blocks}, revision) == {"content": expected}
    messages = [{"role": "user", "content": block} for block in blocks]
    assert project("prompts/get", {"messages": messages, "description": "d"}, revision) == {
        "messages": [{"role": "user", "content": block} for block in expected],
        "description": "d",
    }


# Resources and prompts

RESOURCE = {
    "uri": "shop://x",
    "name": "x",
    "title": "X",
    "description": "An x.",
    "mimeType": "text/plain",
    "size": 3,
    "icons": ICONS,
    "annotations": MOMENT,
    "_meta": META,
}
OLD_RESOURCE = {
    "uri": "shop://x",
    "name": "x",
    "description": "An x.",
    "mimeType": "text/plain",
    "size": 3,
    "annotations": TIMELESS,
}


@spec("RSC-1", "RSC-7", "UIX-4")
@pytest.mark.parametrize(
    ("revision", "expected"),
    [
        (A, OLD_RESOURCE),
        (B, OLD_RESOURCE),
        (C, {key: value for key, value in RESOURCE.items() if key != "icons"}),
        (D, RESOURCE),
        (E, RESOURCE),
    ],
)
def test_a_resource_has_the_members_of_its_revision(revision, expected):
    assert project_resource(RESOURCE, revision) == expected
    for method, member in (
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ):
        result = {member: [RESOURCE], "nextCursor": "c"}
        projected = project(method, result, revision)
        assert projected[member] == [expected]
        assert projected["nextCursor"] == "c"


@spec("RSC-2", "RSC-5")
@every_revision
def test_contents_have_meta_from_the_third_revision_on(revision):
    contents = {"uri": "shop://x", "mimeType": "text/plain", "text": "", "_meta": META}
    expected = dict(contents)
    if revision in (A, B):
        del expected["_meta"]
    assert project("resources/read", {"contents": [contents]}, revision)["contents"] == [expected]


@spec("PRM-1")
@every_revision
def test_a_prompt_has_the_members_of_its_revision(revision):
    prompt = {
        "name": "p",
        "title": "P",
        "description": "A prompt.",
        "arguments": [{"name": "a", "title": "An a", "required": True}],
        "icons": ICONS,
        "_meta": META,
    }
    expected = dict(prompt)
    if revision in (A, B):
        expected["arguments"] = [{"name": "a", "required": True}]
        del expected["title"], expected["_meta"]
    if revision in (A, B, C):
        del expected["icons"]
    assert project("prompts/list", {"prompts": [prompt]}, revision)["prompts"] == [expected]
    assert project_prompt(prompt, revision) == expected
    assert project_prompt({"name": "p"}, revision) == {"name": "p"}


# Tasks ------------------------------------------------------------------------------------------

TASK = {
    "taskId": "t",
    "status": "completed",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:01Z",
    "ttlMs": 60_000,
    "pollIntervalMs": 2_000,
}
OLDER_TASK = {
    "taskId": "t",
    "status": "completed",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:01Z",
    "ttl": 60_000,
    "pollInterval": 2_000,
}


@spec("TKD-2", "TKE-3")
def test_a_created_task_is_nested_or_flat():
    created = {"resultType": "task", **TASK, "_meta": META}
    assert project("tools/call", created, D) == {"task": OLDER_TASK, "_meta": META}
    newer = project("tools/call", created, E)
    assert newer == {**created, "_meta": {**META, SERVER_INFO: IDENTITY}}


@spec("TKD-4", "TKE-5", "TKE-4")
def test_a_task_has_its_result_within_it_or_not():
    task = {**TASK, "result": {"content": []}}
    assert project("tasks/get", task, D) == OLDER_TASK
    assert project("tasks/list", {"tasks": [task], "nextCursor": "c"}, D) == {
        "tasks": [OLDER_TASK],
        "nextCursor": "c",
    }
    newer = project("tasks/get", task, E)
    assert newer["resultType"] == "complete"
    assert newer["result"] == {"resultType": "complete", "content": []}


@spec("ALS-2", "TKE-5")
def test_the_error_of_a_task_has_the_code_of_its_revision():
    task = {**TASK, "status": "failed", "error": {"code": -32021, "message": "No."}}
    for version, code in ((E, -32021), (X, -32003)):
        error = {"code": code, "message": "No."}
        assert project("tasks/get", task, version)["error"] == error
        notification = project_notification("notifications/tasks", task, version)
        assert notification is not None
        assert notification["error"] == error


@spec("TKD-6", "TKE-6")
def test_a_tool_that_failed_fails_its_task_or_completes_it():
    content = [
        {"type": "image", "data": "", "mimeType": "image/png"},
        {"type": "text", "text": "No."},
    ]
    failed = {**TASK, "result": {"content": content, "isError": True}}
    assert project("tasks/get", failed, D) == {
        **OLDER_TASK,
        "status": "failed",
        "statusMessage": "No.",
    }
    silent = {**TASK, "result": {"isError": True}}
    assert project("tasks/get", silent, D)["statusMessage"] == "The tool reported an error."
    assert project("tasks/get", failed, E)["status"] == "completed"


@spec("TKE-8", "TKE-7", "TKD-4")
def test_what_changes_a_task_is_acknowledged_or_answered_with_it():
    acknowledged = {"resultType": "complete", "_meta": {SERVER_INFO: IDENTITY}}
    assert project("tasks/cancel", TASK, E) == acknowledged
    assert project("tasks/update", TASK, E) == acknowledged
    assert project("tasks/cancel", TASK, D) == OLDER_TASK


@spec("TKE-11", "TKD-8")
def test_a_change_of_a_task_is_told_in_two_ways():
    params = {**TASK, "result": {"content": []}}
    notification = {**TASK, "result": {"resultType": "complete", "content": []}}
    assert project_notification("notifications/tasks", params, E) == notification
    assert project_notification("notifications/tasks", params, D) is None
    assert project_notification("notifications/tasks/status", params, D) == OLDER_TASK
    assert project_notification("notifications/tasks/status", params, E) is None


@spec("TKD-1", "TKE-1")
def test_the_capability_is_of_one_revision():
    capabilities = {"tools": {}, "tasks": {"cancel": {}}}
    assert "tasks" in project_capabilities(capabilities, D)
    assert not any(
        "tasks" in project_capabilities(capabilities, revision) for revision in (A, B, C, E, X)
    )
