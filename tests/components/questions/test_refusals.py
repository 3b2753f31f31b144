"""Users who decline, and functions that catch the exception of a question."""

from __future__ import annotations

import pytest

from mcp_django import Context, Elicit, ElicitationDeclined, ToolError
from mcp_django.exceptions import InputRequired
from mcp_django.test import CANCEL, DECLINE
from tests.components.questions.site import messages, serving
from tests.spec import spec

# Refusals that are caught ---------------------------------------------------------------------


@spec("MRT-14", "ASK-14")
@pytest.mark.parametrize("answer", [DECLINE, CANCEL])
def test_a_refusal_that_was_caught_is_remembered(answer):
    def tool(ctx: Context) -> str:
        try:
            ctx.elicit("A newsletter?")
        except ElicitationDeclined as exc:
            return exc.action + ctx.elicit("Why not?", str) + ctx.elicit("Really?", str)
        return "sent"

    result = serving(tool).call_tool("tool", answers=[answer, "a", "b"])
    assert result.text == f"{answer.value}ab"


@spec("MRT-14")
def test_a_refusal_of_one_withdraws_what_was_asked_beside_it():
    def tool(ctx: Context) -> str:
        try:
            first, second = ctx.ask(Elicit("A?", str, key="a"), Elicit("B?", str, key="b"))
        except ElicitationDeclined:
            return "refused"
        return first + second

    client = serving(tool)
    for key in ("a", "b"):
        params = {"name": "tool", "inputResponses": {key: {"action": "decline"}}}
        assert client.request("tools/call", params)["resultType"] == "complete"


@spec("MRT-14")
def test_a_refusal_in_a_round_may_be_followed_by_another_round():
    def tool(ctx: Context) -> str:
        try:
            return "".join(ctx.ask(Elicit("A?", str, key="a"), Elicit("B?", str, key="b")))
        except ElicitationDeclined:
            return ctx.elicit("Why?", str, key="why")

    client = serving(tool)
    assert messages(client.call_tool("tool", answers=["1", DECLINE])) == ["Why?"]
    assert client.call_tool("tool", answers=["1", DECLINE, "x"]).text == "x"


# Functions that do not let the exception pass --------------------------------------------------


def test_the_exception_is_no_ordinary_one():
    assert not issubclass(InputRequired, Exception)


def test_except_exception_does_not_catch_a_question():
    def tool(ctx: Context) -> str:
        try:
            return ctx.elicit("A?", str)
        except Exception:  # noqa: BLE001 - what many functions do
            return "caught"

    assert serving(tool).call_tool("tool", answers=["a"]).text == "a"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_swallows_the_question_is_asked_for_it_all_the_same(is_async):
    def tool(ctx: Context) -> str:
        try:
            return ctx.elicit("A?", str)
        except BaseException:  # noqa: BLE001 - what a careless function does
            return "swallowed"

    async def later(ctx: Context) -> str:
        return tool(ctx)

    client = serving(later if is_async else tool)
    assert messages(client.call_tool("tool")) == ["A?"]
    assert client.call_tool("tool", answers=["a"]).text == "a"


def test_questions_that_were_swallowed_are_asked_together():
    def tool(ctx: Context) -> str:
        answers = []
        for text in ("A?", "B?"):
            try:
                answers.append(ctx.elicit(text, str))
            except InputRequired:
                answers.append("-")
        return "".join(answers)

    client = serving(tool)
    assert messages(client.call_tool("tool")) == ["A?", "B?"]
    assert client.call_tool("tool", answers=["a", "b"]).text == "ab"


def test_a_failure_after_a_swallowed_question_is_the_answer():
    def tool(ctx: Context) -> str:
        try:
            ctx.elicit("A?", str)
        except BaseException as exc:
            raise ToolError("No such order.") from exc
        return "done"

    result = serving(tool).call_tool("tool", check=False)
    assert (result.is_error, result.text) == (True, "No such order.")


def test_what_has_to_be_cleaned_up_is_cleaned_up():
    cleaned: list[int] = []

    def tool(ctx: Context) -> str:
        try:
            return ctx.elicit("A?", str)
        finally:
            cleaned.append(1)

    assert serving(tool).call_tool("tool", answers=["a"]).text == "a"
    assert cleaned == [1, 1]
