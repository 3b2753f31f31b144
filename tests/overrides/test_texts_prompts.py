"""Written prompts of a server: fetched, completed, overridden, and harmless to other components."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, PromptText
from mcp_django.overrides.state import override_version, publish_change
from mcp_django.overrides.text_versions import (
    MAX_COMPARED_LINES,
    PROMPTS,
    VersionConflict,
)
from mcp_django.storage.cleanup import delete_tenant
from mcp_django.tenants import as_tenant
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import person

# Other processes are notified after the commit.
pytestmark = pytest.mark.django_db(transaction=True)

ARGUMENTS = [
    {"name": "from", "description": "Who writes", "required": True, "choices": []},
    {"name": "tone", "description": "How", "required": False, "choices": ["warm", "cool", "Wry"]},
]
TEXT = 'Write as {{ from }}{% if tone == "warm" %}, warmly{% endif %}.\n--- assistant\nTo whom?'


@pytest.fixture
def server():
    """Return a server of its own, with one prompt in code."""
    server = MCPServer("prompts", permission=AllowAny)

    @server.prompt
    def in_code() -> str:
        """Say what code says."""
        return "code"

    return server


def saved(**values: Any) -> PromptText:
    """Save a row as the admin does, and return it."""
    row = PromptText(
        **{"server": "prompts", "name": "letter", "arguments": ARGUMENTS, "text": TEXT, **values}
    )
    PROMPTS.save(row, author=None, based_on=0)
    return row


def names(client: MCPClient) -> list[str]:
    return [prompt["name"] for prompt in client.list_prompts()]


def test_a_written_prompt_is_listed_got_and_completed(server):
    client = MCPClient(server=server)
    assert names(client) == ["in_code"]
    saved(title="Letter", description="Write a letter.")
    assert client.list_prompts()[1] == {
        "name": "letter",
        "title": "Letter",
        "description": "Write a letter.",
        "arguments": [
            {"name": "from", "required": True, "description": "Who writes"},
            {"name": "tone", "required": False, "description": "How One of: warm, cool, Wry."},
        ],
    }
    user, assistant = client.get_prompt("letter", {"from": "Ada", "tone": "warm"})
    assert user == {"role": "user", "content": {"type": "text", "text": "Write as Ada, warmly."}}
    assert assistant["role"] == "assistant"
    assert client.complete("letter", "tone", "w") == ["warm", "Wry"]
    assert client.complete("letter", "tone", "o") == ["cool"]
    assert client.complete("letter", "from", "A") == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "from: is required"),
        ({"from": ""}, "from: is required"),
        ({"from": "a", "tone": "hot"}, 'tone: must be one of "warm", "cool", "Wry" (got "hot")'),
        ({"from": "a" * 100_001}, "from: must have at most 100000 characters"),
    ],
)
def test_wrong_arguments_are_named(server, arguments, text):
    saved()
    with pytest.raises(ErrorResponse) as caught:
        MCPClient(server=server).get_prompt("letter", arguments)
    assert caught.value.message == text
    assert caught.value.code == -32602


def test_an_empty_choice_is_one_that_was_left_out(server):
    saved()
    user, _assistant = MCPClient(server=server).get_prompt("letter", {"from": "Ada", "tone": ""})
    assert user["content"]["text"] == "Write as Ada."


def test_code_has_its_own_prompt_whatever_is_written(server):
    saved(name="in_code", text="mine {{ from }}")
    client = MCPClient(server=server)
    assert names(client) == ["in_code"]
    assert client.get_prompt("in_code")[0]["content"]["text"] == "code"


def test_another_server_has_none_of_it(server):
    saved(server="elsewhere")
    assert names(MCPClient(server=server)) == ["in_code"]


@pytest.mark.parametrize(
    "values",
    [
        {"text": "{{ nobody }}"},
        {"text": ""},
        {"text": "{% debug %}"},
        {"name": "no name"},
        {"arguments": {"a": 1}},
        {"arguments": ["a"]},
        {"arguments": [{"name": "and"}]},
        {"arguments": [{"name": "x", "choices": [1]}], "text": "a"},
        {"arguments": [{"name": "x", "choices": "abc"}], "text": "a"},
        {"arguments": [{"name": "x"}, {"name": "x"}], "text": "a"},
        {"arguments": [{"name": f"x{n}"} for n in range(31)], "text": "a"},
        {"arguments": [{"name": "x", "description": "\ud800"}], "text": "a"},
        {"arguments": [{"name": "x", "choices": ["\udfff"]}], "text": "a"},
        {"groups": None},
        {"groups": "Editors"},
        {"permissions": {"a": 1}},
        {"permissions": ["no codename"]},
        {"scopes": ["no scope"]},
        {"scopes": [1]},
    ],
)
def test_a_row_that_cannot_be_offered_is_left_out_and_nothing_else(server, values, caplog):
    good = saved(name="good")
    # The row is written without the checks of the admin.
    bad = PromptText(**{"server": "prompts", "name": "bad", "text": TEXT, **values})
    if values.get("groups", []) is None:
        bad.groups = 7
    bad.arguments = bad.arguments or ARGUMENTS
    bad.save()
    publish_change([("prompts", "prompts")])
    assert names(MCPClient(server=server)) == [good.name, "in_code"]


def test_groups_permissions_and_scopes_hide_it(server):
    saved(groups=["Editors"], permissions=["auth.view_group"])
    ada = person()
    assert names(MCPClient(server=server, user=ada)) == ["in_code"]
    ada.groups.add(Group.objects.create(name="Editors"))
    ada.user_permissions.add(Permission.objects.get(codename="view_group"))
    ada = type(ada).objects.get(pk=ada.pk)
    assert names(MCPClient(server=server, user=ada)) == ["in_code", "letter"]


def test_what_the_admin_says_of_components_narrows_a_written_prompt_too(server):
    saved()
    row = Component.objects.create(
        server="prompts", kind="prompt", key="letter", name="letter", title="Brief"
    )
    publish_change([("prompts", "prompts")])
    client = MCPClient(server=server)
    assert [prompt.get("title") for prompt in client.list_prompts()] == [None, "Brief"]
    row.is_enabled = False
    row.save()
    publish_change([("prompts", "prompts")])
    assert names(client) == ["in_code"]
    with pytest.raises(ErrorResponse, match="No prompt named"):
        client.get_prompt("letter", {"from": "a"})


def test_a_prompt_that_is_switched_off_or_gone_is_unknown(server):
    row = saved()
    client = MCPClient(server=server)
    assert "letter" in names(client)
    row.is_enabled = False
    PROMPTS.save(row, author=None, based_on=row.version)
    assert "letter" not in names(client)


# Versions -------------------------------------------------------------------------------------


def test_a_version_is_written_when_a_prompt_says_something_new():
    ada = person()
    row = saved()
    assert PROMPTS.save(row, author=ada, based_on=1) is False
    row.groups = ["Editors"]
    assert PROMPTS.save(row, author=ada, based_on=1) is False
    row.text = "New {{ from }}."
    assert PROMPTS.save(row, author=ada, based_on=1) is True
    versions = [
        (version.number, version.author, version.content["text"]) for version in row.versions.all()
    ]
    assert versions == [(2, ada, "New {{ from }}."), (1, None, TEXT)]


def test_whoever_has_an_older_version_before_him_overwrites_nothing():
    row = saved()
    other = PromptText.objects.get()
    row.text = "Mine."
    PROMPTS.save(row, author=None, based_on=1)
    other.text = "Theirs."
    with pytest.raises(VersionConflict) as caught:
        PROMPTS.save(other, author=None, based_on=1)
    assert caught.value.version == 2
    assert PromptText.objects.get().text == "Mine."


def test_a_version_that_is_restored_becomes_a_new_one_and_loosens_nothing():
    row = saved(title="Old")
    row.text, row.title, row.groups, row.is_enabled = "New.", "New", ["Editors"], False
    PROMPTS.save(row, author=None, based_on=1)
    PROMPTS.restore(row, row.versions.get(number=1), author=None, based_on=2)
    row.refresh_from_db()
    assert (row.text, row.title, row.version) == (TEXT, "Old", 3)
    assert (row.groups, row.is_enabled) == (["Editors"], False)


def test_differences_name_what_went_and_what_came():
    before = {"title": "A", "arguments": ARGUMENTS, "text": "one\ntwo"}
    after = {"title": "A", "arguments": [], "text": "one\nthree"}
    lines = [(line.kind, line.text) for line in PROMPTS.differences(before, after)]
    assert ("same", "one") in lines
    assert ("removed", "two") in lines
    assert ("added", "three") in lines
    assert ("removed", "Argument: from, required Who writes") in lines
    assert all(line.kind == "same" for line in PROMPTS.differences(before, before))


def test_texts_that_are_too_long_to_compare_stand_below_each_other():
    long = {"text": "\n".join("ab" * MAX_COMPARED_LINES)}
    kinds = {line.kind for line in PROMPTS.differences(long, {"text": "a"})}
    assert kinds == {"removed", "added"}


def test_a_prompt_is_one_of_the_tenant(server, settings):
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext"}
    clients = {}
    for tenant in ("alpha", "beta"):
        with as_tenant(tenant):
            saved(text=f"Hello from {tenant}, {{{{ from }}}}{{{{ tone }}}}.")
            clients[tenant] = MCPClient(server=server)
    for tenant, client in clients.items():
        with as_tenant(tenant):
            [message] = client.get_prompt("letter", {"from": "Ada"})
            assert f"from {tenant}" in message["content"]["text"]
    with as_tenant("gamma"):
        assert names(MCPClient(server=server)) == ["in_code"]
    # A later tenant of the same name gets none of its rows, in a process that knew them.
    delete_tenant("alpha")
    override_version.expire()
    with as_tenant("alpha"):
        assert names(clients["alpha"]) == ["in_code"]
    with as_tenant("beta"):
        assert names(clients["beta"]) == ["in_code", "letter"]


def test_what_was_dropped_of_a_tenant_is_loaded_before_it_counts(server, settings):
    """A process may drop the overrides of tenants, for example if there are more than it caches."""
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext"}
    with as_tenant("alpha"):
        saved()
        server._overrides_of.cache_clear()
        assert set(server.catalog.prompts) == {"in_code", "letter"}
        server._overrides_of.cache_clear()
        assert set(server.declared_catalog.prompts) == {"in_code", "letter"}
