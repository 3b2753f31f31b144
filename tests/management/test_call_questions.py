"""Questions in the middle of `manage.py mcp call`, put to the person at the terminal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_django import Context
from mcp_django.exceptions import ElicitationDeclined
from tests.management.asking import answered, asking_server, call_at_terminal, done
from tests.management.console import fails, run, server_of, terminal

# A tool that can ask runs in a transaction, so that a round with a question is rolled back.
pytestmark = pytest.mark.django_db


@pytest.fixture
def server():
    return asking_server()


def test_a_form_is_filled_in_field_by_field(server):
    outcome = call_at_terminal(server, "order", "", "2", "3", "yes", "fragile", "bow, 3", "y")
    assert outcome.out == (
        "Order(size='large', count=3, gift=True, note='fragile', extras=['bow', 'wrap'])\n"
    )
    text = outcome.err
    assert "Server 'The shop' asks:\nWhat do you want?\nAnswer? [Y/n/c] " in text
    assert "size: Of the box\n    1  small\n    2  large\n    one of these: " in text
    assert "a whole number, at least 1, at most 9 [2]: " in text
    assert "yes or no [no]: " in text
    assert "text, may be empty: " in text
    assert "    3  wrap\n    some of these, separated by commas, may be empty: " in text
    assert '"note": "fragile"' in text


def test_nothing_typed_means_the_default(server):
    outcome = call_at_terminal(server, "order", "y", "small", "", "", "", "", "")
    assert outcome.out == "Order(size='small', count=2, gift=False, note=None, extras=[])\n"


def test_what_does_not_fit_is_asked_again(server):
    lines = ["y", "", "huge", "large", "ten", "10", "9", "perhaps", "no", "", "ribbon", "card", "y"]
    outcome = call_at_terminal(server, "order", *lines)
    assert outcome.out == "Order(size='large', count=9, gift=False, note=None, extras=['card'])\n"
    assert "A value is required." in outcome.err
    assert "'huge' is not one of: small, large." in outcome.err
    assert "Write a whole number, at least 1, at most 9." in outcome.err
    assert "Write a whole number, at least 1, at most 9." in outcome.err
    assert "Write yes or no." in outcome.err
    assert "'ribbon' is not one of: bow, card, wrap." in outcome.err


def test_formats_are_checked(server):
    lines = [
        *("y", "soon", "2026-02-30", "2026-03-01", "noon", "2026-03-01T12:00:00Z"),
        *("nan", "1.5", "ada", "ada@example.com", "ab", "abcde", "abc", "y"),
    ]
    outcome = call_at_terminal(server, "visit", *lines)
    assert "mail='ada@example.com', code='abc'" in outcome.out
    assert "day=datetime.date(2026, 3, 1)" in outcome.out
    assert "price=1.5" in outcome.out
    assert outcome.err.count("Write a date (2026-03-01).") == 2
    assert "Write a date and time (2026-03-01T14:30:00Z)." in outcome.err
    assert "Write a number." in outcome.err
    assert "Write an e-mail address." in outcome.err
    assert outcome.err.count("Write text, at least 3 characters, at most 4 characters.") == 2


COLORS = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
HANDWRITTEN = {
    "type": "object",
    "properties": {
        "one": {"type": "string", "title": "Your color", "oneOf": COLORS},
        "some": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"anyOf": COLORS}},
        "old": {"type": "string", "enum": ["a", "b"], "enumNames": ["Ah", "Be"], "default": "b"},
        "link": {"type": "string", "format": "uri"},
        "price": {"type": "number", "maximum": 10, "default": 2.5},
    },
    "required": ["one", "some", "link"],
}


def test_choices_have_titles_and_values():
    server = server_of()

    @server.tool
    def tool(ctx: Context) -> dict[str, Any]:
        """Ask."""
        answer: dict[str, Any] = ctx.elicit("Which?", HANDWRITTEN)
        return answer

    lines = ["y", "green", "red, green", "2", "", "no link", "https://x.example", "lots", "11", ""]
    outcome = call_at_terminal(server, "tool", *lines, "y")
    assert json.loads(outcome.out) == {
        "one": "#0f0",
        "some": ["#0f0"],
        "old": "b",
        "link": "https://x.example",
        "price": 2.5,
    }
    assert "  Your color\n    1  Red\n    2  Green\n" in outcome.err
    assert "Choose some of these, separated by commas, at least 1, at most 1." in outcome.err
    assert "one of these [b]: " in outcome.err
    assert "Write a URI." in outcome.err
    assert outcome.err.count("Write a number, at most 10.") == 2
    message = fails("call", "tool", "--server", server.name)
    assert "  one: Your color (one of these: #f00 (Red), #0f0 (Green))\n" in message
    assert "Answer with --answer 'one=#f00'" in message


def test_answers_are_reviewed_and_changed_before_they_are_sent(server):
    first = ["small", "1", "yes", "first", "bow"]
    second = ["large", "", "", "", ""]
    outcome = call_at_terminal(server, "order", "y", *first, "e", *second, "")
    assert outcome.out == (
        "Order(size='large', count=1, gift=True, note='first', extras=['bow'])\n"
    )
    assert outcome.err.count("Send? [Y/e/n/c] ") == 2


@pytest.mark.parametrize(
    ("typed", "answer"), [("n", "decline"), ("no", "decline"), ("c", "cancel"), ("C", "cancel")]
)
def test_a_question_can_be_refused(server, typed, answer):
    @server.tool
    def refused(ctx: Context) -> str:
        """Say how it was refused."""
        try:
            ctx.elicit("Really?")
        except ElicitationDeclined as exc:
            return exc.action
        return "accept"

    assert call_at_terminal(server, "refused", typed).out == f"{answer}\n"
    for tool in ("order", "confirm", "page"):
        outcome = call_at_terminal(server, tool, typed)
        assert (outcome.out, outcome.status) == (answered(server, tool, answer).out, 1)


def test_answers_can_be_refused_at_the_last_moment(server):
    outcome = call_at_terminal(server, "order", "y", "small", "", "", "", "", "n")
    assert (outcome.out, outcome.status) == ("The user declined to answer.\n", 1)


def test_a_letter_that_means_nothing_is_explained(server):
    outcome = call_at_terminal(server, "confirm", "x", "y")
    assert outcome.out == "done\n"
    assert "Enter: continue, n: decline, c: cancel." in outcome.err


def test_the_end_of_the_input_cancels(server):
    outcome = call_at_terminal(server, "order", "y", "small", ended=True)
    cancelled = answered(server, "order", "cancel")
    assert (outcome.out, outcome.status) == (cancelled.out, 1)
    for tool in ("sample", "roots"):
        outcome = call_at_terminal(server, tool, ended=True)
        assert outcome.error == "The request was not answered, so the call ended."


def test_a_page_is_shown_with_its_host_and_waited_for(server):
    # Whether the user is done: before the question, and after each answer.
    done[:] = [False, False, True]
    outcome = call_at_terminal(server, "page", "", "")
    assert outcome.out == "paid\n"
    assert "Pay there.\n  https://pay.example/1\n" in outcome.err
    assert outcome.err.count("Open this page of pay.example, then press Enter. [Y/n/c] ") == 2


def test_a_model_is_played_by_whoever_is_there(server):
    outcome = call_at_terminal(server, "sample", "", "Hi,", "there.", "")
    assert outcome.out == "Hi,\nthere.|mcp-call|endTurn\n"
    assert "system: Be brief.\nuser: Say hi.\n(at most 50 tokens)\n" in outcome.err
    outcome = call_at_terminal(server, "sample", "n")
    assert (outcome.out, outcome.status) == ("", 1)
    assert "was declined" in outcome.error


def test_directories_are_read_one_a_line(server, tmp_path):
    outcome = call_at_terminal(server, "roots", str(tmp_path), str(tmp_path / "none"), "")
    assert json.loads(outcome.out) == [tmp_path.as_uri()]
    assert f"No directory named {str(tmp_path / 'none')!r}." in outcome.err


def test_several_rounds_follow_each_other(server):
    assert call_at_terminal(server, "number", "y", "20", "y", "22").out == "42\n"


def test_only_the_answer_is_on_the_standard_output(server):
    with terminal("y", "20", "y", "22") as stdin:
        outcome = run("call", "number", "--server", server.name, "--json", stdin=stdin)
    assert json.loads(outcome.out)["result"]["content"] == [{"type": "text", "text": "42"}]


def test_a_question_cannot_draw_on_the_terminal():
    server = server_of()

    @server.tool
    def tool(ctx: Context) -> str:
        """Ask."""
        ctx.elicit("Clear\x1b[2J?")
        return "done"

    outcome = call_at_terminal(server, "tool", "y")
    assert "Clear\\x1b[2J?" in outcome.err
