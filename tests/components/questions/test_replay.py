"""A component runs again from its beginning, and each answer is matched to its question."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mcp_django import Context, Elicit
from mcp_django.test import ACCEPT, MCPClient
from tests.components.questions.site import messages, serving
from tests.spec import spec


@spec("MRT-13", "ASK-2")
def test_each_answer_makes_one_more_run():
    runs: list[int] = []

    def tool(ctx: Context) -> str:
        runs.append(len(runs))
        return "".join(ctx.elicit(f"{n}?", str) for n in range(3))

    assert serving(tool).call_tool("tool", answers=["a", "b", "c"]).text == "abc"
    assert runs == [0, 1, 2, 3]


@spec("MRT-13")
def test_several_questions_of_one_round_make_one_more_run():
    runs: list[int] = []

    def tool(ctx: Context) -> str:
        runs.append(len(runs))
        return "".join(ctx.ask(*(Elicit(f"{n}?", str) for n in range(3)), Elicit("Go?"))[:3])

    client = serving(tool)
    assert messages(client.call_tool("tool")) == ["0?", "1?", "2?", "Go?"]
    assert client.call_tool("tool", answers=["a", "b", "c", ACCEPT]).text == "abc"
    assert len(runs) == 3


def test_nothing_asked_is_nothing_answered():
    def tool(ctx: Context) -> str:
        return repr(ctx.ask())

    assert serving(tool).call_tool("tool").text == "()"


@spec("MRT-13")
def test_equal_questions_are_told_apart_by_their_place():
    def tool(ctx: Context) -> str:
        return ctx.elicit("Name?", str) + ctx.elicit("Name?", str) + ctx.elicit("Name?", str)

    assert serving(tool).call_tool("tool", answers=["a", "b", "c"]).text == "abc"


@spec("MRT-13")
def test_a_key_may_come_again_in_a_later_round():
    def tool(ctx: Context) -> str:
        return ctx.elicit("First?", str, key="k") + ctx.elicit("Second?", str, key="k")

    assert serving(tool).call_tool("tool", answers=["a", "b"]).text == "ab"


@spec("MRT-2")
def test_a_key_stands_for_one_question_of_a_round():
    def tool(ctx: Context) -> str:
        return repr(ctx.ask(Elicit("A?", key="k"), Elicit("B?", key="k")))

    with pytest.raises(ValueError, match="Two questions have the key 'k'; give each its own"):
        serving(tool).call_tool("tool")


@pytest.mark.parametrize("key", ["", "x" * 129])
def test_a_key_has_a_length_that_hosts_can_bear(key):
    with pytest.raises(ValueError, match="1 to 128 characters"):
        Elicit("A?", key=key)


def test_a_round_has_as_many_questions_as_a_person_can_bear():
    def tool(ctx: Context, n: int) -> str:
        return str(len(ctx.ask(*(Elicit(f"{i}?") for i in range(n)))))

    client = serving(tool)
    assert len(client.call_tool("tool", {"n": 32}).questions) == 32
    with pytest.raises(ValueError, match="More than 32 questions in one round; ask fewer"):
        client.call_tool("tool", {"n": 33})


# Questions that change ------------------------------------------------------------------------


class Changing:
    """A tool whose questions are said anew for each run."""

    def __init__(self, *rounds: Sequence[str], at_once: bool = False) -> None:
        self.rounds = iter(rounds)
        self.at_once = at_once

    def client(self) -> MCPClient:
        return serving(self.ask)

    def ask(self, ctx: Context) -> str:
        texts = next(self.rounds)
        if self.at_once:
            return "".join(ctx.ask(*(Elicit(text, str, key=text) for text in texts)))
        return "".join(ctx.elicit(text, str, key=text) for text in texts)


@spec("MRT-13")
def test_a_question_that_changed_is_asked_again_and_so_is_what_came_after_it():
    client = Changing("abc", "abc", "abc", "aBc", "aBc", "aBc").client()
    result = client.call_tool("tool", answers=["1", "2", "3"])
    assert messages(result) == ["B"]
    client = Changing("abc", "abc", "abc", "aBc", "aBc", "aBc").client()
    result = client.call_tool("tool", answers=["1", "2", "3", "4"])
    assert messages(result) == ["c"]


@spec("MRT-13")
def test_a_question_that_came_in_between_takes_the_answers_after_it_away():
    client = Changing("ab", "ab", "axb", "axb", "axb").client()
    assert messages(client.call_tool("tool", answers=["1", "2"])) == ["x"]
    client = Changing("ab", "ab", "axb", "axb", "axb").client()
    assert client.call_tool("tool", answers=["1", "2", "3", "4"]).text == "134"


@spec("MRT-13")
def test_a_question_that_is_asked_no_more_is_no_trouble():
    assert Changing("abc", "abc", "ab").client().call_tool("tool", answers=["1", "2"]).text == "12"


@spec("MRT-13")
def test_an_answer_given_beside_a_question_that_changed_is_not_used():
    client = Changing(["Pay 1?", "Sure?"], ["Pay 9?", "Sure?"], at_once=True).client()
    assert messages(client.call_tool("tool", answers=["yes", "yes"])) == ["Pay 9?", "Sure?"]


@spec("MRT-13")
def test_an_answer_given_beside_an_equal_question_is_kept():
    client = Changing(["Sure?", "Pay 1?"], ["Sure?", "Pay 9?"], at_once=True).client()
    assert messages(client.call_tool("tool", answers=["yes", "yes"])) == ["Pay 9?"]


@spec("MRT-13")
def test_another_form_is_another_question():
    types = iter([str, int, int])

    def tool(ctx: Context) -> str:
        return repr(ctx.elicit("How many?", next(types), key="n"))

    assert serving(tool).call_tool("tool", answers=["5", 5]).text == "5"
