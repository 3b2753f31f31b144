"""Questions in the middle of `manage.py mcp call` without a terminal."""

from __future__ import annotations

import json

import pytest

from mcp_django import Context
from tests.management.asking import answered, asking_server, done
from tests.management.console import attempt, fails, run, terminal

# A tool that can ask runs in a transaction, so that a round with a question is rolled back.
pytestmark = pytest.mark.django_db


@pytest.fixture
def server():
    return asking_server()


def test_prepared_answers_are_used_up_in_their_order(server):
    assert answered(server, "number", '{"value": 20}', '{"value": 22}').out == "42\n"
    outcome = answered(server, "number", '{"value": 20}')
    assert outcome.status == 1
    assert "Another one?" in outcome.error


def test_every_kind_of_question_has_prepared_answers(server, tmp_path):
    assert answered(server, "confirm", "accept").out == "done\n"
    done[:] = [False, True]
    assert answered(server, "page", "accept").out == "paid\n"
    assert answered(server, "sample", "Hi there").out.startswith("Hi there|")
    assert answered(server, "sample", '"42"').out.startswith("42|")
    assert answered(server, "sample", "42").out.startswith("42|")
    whole = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m-1"}
    assert answered(server, "sample", json.dumps(whole)).out == "Hi|m-1|\n"
    both = json.dumps([str(tmp_path), "file:///elsewhere"])
    assert json.loads(answered(server, "roots", both).out) == [
        tmp_path.as_uri(),
        "file:///elsewhere",
    ]
    assert json.loads(answered(server, "several", "Hi", "[]").out) == ["Hi", []]
    assert answered(server, "order", "decline").out == "The user declined to answer.\n"


def test_prepared_answers_come_before_the_terminal(server):
    with terminal("y", "22") as stdin:
        outcome = attempt(
            *("call", "number", "--server", server.name, "--answer", '{"value": 20}'), stdin=stdin
        )
    assert outcome.out == "42\n"
    assert "A number?" not in outcome.err


def test_an_answer_that_does_not_fit_is_asked_for_again(server):
    outcome = answered(server, "order", '{"size": "huge"}')
    assert "Please correct this:" in outcome.error
    assert "size" in outcome.error


@pytest.mark.parametrize(
    ("tool", "answer", "words"),
    [
        (
            "order",
            "maybe",
            "not valid for a form; write NAME=VALUE for one field, or a JSON object",
        ),
        ("order", "[]", "not valid for a form; write NAME=VALUE"),
        ("page", "{}", "not valid for a page to visit; write accept, decline or cancel"),
        ("roots", "{}", "not valid for roots; write a JSON array of directories"),
        ("roots", "cancel", "The request for roots was declined"),
        ("sample", "decline", "The sampling request was declined"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_a_mistake(server, tool, answer, words):
    assert words in answered(server, tool, answer).error


@pytest.mark.parametrize(
    ("tool", "lines", "way_out"),
    [
        (
            "order",
            ["What do you want?", "size: (one of these: small, large)"],
            "--answer size=small",
        ),
        ("confirm", ["Really?"], "--answer accept or --answer decline"),
        ("page", ["Pay there.", "https://pay.example/1"], "--answer accept"),
        ("sample", ["user: Say hi."], "--answer 'the text of the model'"),
        ("roots", ["Which directories"], "--answer '[\"/a/directory\"]'"),
    ],
)
def test_without_a_terminal_the_question_is_shown_with_the_way_to_answer(
    server, tool, lines, way_out
):
    message = fails("call", tool, "--server", server.name)
    assert message.startswith("Server 'The shop' asks for input, but no terminal is available")
    for line in lines:
        assert f"\n  {line}" in message
    assert way_out in message


def test_the_example_of_an_answer_is_one(server):
    message = fails("call", "order", "--server", server.name)
    example = message.partition("--answer ")[2].partition(" ")[0]
    assert answered(server, "order", example).status == 0


def test_a_client_that_cannot_be_asked_declares_nothing(server):
    @server.tool
    def declared(ctx: Context) -> list[bool]:
        """Say what the client can be asked for."""
        names = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots")
        return [ctx.supports(name) for name in names]

    where = ("call", "declared", "--server", server.name)
    assert json.loads(run(*where).out) == [True, True, True, False, True]
    assert json.loads(run(*where, "--no-input").out) == [False] * 5
    assert "-32021" in fails("call", "order", "--server", server.name, "--no-input")
