"""Which method exists at which revision."""

from __future__ import annotations

import pytest

from mcp_django.protocol.methods import (
    CLIENT_NOTIFICATIONS,
    REQUESTS,
    REQUESTS_AT,
    SERVER_NOTIFICATIONS,
    SERVER_REQUESTS,
    Method,
)
from mcp_django.protocol.revisions import HANDSHAKE, REVISIONS, STATELESS, V2025_11_25, Revision
from tests.spec import spec

EVERYWHERE = (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
)
HANDSHAKE_ONLY = (
    "initialize",
    "ping",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
)
SKILLS = ("skills/list", "skills/get", "resources/directory/read")
TASKS = tuple(f"tasks/{verb}" for verb in ("get", "update", "cancel", "result", "list"))
MODERN_ONLY = ("server/discover", "subscriptions/listen", *SKILLS)


def lookup(method: str, revision: Revision) -> Method | None:
    """Return the method as a revision defines it."""
    return REQUESTS_AT[revision.version].get(method)


@pytest.mark.parametrize("revision", REVISIONS.values(), ids=lambda r: r.version)
@pytest.mark.parametrize("method", EVERYWHERE)
def test_the_core_methods_exist_in_every_revision(method, revision):
    definition = lookup(method, revision)
    assert definition is not None
    assert definition.name == method


@spec("PNG-3", "LOG-6", "RPC-10")
@pytest.mark.parametrize("method", HANDSHAKE_ONLY)
def test_methods_of_the_handshake_are_unknown_to_stateless_revisions(method):
    assert all(lookup(method, revision) for revision in HANDSHAKE)
    assert not any(lookup(method, revision) for revision in STATELESS)


@pytest.mark.parametrize("method", MODERN_ONLY)
def test_stateless_methods_are_unknown_to_the_handshake(method):
    assert all(lookup(method, revision) for revision in STATELESS)
    assert not any(lookup(method, revision) for revision in HANDSHAKE)


def test_the_groups_are_all_there_is():
    assert {*REQUESTS} == {*EVERYWHERE, *HANDSHAKE_ONLY, *MODERN_ONLY, *TASKS}


@spec("RPC-10", "HDR-3")
@pytest.mark.parametrize("method", ["TOOLS/LIST", "tools/list ", "", "x" * 10_000, "tasks/lists"])
def test_an_unknown_method_is_absent(method):
    assert not any(lookup(method, revision) for revision in REVISIONS.values())


@spec("HDR-4", "TKE-15")
def test_some_methods_repeat_a_member_in_a_header():
    mirrored = {m.name: m.name_member for m in REQUESTS.values() if m.name_member}
    assert mirrored == {
        "tools/call": "name",
        "prompts/get": "name",
        "resources/read": "uri",
        "tasks/get": "taskId",
        "tasks/update": "taskId",
        "tasks/cancel": "taskId",
    }


@spec("TKD-4", "TKE-9")
def test_tasks_have_methods_of_their_own_in_two_revisions():
    verbs_by_version = {
        version: {name.removeprefix("tasks/") for name in REQUESTS if lookup(name, revision)}
        & {"get", "update", "cancel", "result", "list"}
        for version, revision in REVISIONS.items()
    }
    older, newer = {"get", "cancel", "result", "list"}, {"get", "update", "cancel"}
    expected = {"2025-11-25": older, "2026-07-28": newer, "DRAFT-2026-v1": newer}
    assert verbs_by_version == {version: expected.get(version, set()) for version in REVISIONS}


@spec("CCH-1", "PRM-6")
def test_eight_methods_are_cacheable():
    assert {m.name for m in REQUESTS.values() if m.cacheable} == {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "skills/list",
        "skills/get",
    }


@spec("MRT-1")
def test_three_methods_may_ask_the_user():
    asking = {m.name for m in REQUESTS.values() if m.may_request_input}
    assert asking == {"tools/call", "resources/read", "prompts/get"}


@spec("PAG-1")
def test_which_methods_are_lists():
    assert {m.name for m in REQUESTS.values() if m.is_list} == {
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/directory/read",
        "skills/list",
        "tasks/list",
    }


def test_methods_belong_to_the_capability_they_are_named_after():
    owners = {m.name: m.capability for m in REQUESTS.values() if m.capability}
    assert owners == {
        "tools/list": "tools",
        "tools/call": "tools",
        "resources/list": "resources",
        "resources/templates/list": "resources",
        "resources/read": "resources",
        **dict.fromkeys(SKILLS, "resources"),
        "resources/subscribe": "resources",
        "resources/unsubscribe": "resources",
        "prompts/list": "prompts",
        "prompts/get": "prompts",
        "completion/complete": "completions",
        "logging/setLevel": "logging",
    }


@spec("IO-3", "HTTP-27")
def test_a_stateless_revision_has_no_requests_from_the_server():
    modern = {revision.version for revision in STATELESS}
    assert not any(modern & versions for versions in SERVER_REQUESTS.values())


@pytest.mark.parametrize(
    ("table", "method", "versions"),
    [
        (
            CLIENT_NOTIFICATIONS,
            "notifications/progress",
            {*(r.version for r in HANDSHAKE), "DRAFT-2026-v1"},
        ),
        (
            SERVER_NOTIFICATIONS,
            "notifications/elicitation/complete",
            {V2025_11_25.version, "DRAFT-2026-v1"},
        ),
        (SERVER_REQUESTS, "elicitation/create", {"2025-06-18", "2025-11-25"}),
        (
            SERVER_NOTIFICATIONS,
            "notifications/subscriptions/acknowledged",
            {"2026-07-28", "DRAFT-2026-v1"},
        ),
    ],
)
def test_a_notification_or_server_request_exists_where_it_is_defined(table, method, versions):
    assert table[method] == versions
