"""`manage.py mcp list`."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from mcp_django import Context, MCPServer
from mcp_django.protocol.jsonrpc import encode
from mcp_django.test import MCPClient
from tests.kit.servers import person
from tests.management.console import fails, run, server_of


def listed(*arguments: str) -> list[dict[str, Any]]:
    servers: list[dict[str, Any]] = json.loads(run("list", *arguments, "--json").out)
    return servers


def names(server: dict[str, Any]) -> list[tuple[str, str]]:
    return [(component["kind"], component["name"]) for component in server["components"]]


def test_every_server_is_listed_the_default_one_first():
    server_names = [server["name"] for server in listed()]
    assert server_names[0] == "default"
    assert {"default", "open", "staff"} <= {*server_names}
    headings = [line for line in run("list").out.splitlines() if line and line[0] != " "]
    assert headings[0] == "default"
    assert "staff: Staff desk" in headings


def test_a_server_is_described_with_all_its_components():
    (server,) = listed("--server", "default")
    assert server["urls"] == ["/mcp"]
    assert server["permission"] == ["IsAuthenticated"]
    assert [kind for kind, _ in names(server)] == sorted(
        [kind for kind, _ in names(server)],
        key=["tool", "resource", "template", "prompt"].index,
    )
    assert ("template", "group") in names(server)
    (add,) = [component for component in server["components"] if component["name"] == "add"]
    tokens = add.pop("estimated_tokens")
    assert tokens > 10
    assert add == {
        "kind": "tool",
        "name": "add",
        "aliases": [],
        "title": "Add two numbers",
        "hints": {"readOnlyHint": True},
        "slow": False,
        "needs": [],
        "permission": [],
        "scopes": [],
        "rate": [],
        "approval": "",
        "enabled": True,
    }
    (group,) = [component for component in server["components"] if component["name"] == "group"]
    assert group["uri"] == "shop://groups/{name}"


def test_the_address_is_whole_where_the_site_knows_its_own(settings):
    settings.MCP_DJANGO = {"BASE_URL": "https://shop.example"}
    (server,) = listed("--server", "staff")
    assert server["urls"] == ["https://shop.example/staff/mcp"]


def test_a_server_without_an_address_says_so():
    server = server_of()
    assert listed("--server", server.name)[0]["urls"] == []
    assert "no URL without arguments in the URLconf" in run("list", "--server", server.name).out


def test_every_component_is_one_aligned_line_with_its_flags():
    server = server_of()

    def asks(ctx: Context) -> str:
        """Ask."""
        return ""

    def plain() -> str:
        """Do it."""
        return ""

    server.tool(title="Removes it", destructive=True, slow=True, needs=["elicitation"])(asks)
    server.tool(read_only=True, permission="auth.view_group", scopes=["a", "b"])(plain)
    server.resource("x://about")(plain)
    lines = run("list", "--server", server.name).out.splitlines()
    assert "  tools (2)" in lines
    assert "  resources (1)" in lines
    sizes = {
        tool["name"]: f"~{tool['estimated_tokens']}"
        for tool in listed("--server", server.name)[0]["components"]
        if tool["kind"] == "tool"
    }
    assert any(re.fullmatch(r"    x://about  ~\d+", line) for line in lines)
    (asking,) = [line for line in lines if line.startswith("    asks")]
    (quiet,) = [line for line in lines if line.startswith("    plain")]
    assert asking == (
        f"    asks   {sizes['asks']}  Removes it  destructive, slow, needs elicitation"
    )
    assert quiet == (
        f"    plain  {sizes['plain']}{' ' * 14}read-only, permission auth.view_group, scopes a b"
    )


def test_limits_and_approvals_are_among_the_flags():
    server = server_of()

    @server.tool(destructive=True, rate=["10/m", "all: 5/h"], approval="staff")
    def write_off() -> str:
        """Write an invoice off."""
        return ""

    lines = run("list", "--server", server.name).out
    assert "destructive, rate 10/m, all: 5/h, approval staff" in " ".join(lines.split())
    (listed_tool,) = listed("--server", server.name)[0]["components"]
    assert (listed_tool["rate"], listed_tool["approval"]) == (["10/m", "all: 5/h"], "staff")


def test_lines_fit_eighty_columns_and_names_stay_whole():
    server = server_of()

    @server.tool(name="a_rather_long_name_for_a_tool", title="word " * 30, permission="auth.view_x")
    def tool() -> str:
        """Do it."""
        return ""

    lines = run("list", "--server", server.name).out.splitlines()
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if "a_rather_long_name_for_a_tool" in line]
    assert "…" in line
    assert line.endswith("permission auth.view_x")


@pytest.mark.django_db
def test_a_user_is_shown_what_the_user_may_see():
    ada, bob = person(), person("bob", is_staff=True)
    for user in (ada, bob):
        (server,) = listed("--server", "default", "--user", user.get_username())
        client = MCPClient(user=user)
        assert server["admitted"] is True
        assert [name for kind, name in names(server) if kind == "tool"] == [
            tool["name"] for tool in client.list_tools()
        ]
        assert [name for kind, name in names(server) if kind == "prompt"] == [
            prompt["name"] for prompt in client.list_prompts()
        ]
    assert ("tool", "secret_tool") in names(listed("--server", "default", "--user", "bob")[0])


@pytest.mark.django_db
def test_a_server_that_refuses_the_user_shows_nothing():
    person()
    (server,) = listed("--server", "staff", "--user", "ada")
    assert (server["admitted"], server["components"]) == (False, [])
    assert "ada may not use this server." in run("list", "--server", "staff", "--user", "ada").out


@pytest.mark.parametrize(
    ("kind", "name"),
    [("tools", "tool"), ("resources", "resource"), ("templates", "template"), ("prompt", "prompt")],
)
def test_one_kind_alone(kind, name):
    (server,) = listed("--server", "default", "--kind", kind)
    assert {kind for kind, _ in names(server)} == {name}


def test_the_size_is_an_estimate_of_what_a_client_loads():
    server = server_of(instructions="Be kind.")

    @server.tool
    def tool() -> str:
        """Do it."""
        return ""

    (listed_tool,) = MCPClient(server=server).list_tools()
    of_tool = math.ceil(len(encode(listed_tool)) / 4)
    (described,) = listed("--server", server.name)
    assert described["components"][0]["estimated_tokens"] == of_tool
    total = of_tool + math.ceil(len(encode("Be kind.")) / 4)
    assert described["estimated_tokens"] == total
    text = run("list", "--server", server.name).out
    assert f"about {total} tokens (estimate: UTF-8 bytes / 4)" in text


def test_a_mistake_is_named_with_what_is_near():
    assert "No server named 'stuff'. Did you mean staff?" in fails("list", "--server", "stuff")
    assert "use tools, resources, templates, prompts" in fails("list", "--kind", "tol")
    assert "unrecognized arguments: a=1" in fails("list", "a=1")


@pytest.mark.django_db
def test_a_user_who_does_not_exist_is_named_with_who_does():
    person("adelaide")
    person("gone", is_active=False)
    assert fails("list", "--user", "adelade") == ("No user named 'adelade'. Did you mean adelaide?")
    assert "'gone' is inactive" in fails("list", "--user", "gone")


def test_a_title_that_is_lazy_or_has_lines_stays_on_its_line():
    server: MCPServer = server_of(title="Several\nlines")

    @server.tool(title="Two\nlines")
    def tool() -> str:
        """Do it."""
        return ""

    lines = run("list", "--server", server.name).out.splitlines()
    assert any(re.fullmatch(r"    tool  ~\d+  Two lines", line) for line in lines)
