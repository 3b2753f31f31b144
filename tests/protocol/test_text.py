"""Texts of others: shortened, escaped, stored, exported, and compared with known names."""

import csv
from datetime import UTC, datetime

import pytest

from mcp_django.protocol.revisions import V2025_11_25
from mcp_django.protocol.text import (
    clip,
    csv_line,
    did_you_mean,
    escape_invisible,
    nearest,
    one_line,
    similar,
    storable,
)


def test_clipping_leaves_short_text_and_shortens_long_text():
    assert clip("short") == "short"
    assert clip("x" * 80) == "x" * 80
    assert clip("x" * 10_000) == "x" * 79 + "…"
    assert clip(V2025_11_25.version, limit=5) == "2025…"


def test_a_database_can_store_any_text_of_a_json_value():
    assert storable({"a\0": ["\ud800", 1, None]}) == {"a\ufffd": ["?", 1, None]}


def test_invisible_characters_are_escaped_and_joiners_are_not():
    assert escape_invisible("a\u202eb\0\ud800") == "a\\u{202e}b\\u{0}\\u{d800}"
    assert escape_invisible("a\u200db") == escape_invisible("a\u200db", lines=False) == "a\u200db"


def test_lines_are_escaped_where_a_text_has_to_be_one_line():
    assert escape_invisible("a\n\tb\r") == "a\n\tb\\u{d}"
    assert escape_invisible("a\n\tb", lines=False) == "a\\u{a}\\u{9}b"
    assert one_line("a\nb") == "a\\u{a}b"
    assert one_line("\n" * 10, limit=6) == "\\u{a}…"
    assert one_line("x" * 10, limit=10) == "x" * 10


@pytest.mark.parametrize("blank", ["", " ", "\xa0", "\u3000", "\u200b", "\ufeff", " \t "])
@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_a_cell_is_not_a_formula(sign, blank):
    assert csv_line([f"{blank}{sign}1"]) == f'"\'{blank}{sign}1"\r\n'


@pytest.mark.parametrize("character", ["\t", "\r", "\n"])
def test_a_cell_begins_no_other_cell(character):
    assert csv_line([f"{character}1"]) == f'"\'{character}1"\r\n'


def test_a_text_stays_one_cell_where_another_separator_is_used():
    line = csv_line(["a;=1+1\t=1+1", 'say "no"'])
    assert next(csv.reader([line], delimiter=";")) == ['a;=1+1\t=1+1,"say ""no"""']


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("a=1", '"a=1"'),
        ("", '""'),
        (-1, "-1"),
        (None, '""'),
        ({"é": [1]}, '"{""é"": [1]}"'),
        (datetime(2026, 7, 28, tzinfo=UTC), '"2026-07-28T00:00:00+00:00"'),
    ],
)
def test_other_cells_are_as_they_are(value, cell):
    assert csv_line([value, value]) == f"{cell},{cell}\r\n"


def test_the_nearest_name_is_one_that_is_similar():
    known = ["list_orders", "list_order", "get_order"]
    assert nearest("list_ordes", known) == "list_orders"
    assert nearest("zzz", known) is None
    assert nearest(5, known) is None
    assert nearest("list_ordes", known, cutoff=1) is None
    assert similar("list_ordes", known) == ["list_orders", "list_order", "get_order"]


def test_a_hint_names_the_nearest_or_says_something_else():
    assert did_you_mean("lst", ["list"], "write a name.") == "did you mean 'list'?"
    assert did_you_mean("zzz", ["list"], "write a name.") == "write a name."
