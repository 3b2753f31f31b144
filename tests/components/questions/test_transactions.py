"""What a component writes before its question is not written twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from mcp_django import Context, Elicit, ElicitationDeclined, MCPServer
from mcp_django.test import DECLINE, MCPClient
from tests.kit.servers import open_to_all
from tests.spec import spec

pytestmark = pytest.mark.django_db(transaction=True)


def kept() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def write(ctx: Context, name: str = "a") -> str:
    """Write, ask, write."""
    Group.objects.create(name=name)
    answer = ctx.elicit("Go on?", str)
    Group.objects.create(name=answer)
    return f"{int(connection.in_atomic_block)}"


async def write_later(ctx: Context, name: str = "a") -> str:
    """Write, ask, write on an event loop."""
    await Group.objects.aget_or_create(name=name)
    await Group.objects.acreate(name=await ctx.aelicit("Go on?", str))
    return "done"


def careless(server: MCPServer) -> MCPClient:
    return MCPClient(server=server, allow_early_writes=True)


def with_tool(function: Any = write, **options: Any) -> MCPClient:
    server = open_to_all()
    server.tool("tool", **options)(function)
    return careless(server)


@spec("MRT-9", "MRT-13")
def test_what_was_written_before_the_question_is_rolled_back():
    client = with_tool()
    assert client.call_tool("tool").questions
    assert kept() == []
    assert not connection.in_atomic_block
    assert client.call_tool("tool", answers=["b"]).text == "1"
    assert kept() == ["a", "b"]


@spec("MRT-9", "MRT-13")
def test_so_it_is_in_resources_and_prompts():
    server = open_to_all()
    server.resource("x://{name}")(write)
    server.prompt("prompt")(write)
    client = careless(server)
    assert client.request("resources/read", {"uri": "x://a"})["resultType"] == "input_required"
    result = client.request("prompts/get", {"name": "prompt", "arguments": {"name": "a"}})
    assert result["resultType"] == "input_required"
    assert kept() == []
    client.read_resource("x://a", answers=["b"])
    client.get_prompt("prompt", {"name": "c"}, answers=["d"])
    assert kept() == ["a", "b", "c", "d"]


def test_a_tool_may_have_it_otherwise():
    client = with_tool(atomic=False)
    assert client.call_tool("tool").questions
    assert kept() == ["a"]
    Group.objects.all().delete()
    client = with_tool(atomic=True)
    assert client.call_tool("tool").questions
    assert kept() == []


@pytest.mark.parametrize("atomic", [None, True])
def test_atomic_requests_make_no_difference_to_a_tool_that_asks(atomic):
    with atomic_requests():
        client = with_tool(atomic=atomic)
        assert client.call_tool("tool").questions
        assert kept() == []
        assert client.call_tool("tool", answers=["b"]).text == "1"
    assert kept() == ["a", "b"]


def test_atomic_requests_are_opted_out_of_by_name():
    with atomic_requests():
        assert with_tool(atomic=False).call_tool("tool").questions
    assert kept() == ["a"]


@contextmanager
def atomic_requests() -> Iterator[None]:
    settings = connections["default"].settings_dict
    settings["ATOMIC_REQUESTS"] = True
    try:
        yield
    finally:
        settings["ATOMIC_REQUESTS"] = False


def test_a_tool_that_asks_nothing_opens_nothing():
    def tool(ctx: Context) -> str:
        return str(connection.in_atomic_block)

    assert with_tool(tool).call_tool("tool").text == "False"


# Ways to ask ----------------------------------------------------------------------------------


def in_a_closure(ctx: Context) -> str:
    def confirm() -> str:
        return str(ctx.elicit("Go on?", str))

    Group.objects.create(name="a")
    return confirm()


def in_a_lambda(ctx: Context) -> str:
    Group.objects.create(name="a")
    return str(sorted(["Go on?"], key=lambda text: str(ctx.elicit(text, str))))


def in_a_comprehension(ctx: Context) -> str:
    Group.objects.create(name="a")
    return "".join([ctx.elicit(text, str) for text in ["Go on?"]])


def in_a_generator(ctx: Context) -> str:
    Group.objects.create(name="a")
    return "".join(ctx.elicit(text, str) for text in ["Go on?"])


def all_at_once(ctx: Context) -> str:
    Group.objects.create(name="a")
    return str(ctx.ask(Elicit("Go on?", str))[0])


def by_its_name(ctx: Context) -> str:
    Group.objects.create(name="a")
    ask = ctx.elicit
    return str(ask("Go on?", str))


def by_sample(ctx: Context) -> str:
    Group.objects.create(name="a")
    return ctx.sample("Go on?").text


def by_roots(ctx: Context) -> str:
    Group.objects.create(name="a")
    return str(len(ctx.list_roots()))


def by_url(ctx: Context) -> str:
    Group.objects.create(name="a")
    return str(ctx.elicit_url("Go on?", "https://example.com/"))


class Instance:
    """Asks when it is called."""

    def __call__(self, ctx: Context) -> str:
        """Write, then ask."""
        Group.objects.create(name="a")
        return str(ctx.elicit("Go on?", str))

    def method(self, ctx: Context) -> str:
        """Write, then ask."""
        Group.objects.create(name="a")
        return str(ctx.elicit("Go on?", str))


@spec("MRT-13")
@pytest.mark.parametrize(
    "tool",
    [
        *(in_a_closure, in_a_lambda, in_a_comprehension, in_a_generator, all_at_once),
        *(by_its_name, by_sample, by_roots, by_url, Instance(), Instance().method),
    ],
)
def test_every_way_to_ask_is_noticed(tool):
    assert with_tool(tool).call_tool("tool").questions
    assert kept() == []


# Loops and their transactions -----------------------------------------------------------------


@spec("MRT-13")
def test_what_an_async_tool_wrote_before_its_question_stays():
    client = with_tool(write_later)
    assert client.call_tool("tool").questions
    assert kept() == ["a"]
    assert client.call_tool("tool", answers=["b"]).text == "done"
    assert kept() == ["a", "b"]


@spec("MRT-9")
async def test_a_sync_tool_is_rolled_back_when_a_loop_serves_it():
    client = with_tool()
    assert (await client.acall_tool("tool")).questions
    assert await sync_to_async(kept)() == []
    assert (await client.acall_tool("tool", answers=["b"])).text == "1"
    assert await sync_to_async(kept)() == ["a", "b"]


@spec("MRT-9")
def test_a_transaction_of_the_tools_own_is_ended_by_its_question():
    def tool(ctx: Context) -> str:
        with transaction.atomic():
            Group.objects.create(name="a")
            return ctx.elicit("Go on?", str)

    client = with_tool(tool, atomic=False)
    assert client.call_tool("tool").questions
    assert (kept(), connection.in_atomic_block) == ([], False)
    assert client.call_tool("tool", answers=["b"]).text == "b"
    assert kept() == ["a"]


def test_what_waits_for_the_commit_waits_for_the_last_round():
    sent: list[int] = []

    def tool(ctx: Context) -> str:
        transaction.on_commit(lambda: sent.append(1))
        return ctx.elicit("Go on?", str)

    assert with_tool(tool).call_tool("tool").questions
    assert sent == []
    assert with_tool(tool).call_tool("tool", answers=["b"]).text == "b"
    assert sent == [1]


def test_a_refusal_rolls_back_unless_it_is_caught():
    assert with_tool().call_tool("tool", answers=[DECLINE], check=False).is_error
    assert kept() == []

    def tool(ctx: Context) -> str:
        Group.objects.create(name="a")
        try:
            ctx.elicit("Go on?")
        except ElicitationDeclined:
            return "kept"
        return "never"

    assert with_tool(tool).call_tool("tool", answers=[DECLINE]).text == "kept"
    assert kept() == ["a"]


def test_nothing_is_left_of_a_resource_that_asks_within_a_tool_that_wrote():
    server = open_to_all()
    server.resource("x://{name}")(write)

    @server.tool
    def read(ctx: Context) -> str:
        """Write, then read what asks."""
        Group.objects.create(name="outer")
        ctx.read_resource("x://inner")
        return "done"

    client = careless(server)
    assert client.call_tool("read").questions
    assert "inner" not in kept()
