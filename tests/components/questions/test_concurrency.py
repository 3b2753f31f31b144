"""Questions from tasks, threads, generators, and from sync code in async code and the reverse."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django import forms
from django.contrib.auth.models import Group

from mcp_django import Context, Elicit
from mcp_django.exceptions import InputRequired
from tests.components.questions.site import messages, serving
from tests.kit.servers import open_to_all, real_client
from tests.spec import spec

PATIENCE = 5


# Tasks ----------------------------------------------------------------------------------------


async def in_a_group(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.aelicit(text, str)) for text in ("A?", "B?")]
    return "".join(task.result() for task in tasks)


async def in_groups_within_a_group(ctx: Context) -> str:
    async def inner(texts: str) -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.aelicit(f"{text}?", str)) for text in texts]
        return "".join(task.result() for task in tasks)

    async with asyncio.TaskGroup() as group:
        outer = [group.create_task(inner("A")), group.create_task(inner("B"))]
    return "".join(task.result() for task in outer)


async def gathered(ctx: Context) -> str:
    return "".join(await asyncio.gather(ctx.aelicit("A?", str), ctx.aelicit("B?", str)))


async def gathered_with_exceptions(ctx: Context) -> str:
    questions = (ctx.aelicit("A?", str), ctx.aelicit("B?", str))
    return "".join(map(str, await asyncio.gather(*questions, return_exceptions=True)))


async def in_tasks(ctx: Context) -> str:
    tasks = [asyncio.ensure_future(ctx.aelicit(text, str)) for text in ("A?", "B?")]
    await asyncio.wait(tasks)
    # asyncio logs an exception that was never retrieved.
    failures = [task.exception() for task in tasks]
    if failures[0] is not None:
        raise failures[0]
    return "".join(task.result() for task in tasks)


TASKS = [in_a_group, in_groups_within_a_group, gathered, gathered_with_exceptions, in_tasks]


@spec("MRT-13")
@pytest.mark.parametrize("tool", TASKS)
def test_tasks_that_ask_side_by_side_ask_in_one_round(tool):
    client = serving(tool)
    assert messages(client.call_tool("tool")) == ["A?", "B?"]
    assert client.call_tool("tool", answers=["a", "b"]).text == "ab"


@spec("MRT-13")
@pytest.mark.parametrize("tool", TASKS)
async def test_so_they_do_on_the_loop_of_the_server(tool):
    result = await serving(tool).acall_tool("tool", answers=["a", "b"])
    assert result.text == "ab"


@pytest.mark.parametrize("is_last", [False, True])
def test_a_group_that_fails_beside_its_question_has_failed(is_last, caplog):
    async def fail() -> None:
        raise ZeroDivisionError("by mistake")

    async def tool(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            work = [ctx.aelicit("A?", str), fail()]
            for coroutine in reversed(work) if is_last else work:
                group.create_task(coroutine)
        return "done"

    server = open_to_all()
    server.tool("tool")(tool)
    result = real_client(server=server).call_tool("tool", check=False)
    assert result.is_error
    assert "because of a server error" in result.text
    assert "ZeroDivisionError: by mistake" in caplog.text


def test_a_group_of_exceptions_made_by_hand_is_taken_apart():
    def tool(ctx: Context) -> str:
        try:
            return ctx.elicit("A?", str)
        except InputRequired as exc:
            raise BaseExceptionGroup("all", [BaseExceptionGroup("some", [exc])]) from None

    client = serving(tool)
    assert messages(client.call_tool("tool")) == ["A?"]
    assert client.call_tool("tool", answers=["a"]).text == "a"


def test_a_time_limit_within_the_tool_does_not_count_the_user():
    async def tool(ctx: Context) -> str:
        async with asyncio.timeout(PATIENCE):
            return str(await ctx.aelicit("A?", str))

    assert serving(tool).call_tool("tool", answers=["a"]).text == "a"


# Generators -----------------------------------------------------------------------------------


@spec("MRT-13")
async def test_generators_ask_between_their_values():
    async def later(ctx: Context) -> AsyncIterator[str]:
        yield "0"
        yield await ctx.aelicit("A?", str)
        yield await ctx.aelicit("B?", str)

    def now(ctx: Context) -> Iterator[str]:
        yield "0"
        yield ctx.elicit("A?", str)
        yield ctx.elicit("B?", str)

    for tool in (later, now):
        client = serving(tool)
        result = await client.acall_tool("tool", answers=["a", "b"])
        assert result.text == '["0","a","b"]'
        called = await sync_to_async(client.call_tool)("tool", answers=["a", "b"])
        assert called.text == result.text


# Colors ---------------------------------------------------------------------------------------


def by_way_of_a_loop(ctx: Context) -> str:
    return str(async_to_sync(ctx.aelicit)("A?", str)) + ctx.elicit("B?", str)


async def by_way_of_a_thread(ctx: Context) -> str:
    return await sync_to_async(ctx.elicit)("A?", str) + await ctx.aelicit("B?", str)


async def by_way_of_another_thread(ctx: Context) -> str:
    return await asyncio.to_thread(ctx.elicit, "A?", str) + await ctx.aelicit("B?", str)


async def without_a_border(ctx: Context) -> str:
    return str(ctx.elicit("A?", str)) + str(ctx.ask(Elicit("B?", str))[0])


def by_way_of_both(ctx: Context) -> str:
    return str(async_to_sync(by_way_of_a_thread)(ctx))


COLORS = [by_way_of_a_loop, by_way_of_a_thread, by_way_of_another_thread]


@spec("MRT-13")
@pytest.mark.parametrize("tool", [*COLORS, without_a_border, by_way_of_both])
async def test_a_question_crosses_between_threads_and_the_loop(tool):
    client = serving(tool)
    assert (await client.acall_tool("tool", answers=["a", "b"])).text == "ab"
    assert (await sync_to_async(client.call_tool)("tool", answers=["a", "b"])).text == "ab"


class GroupForm(forms.Form):
    group = forms.ModelChoiceField(Group.objects.all())


@pytest.mark.django_db(transaction=True)
@spec("MRT-13")
async def test_a_form_that_asks_the_database_is_read_in_a_thread():
    async def tool(ctx: Context) -> str:
        form = await ctx.aelicit("Which?", GroupForm)
        return str(form.cleaned_data["group"].name)

    group = await Group.objects.acreate(name="crew")
    client = serving(tool)
    assert (await client.acall_tool("tool", answers=[{"group": group.pk}])).text == "crew"
    again = await client.acall_tool("tool", answers=[{"group": group.pk + 1}])
    assert "Select a valid choice" in messages(again)[0]


# Threads --------------------------------------------------------------------------------------


def test_a_pool_of_threads_hands_the_question_on():
    def tool(ctx: Context) -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(ctx.elicit, "A?", str).result(PATIENCE)

    assert serving(tool).call_tool("tool", answers=["a"]).text == "a"


def test_two_threads_at_once_learn_of_one_interaction():
    def tool(ctx: Context) -> str:
        gate = threading.Barrier(8)

        def look() -> str:
            gate.wait(PATIENCE)
            return ctx.interaction_id

        with ThreadPoolExecutor(8) as pool:
            ids = {future.result(PATIENCE) for future in [pool.submit(look) for _ in range(8)]}
        return str(len(ids | {ctx.interaction_id}))

    assert serving(tool).call_tool("tool").text == "1"


def test_messages_of_threads_are_each_delivered_once():
    def tool(ctx: Context) -> str:
        gate = threading.Barrier(4)

        def talk() -> None:
            gate.wait(PATIENCE)
            for n in range(200):
                ctx.log("info", n)

        with ThreadPoolExecutor(4) as pool:
            for future in [pool.submit(talk) for _ in range(4)]:
                future.result(PATIENCE)
        return ctx.elicit("A?", str)

    assert len(serving(tool).call_tool("tool", answers=["a"]).logs) == 800


# Afterwards -----------------------------------------------------------------------------------


async def test_a_task_that_asks_when_the_call_is_over_disturbs_nobody():
    gate = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def late(ctx: Context) -> str:
        await gate.wait()
        return str(await ctx.aelicit("B?", str))

    async def tool(ctx: Context) -> str:
        tasks.append(asyncio.ensure_future(late(ctx)))
        return str(await ctx.aelicit("A?", str))

    client = serving(tool)
    result = await client.acall_tool("tool")
    gate.set()
    await asyncio.wait(tasks)
    assert isinstance(tasks[0].exception(), InputRequired)
    assert messages(result) == ["A?"]
