"""The client for tests of a site: what it sends, what it returns, and its fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, Permission
from django.test import TestCase

from mcp_django import Context, MCPError, MCPServer, ToolError, mcp
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.test import CallResult, MCPClient, ToolFailed
from tests.kit.servers import open_to_all, person
from tests.sites.example.mcp import open_server


@pytest.fixture
def mcp_client():
    from mcp_django.pytest_plugin import mcp_client as plugin

    make: Callable[..., MCPClient] = plugin.__wrapped__()
    return make


def test_the_fixture_makes_clients(mcp_client):
    assert mcp_client(server=open_server).call_tool("echo", {"text": "x"}).text == "x"


def test_the_plugin_needs_no_settings_and_gives_the_fixture(pytestconfig):
    from mcp_django import pytest_plugin

    assert hasattr(pytest_plugin, "mcp_client")


@pytest.mark.django_db
def test_the_default_server_asks_who_is_calling():
    with pytest.raises(AuthenticationRequired):
        MCPClient().discover()
    client = MCPClient(user=person())
    result = client.call_tool("whoami").structured
    assert result == {
        "user": "ada",
        "backend": "",
        "server": "default",
        "client": "mcp_django.test",
        "protocol_version": "2026-07-28",
        "method": None,
    }


def test_a_result_tells_its_parts():
    result = CallResult(
        raw={
            "content": [
                {"type": "text", "text": "a"},
                {"type": "image", "data": "", "mimeType": "image/png"},
                {"type": "text", "text": "b"},
            ],
            "structuredContent": 0,
        }
    )
    assert (result.text, result.structured, result.is_error) == ("a\nb", 0, False)
    assert len(result.content) == 3
    assert CallResult(raw={"content": [], "isError": True}).is_error


def test_nothing_of_a_kind_is_an_empty_list():
    for version in ("2025-06-18", "2026-07-28"):
        client = MCPClient(server=open_to_all(), protocol_version=version)
        lists = (
            client.list_tools(),
            client.list_resources(),
            client.list_resource_templates(),
            client.list_prompts(),
        )
        assert lists == ([], [], [], [])
        with pytest.raises(MCPError) as caught:
            client.request("tools/list")
        assert caught.value.code == -32601


def test_an_error_of_the_server_is_raised():
    with pytest.raises(MCPError, match="No tool named 'missing'") as caught:
        MCPClient(server=open_server).call_tool("missing")
    assert caught.value.code == -32602


def refusing() -> MCPServer:
    server = open_to_all()

    @server.tool(task="optional")
    def refuse(n: int) -> str:
        raise ToolError(f"{n} is too many.")

    return server


def test_a_tool_that_failed_fails_the_test():
    client = MCPClient(server=refusing())
    with pytest.raises(
        AssertionError, match=r"^The tool 'refuse' failed: 3 is too many\.$"
    ) as caught:
        client.call_tool("refuse", {"n": 3})
    assert isinstance(caught.value, ToolFailed)
    assert (caught.value.result.is_error, caught.value.result.text) == (True, "3 is too many.")
    with pytest.raises(ToolFailed, match="n: must be an integer"):
        client.call_tool("refuse", {"n": "x"})


async def test_a_tool_that_failed_fails_an_asynchronous_test():
    client = MCPClient(server=refusing())
    with pytest.raises(ToolFailed, match="3 is too many"):
        await client.acall_tool("refuse", {"n": 3})
    assert (await client.acall_tool("refuse", {"n": 3}, check=False)).text == "3 is too many."


@pytest.mark.django_db
@pytest.mark.usefixtures("few_servers")  # a task finds its server by the name
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_task_whose_tool_failed_fails_the_test(version):
    client = MCPClient(server=refusing(), protocol_version=version, user=person())
    task = client.call_tool("refuse", {"n": 3}, as_task=True)
    with pytest.raises(ToolFailed, match="failed: 3 is too many"):
        client.task_result(task)
    assert client.task_result(task, check=False).is_error


def test_messages_of_one_call_do_not_reach_the_next():
    server = open_to_all()

    @server.tool
    def talk(ctx: Context) -> str:
        ctx.report_progress(1)
        return "x"

    server.tool("silent")(lambda: "x")
    client = MCPClient(server=server)
    assert client.call_tool("talk").progress
    assert not client.call_tool("silent").progress
    assert client.call_tool("talk").progress


def test_a_list_is_read_to_its_last_page():
    server = open_to_all()
    for name in ("a", "b", "c"):
        server.tool(name, description="x" * 600_000)(lambda: "x")
    assert "nextCursor" in MCPClient(server=server).request("tools/list")
    assert [tool["name"] for tool in MCPClient(server=server).list_tools()] == ["a", "b", "c"]


async def test_a_stream_is_not_one_response():
    with pytest.raises(MCPError, match="stream"):
        await MCPClient(server=open_server).arequest("subscriptions/listen", {"notifications": {}})


@pytest.mark.django_db(transaction=True)
async def test_permissions_are_asked_from_a_loop():
    server = open_to_all()
    server.tool("tool", permission="auth.view_group")(lambda: "x")
    server.resource("x://x", permission="auth.view_group")(lambda: "x")
    user = await sync_to_async(person)()
    await user.user_permissions.aadd(await Permission.objects.aget(codename="view_group"))
    client = MCPClient(server=server, user=await type(user).objects.aget(pk=user.pk))
    assert (await client.acall_tool("tool")).text == "x"
    assert (await client.aread_resource("x://x"))[0]["text"] == "x"
    async with client.listen(uris=["x://x"]) as messages:
        acknowledged = await anext(messages)
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["x://x"]}


class AsyncTests(TestCase):
    """An asynchronous test of Django's own kind, within its transaction."""

    async def test_sync_and_async_tools_see_the_rows_of_the_test(self):
        await Group.objects.acreate(name="a")
        user: Any = await sync_to_async(person)()
        client = MCPClient(server=mcp, user=user)
        assert (await client.acall_tool("count_groups")).text == "1"
        assert (await client.acall_tool("count_groups_later")).text == "1"
        assert (await client.aread_resource("shop://groups/a"))[0]["text"] == '{"name":"a"}'

    def test_so_they_do_in_a_synchronous_test(self):
        Group.objects.create(name="a")
        client = MCPClient(server=mcp, user=person())
        assert client.call_tool("count_groups").text == "1"
        assert client.call_tool("count_groups_later").text == "1"
        assert client.complete("shop://groups/{name}", "name", "a") == ["a"]


def test_a_bug_in_a_component_is_raised_as_it_is():
    server = open_to_all()

    @server.tool
    def broken() -> str:
        """Fail."""
        raise ZeroDivisionError("by mistake")

    @server.resource("x://broken")
    def torn() -> str:
        """Fail."""
        raise ZeroDivisionError("by mistake")

    client = MCPClient(server=server)
    with pytest.raises(ZeroDivisionError, match="by mistake"):
        client.call_tool("broken")
    with pytest.raises(ZeroDivisionError, match="by mistake"):
        client.read_resource("x://broken")
    neutral = MCPClient(server=server, raise_exceptions=False)
    assert "because of a server error" in neutral.call_tool("broken", check=False).text
    assert client.list_tools()


async def test_a_bug_in_an_async_component_is_raised_as_it_is():
    server = open_to_all()

    @server.tool
    async def broken() -> str:
        """Fail."""
        raise ZeroDivisionError("by mistake")

    with pytest.raises(ZeroDivisionError, match="by mistake"):
        await MCPClient(server=server).acall_tool("broken")
