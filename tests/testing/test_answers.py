"""The test client answers in place of the user, and detects functions that write too early."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django import forms
from django.contrib.auth.models import Group
from django.test import TestCase

from mcp_django import Context, Elicit, ListRoots, MCPServer, Sample
from mcp_django.models import AccessToken
from mcp_django.test import ACCEPT, CANCEL, DECLINE, MCPClient
from tests.components.questions.site import messages, serving
from tests.kit.servers import open_to_all, person


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Wish:
    name: str
    day: date | None = None


class WishForm(forms.Form):
    name = forms.CharField()


def asking(*questions: Any) -> MCPClient:
    """Return a client of a tool that asks one question after the other."""

    async def tool(ctx: Context) -> list[str]:
        return [repr((await ctx.aask(question))[0]) for question in questions]

    return serving(tool)


# Answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "given", "expected"),
    [
        (Elicit("?", str), "a", "'a'"),
        (Elicit("?", str), {"value": "a"}, "'a'"),
        (Elicit("?", bool), False, "False"),
        (Elicit("?", int), 0, "0"),
        (Elicit("?", int | None), None, "None"),
        (Elicit("?", date), date(2026, 3, 1), "datetime.date(2026, 3, 1)"),
        (Elicit("?", Color), Color.RED, "<Color.RED: 'red'>"),
        (Elicit("?", list[Color]), ["red"], "[<Color.RED: 'red'>]"),
        (Elicit("?", list[Color]), [Color.RED], "[<Color.RED: 'red'>]"),
        (Elicit("?", Wish), {"name": "a"}, "Wish(name='a', day=None)"),
        (Elicit("?", Wish), Wish("a", date(2026, 3, 1)), "Wish(name='a', day=datetime.date("),
        (Elicit("?", WishForm), {"name": "a"}, "<WishForm bound=True, valid=True"),
        (Elicit("?"), ACCEPT, "None"),
        (Elicit("?"), {}, "None"),
        (Sample("?"), "said", "SampledMessage(role='assistant', content=[{'type': 'text'"),
        (
            Sample("?"),
            {"role": "user", "model": "m", "content": []},
            "SampledMessage(role='user', content=[], model='m', stop_reason='')",
        ),
        (ListRoots(), ["file:///a"], "[Root(uri='file:///a', name='')]"),
        (ListRoots(), [{"uri": "file:///a", "name": "A"}], "[Root(uri='file:///a', name='A')]"),
        (ListRoots(), {"roots": []}, "[]"),
    ],
)
async def test_an_answer_is_written_as_the_question_wants_it(question, given, expected):
    (answer,) = (await asking(question).acall_tool("tool", answers=[given])).structured
    assert answer.startswith(expected)


@pytest.mark.parametrize(("given", "text"), [(DECLINE, "declined"), (CANCEL, "dismissed")])
def test_a_user_may_say_no(given, text):
    result = asking(Elicit("?", str)).call_tool("tool", answers=[given], check=False)
    assert result.is_error
    assert text in result.text


@pytest.mark.parametrize("question", [Sample("?"), ListRoots()])
@pytest.mark.parametrize("given", [ACCEPT, DECLINE, CANCEL])
def test_only_users_say_yes_or_no(question, given):
    with pytest.raises(AssertionError, match="answers only elicitation/create, but the server"):
        asking(question).call_tool("tool", answers=[given])


def test_rounds_follow_each_other_until_the_answers_are_used_up():
    client = asking(Elicit("A?", str), Elicit("B?", str))
    assert messages(client.call_tool("tool")) == ["A?"]
    assert messages(client.call_tool("tool", answers=["a"])) == ["B?"]
    assert messages(client.call_tool("tool", answers=["a", "b"])) == []


def test_answers_that_nobody_asked_for_fail_the_test():
    with pytest.raises(AssertionError, match=r"did not ask for the answers \['c', <Reaction"):
        asking(Elicit("A?", str)).call_tool("tool", answers=["a", "c", DECLINE])
    with pytest.raises(AssertionError, match=r"did not ask for the answers \['a'\]"):
        asking().call_tool("tool", answers=["a"])


async def test_so_they_do_in_an_asynchronous_test():
    with pytest.raises(AssertionError, match=r"did not ask for the answers \['c'\]"):
        await asking(Elicit("A?", str)).acall_tool("tool", answers=["a", "c"])


def several() -> MCPServer:
    server = open_to_all()

    @server.tool(atomic=False)
    def tool(ctx: Context) -> str:
        return str(len(ctx.ask(Elicit("A?", str), Sample("B?"), ListRoots())))

    server.resource("x://x", atomic=False)(read)
    server.prompt("prompt", atomic=False)(read)
    return server


def read(ctx: Context) -> str:
    return ctx.elicit("Part?", str)


def test_a_round_is_answered_as_a_whole():
    client = MCPClient(server=several())
    assert client.call_tool("tool", answers=["a", "b", ["file:///c"]]).text == "3"
    with pytest.raises(AssertionError) as caught:
        client.call_tool("tool", answers=["a", "b"])
    assert str(caught.value) == (
        "Questions in one round: 3 (A?; sampling/createMessage; roots/list), but 2 answers are "
        "left; give one for each in answers=[…]."
    )


async def test_resources_and_prompts_have_to_be_answered():
    client = MCPClient(server=several())
    assert client.read_resource("x://x", answers=["a"])[0]["text"] == "a"
    assert (await client.aread_resource("x://x", answers=["a"]))[0]["text"] == "a"
    assert client.get_prompt("prompt", answers=["a"])[0]["content"]["text"] == "a"
    assert (await client.aget_prompt("prompt", answers=["a"]))[0]["content"]["text"] == "a"
    for use in (lambda: client.read_resource("x://x"), lambda: client.get_prompt("prompt")):
        with pytest.raises(AssertionError, match=r"one round: 1 \(Part\?\), but 0 answers"):
            use()
    with pytest.raises(AssertionError, match="one round: 1 "):
        await client.aread_resource("x://x")
    with pytest.raises(AssertionError, match="one round: 1 "):
        await client.aget_prompt("prompt")


def test_messages_of_all_rounds_are_kept():
    def tool(ctx: Context) -> str:
        ctx.report_progress(1)
        ctx.elicit("A?")
        ctx.report_progress(2)
        return "done"

    client = serving(tool)
    assert [notification["progress"] for notification in client.call_tool("tool").progress] == [1]
    result = client.call_tool("tool", answers=[ACCEPT])
    assert [notification["progress"] for notification in result.progress] == [1, 2]


# Writes ---------------------------------------------------------------------------------------


def early(ctx: Context) -> str:
    """Write, then ask."""
    Group.objects.create(name="early")
    return str(ctx.elicit("Go on?", str))


async def early_and_later(ctx: Context) -> str:
    """Write, then ask, on an event loop."""
    await Group.objects.acreate(name="early")
    return str(await ctx.aelicit("Go on?", str))


async def in_another_color(ctx: Context) -> str:
    """Write in a thread, then ask."""
    await sync_to_async(Group.objects.create)(name="early")
    return str(await ctx.aelicit("Go on?", str))


def afterwards(ctx: Context) -> str:
    """Read, ask, write."""
    count = Group.objects.count()
    name = ctx.elicit("Go on?", str)
    Group.objects.create(name=name)
    return f"{count}"


WRITERS = [early, early_and_later, in_another_color]


def writing(function: Any, **options: Any) -> MCPClient:
    server = open_to_all()
    server.tool("tool")(function)
    return MCPClient(server=server, **options)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("function", WRITERS)
async def test_a_write_before_a_question_fails_the_test(function):
    for call in (writing(function).acall_tool, sync_to_async(writing(function).call_tool)):
        with pytest.raises(AssertionError, match="tool writes before it asks") as caught:
            await call("tool")
        assert "INSERT INTO" in str(caught.value)
        assert "pass allow_early_writes=True" in str(caught.value)
        await Group.objects.all().adelete()


@pytest.mark.django_db(transaction=True)
async def test_it_does_so_while_another_request_of_the_client_runs():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(ctx: Context) -> str:
        await Group.objects.acreate(name="early")
        begun.set()
        await go_on.wait()
        return str(await ctx.aelicit("Go on?", str))

    client = writing(slow)
    asking = asyncio.create_task(client.acall_tool("tool"))
    await begun.wait()
    assert await client.arequest("tools/list")
    go_on.set()
    with pytest.raises(AssertionError, match="tool writes before it asks"):
        await asking


@pytest.mark.django_db
def test_answers_of_a_call_that_failed_are_not_used_for_another():
    def failing(ctx: Context) -> str:
        ctx.elicit("Go on?", str)
        raise RuntimeError("broken")

    client = writing(failing)
    with pytest.raises(RuntimeError):
        client.call_tool("tool", answers=["a", "b"])
    result = client.request("tools/call", {"name": "tool", "arguments": {}})
    assert result["resultType"] == "input_required"


@pytest.mark.django_db
@pytest.mark.parametrize("function", WRITERS)
def test_so_it_does_within_the_transaction_of_a_test(function):
    with pytest.raises(AssertionError, match="writes before it asks"):
        writing(function).call_tool("tool")


@pytest.mark.django_db
def test_a_client_may_let_it_pass():
    client = writing(early, allow_early_writes=True)
    assert client.call_tool("tool", answers=["x"]).text == "x"


@pytest.mark.django_db
def test_a_write_after_the_last_question_is_as_it_should_be():
    client = writing(afterwards)
    assert client.call_tool("tool", answers=["x"]).text == "0"
    assert client.call_tool("tool", answers=["y"]).text == "1"


@pytest.mark.django_db
def test_a_write_between_two_questions_is_found_in_the_second_round():
    def tool(ctx: Context) -> str:
        name = ctx.elicit("A?", str)
        Group.objects.create(name=name)
        return str(ctx.elicit("B?", str))

    client = writing(tool)
    assert client.call_tool("tool").questions
    with pytest.raises(AssertionError, match="writes before it asks"):
        client.call_tool("tool", answers=["a"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    "write",
    [
        lambda: Group.objects.filter(name="w").update(name="y"),
        lambda: Group.objects.filter(name="w").delete(),
        lambda: Group.objects.bulk_create([Group(name="x"), Group(name="z")]),
        lambda: Group.objects.get_or_create(name="x"),
    ],
)
def test_every_kind_of_write_is_one(write):
    Group.objects.create(name="w")

    def tool(ctx: Context) -> str:
        write()
        return str(ctx.elicit("A?", str))

    with pytest.raises(AssertionError, match="writes before it asks"):
        writing(tool).call_tool("tool")


@pytest.mark.django_db
def test_reading_and_rows_of_ours_are_no_writes():
    user = person()
    AccessToken.objects.issue(user, name="test")

    def tool(ctx: Context) -> str:
        AccessToken.objects.update(name="other")
        list(Group.objects.select_for_update().filter(name="insert into"))
        return str(ctx.elicit("A?", str))

    assert writing(tool).call_tool("tool").questions


@pytest.mark.django_db
def test_a_test_that_failed_leaves_nothing_behind():
    with pytest.raises(AssertionError):
        writing(early).call_tool("tool")
    assert writing(afterwards).call_tool("tool").questions
    Group.objects.create(name="a")
    assert writing(afterwards).call_tool("tool").questions


class AsyncTests(TestCase):
    """A test of Django's own kind, within its transaction."""

    async def test_an_early_write_is_found_there_too(self):
        for function in WRITERS:
            with pytest.raises(AssertionError, match="writes before it asks"):
                await writing(function).acall_tool("tool")
            await Group.objects.all().adelete()
        result = await writing(afterwards).acall_tool("tool", answers=["x"])
        assert result.text
