"""`manage.py mcp call --answer NAME=VALUE`: the fields of forms, from the command line."""

import pytest

from tests.management.asking import answered, asking_server
from tests.management.console import attempt, run, terminal

# A tool that can ask runs in a transaction, so that a round with a question is rolled back.
pytestmark = pytest.mark.django_db


@pytest.fixture
def server():
    return asking_server()


def test_fields_are_filled_in_by_name_and_the_rest_is_the_default(server):
    assert answered(server, "order", "size=large").out == (
        "Order(size='large', count=2, gift=False, note=None, extras=[])\n"
    )
    named = ("extras=bow, card", "gift=yes", "note=a=b c", "count=3", "size=small")
    assert answered(server, "order", *named).out == (
        "Order(size='small', count=3, gift=True, note='a=b c', extras=['bow', 'card'])\n"
    )
    assert answered(server, "order", "size=small", 'extras=["wrap"]', "count=", "note=").out == (
        "Order(size='small', count=2, gift=False, note=None, extras=['wrap'])\n"
    )


def test_values_are_read_by_the_schema_of_the_question(server):
    named = ("day=2026-03-01", "at=2026-03-01T14:30:00Z", "price=1.5", "mail=a@example.com")
    out = answered(server, "visit", *named, "code=abc").out
    assert "day=datetime.date(2026, 3, 1)" in out
    assert "price=1.5" in out


def test_a_name_that_is_asked_for_again_takes_the_next_answer(server):
    assert answered(server, "number", "value=20", "value=22").out == "42\n"
    assert answered(server, "number", "value=20", '{"value": 22}').out == "42\n"
    outcome = answered(server, "number", "value=20")
    assert outcome.status == 1
    assert "Another one?" in outcome.error
    assert "--answer value=1" in outcome.error


def test_a_value_that_does_not_fit_is_told_with_what_is_still_open(server):
    outcome = answered(server, "order", "size=small", "count=12", "gift=maybe")
    assert outcome.status == 1
    assert outcome.error == (
        "--answer count=12: Write a whole number, at least 1, at most 9.\n"
        "--answer gift=maybe: Write yes or no.\n"
        "Not answered yet:\n"
        "  count: (a whole number, at least 1, at most 9)\n"
        "  gift: (yes or no)\n"
        "  note: (text, may be empty)\n"
        "  extras: (some of these, separated by commas, may be empty: bow, card, wrap)"
    )


@pytest.mark.parametrize(
    ("tool", "answer", "words"),
    [
        ("order", "size=huge", "'huge' is not one of: small, large."),
        ("order", "size=", "--answer size=: A value is required."),
        ("order", "count=many", "count=many: Write a whole number"),
        ("order", 'extras=["tape"]', "'tape' is not one of: bow, card, wrap."),
        ("visit", "day=tomorrow", "Write a date (2026-03-01)."),
        ("visit", "price=NaN", "price=NaN: Write a number."),
        ("visit", "price=1e999", "Write a number."),
        ("visit", "code=toolong", "Write text, at least 3 characters, at most 4 characters"),
        pytest.param("visit", f"price={'9' * 99_999}x", "…: Write a number.", id="long"),
    ],
)
def test_each_rule_is_named(server, tool, answer, words):
    outcome = answered(server, tool, answer)
    assert outcome.status == 1
    assert words in outcome.error
    assert len(outcome.error) < 2000


def test_a_field_that_is_needed_and_not_given_is_asked_for(server):
    outcome = answered(server, "order", "gift=yes")
    assert outcome.status == 1
    assert "Answer with --answer size=small or --answer decline" in outcome.error
    assert "gift" not in outcome.error


def test_the_terminal_is_asked_for_what_is_left_open(server):
    with terminal("y", "3", "", "", "y") as stdin:
        answers = ("--answer", "size=large", "--answer", "gift=yes")
        outcome = attempt("call", "order", "--server", server.name, *answers, stdin=stdin)
    assert outcome.out == "Order(size='large', count=3, gift=True, note=None, extras=[])\n"
    assert "size" not in outcome.err
    with terminal("n") as stdin:
        answers = ("--answer", "size=large")
        outcome = attempt("call", "order", "--server", server.name, *answers, stdin=stdin)
    assert outcome.out == "The user declined to answer.\n"


def test_an_answer_that_nothing_asked_for_is_a_warning_after_a_success(server):
    answers = ("--answer", "size=small", "--answer", "siez=large", "--answer", "accept")
    outcome = run("call", "order", "--server", server.name, *answers)
    assert outcome.out.startswith("Order(size='small'")
    assert outcome.err == (
        "No request used --answer siez=large. Did you mean size?\n"
        "No request used --answer accept.\n"
    )


def test_an_answer_that_nothing_asked_for_is_part_of_the_error(server):
    outcome = answered(server, "order", "siez=large")
    assert outcome.status == 1
    assert "size: (one of these: small, large)" in outcome.error
    assert outcome.error.endswith("No request used --answer siez=large. Did you mean size?")


def test_what_has_no_fields_says_that_it_takes_no_names(server):
    for tool in ("sample", "roots"):
        outcome = answered(server, tool, "x=1")
        assert outcome.status == 1
        assert "(NAME=VALUE is for form fields only)" in outcome.error
        assert "No request used --answer x=1." in outcome.error
    assert answered(server, "sample", '"x=1"').out.startswith("x=1|")


def test_all_questions_of_a_round_are_told(server):
    outcome = answered(server, "several")
    assert "user: Say hi." in outcome.error
    assert "Requested at the same time:\n  Which directories do you work in?" in outcome.error
