"""The plan of a component: built once, with the steps it needs, and rebuilt when those change."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings as django_settings
from django.test import override_settings

from mcp_django import Context, MCPServer
from mcp_django.execution import plan
from mcp_django.execution.call import Plan
from mcp_django.protocol.revisions import LATEST
from tests.kit.drivers import message, send
from tests.kit.servers import open_to_all

SETTINGS = getattr(django_settings, "MCP_DJANGO", {})


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def talk(ctx: Context) -> str:
    """Use what only few use."""
    return ctx.protocol_version


async def thread_of_the_orm() -> str:
    """Say in which thread the ORM works."""
    return await sync_to_async(lambda: threading.current_thread().name)()


@pytest.fixture
def server():
    server = open_to_all()
    server.tool(read_only=True)(add)
    server.tool(rate="100/m")(talk)
    server.tool(read_only=True)(thread_of_the_orm)
    return server


async def ask(server: MCPServer, name: str, **arguments: Any) -> Any:
    """Call a tool over the raw mount."""
    answer = await send(
        server.asgi, "/", message("tools/call", {"name": name, "arguments": arguments})
    )
    return answer.json()


def plan_of(server: MCPServer, name: str | None) -> Plan | None:
    plan: Plan | None = server.catalog.plans.get(("tools/call", name, LATEST.version))
    return plan


def names(plan: Plan | None) -> list[str]:
    assert plan is not None
    return [getattr(step, "__name__", "a step around others") for step in plan.admission]


async def test_a_plan_has_only_what_its_component_uses(server):
    await ask(server, "add", a=2, b=40)
    await ask(server, "talk")
    await ask(server, "nothing")
    assert names(plan_of(server, "add")) == ["_read_arguments"]
    assert names(plan_of(server, "talk")) == ["_read_arguments", "open_interaction", "consume"]
    assert names(plan_of(server, None)) == ["authorize_component"]


async def test_a_plan_is_made_once(server, monkeypatch):
    assert (await ask(server, "add", a=2, b=40))["result"]["content"][0]["text"] == "42"
    kept = plan_of(server, "add")
    monkeypatch.setattr(plan, "_make_plan", lambda *args: pytest.fail("made again"))
    assert (await ask(server, "add", a=1, b=1))["result"]["content"][0]["text"] == "2"
    assert plan_of(server, "add") is kept is not None


async def test_a_plan_is_made_again_for_other_settings_and_another_catalog(server):
    await ask(server, "add", a=2, b=40)
    with override_settings(MCP_DJANGO={**SETTINGS, "RATE": "1000/m"}):
        await ask(server, "add", a=2, b=40)
        assert names(plan_of(server, "add")) == ["_read_arguments", "consume"]
    await ask(server, "add", a=2, b=40)
    assert names(plan_of(server, "add")) == ["_read_arguments"]
    before = server.catalog
    server.tool(read_only=True, name="other")(add)
    await ask(server, "add", a=2, b=40)
    assert server.catalog is not before
    assert plan_of(server, "other") is None


async def test_names_that_do_not_exist_share_one_plan(server):
    for number in range(50):
        answer = await ask(server, f"nothing_{number}")
        assert "No tool named" in answer["error"]["message"]
    assert len([key for key in server.catalog.plans if key[0] == "tools/call"]) == 1


async def test_an_absent_component_runs_where_the_most_demanding_one_does(server):
    for name in ("add", "nothing"):
        await ask(server, name, a=1, b=1)
    of_add, absent = plan_of(server, "add"), plan_of(server, None)
    assert of_add is not None
    assert absent is not None
    # ``talk`` has a rate, which is counted in the site's cache.
    assert (of_add.where, absent.where) == ("loop", "thread")


@pytest.mark.django_db(transaction=True)
def test_the_orm_has_its_own_thread_below_a_waiting_sync_caller(server):
    for _ in range(2):
        answer = async_to_sync(ask)(server, "thread_of_the_orm")
        assert answer["result"]["content"][0]["text"].startswith("mcp-tool")


async def test_a_task_that_outlives_its_call_gets_no_thread(server):
    may_go_on = asyncio.Event()
    tasks: list[asyncio.Task[str]] = []

    async def late() -> str:
        await may_go_on.wait()
        return await thread_of_the_orm()

    @server.tool
    async def leave_a_task() -> str:
        """Begin what is not awaited."""
        tasks.append(asyncio.create_task(late()))
        return "left"

    assert (await ask(server, "leave_a_task"))["result"]["content"][0]["text"] == "left"
    may_go_on.set()
    with pytest.raises(RuntimeError, match="await tasks before it ends"):
        await tasks[0]
