"""The record detects every change, and reports its place."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.matrix import rules
from tests.matrix.cases import ALL, MOUNTS, Case
from tests.matrix.recording import (
    FOLDER,
    PARTS,
    Place,
    Values,
    compare,
    read_group,
    read_places,
    replace_place,
    write_places,
)
from tests.matrix.test_record import GROUPS

PLACE: Place = ("raw", "2025-11-25", "member")
CASE = "fail: bug"
NAMED = f"request {CASE!r}, mount raw, revision 2025-11-25, caller member: "


def seen_at(values: Values, mount: str, version: str) -> Values:
    """Return the record of a mount and a revision, as a test would observe it."""
    return {
        case: {
            part: {
                place: copy.deepcopy(value)
                for place, value in known.items()
                if place[:2] == (mount, version)
            }
            for part, known in parts.items()
        }
        for case, parts in values.items()
    }


@pytest.fixture
def recorded():
    """A group of the record."""
    return read_group("calls")


@pytest.fixture
def seen(recorded):
    """The values that were observed at one place, equal to the record."""
    values = seen_at(recorded, *PLACE[:2])
    assert compare(recorded, *PLACE[:2], values) == []
    return values


def change_status(parts: dict[str, Any]) -> None:
    parts["status"][PLACE] += 1


def change_byte(parts: dict[str, Any]) -> None:
    parts["body"][PLACE] = parts["body"][PLACE].replace("server error", "server Error")


def change_space(parts: dict[str, Any]) -> None:
    parts["body"][PLACE] += " "


def add_header(parts: dict[str, Any]) -> None:
    parts["headers"][PLACE].append("x-new: 1")


def change_column(parts: dict[str, Any]) -> None:
    parts["calls"][PLACE][0]["outcome"] = "error"


def lose_row(parts: dict[str, Any]) -> None:
    parts["calls"][PLACE].pop()


def change_attribute(parts: dict[str, Any]) -> None:
    parts["spans"][PLACE][0]["attributes"]["error.type"] = "RuntimeError"


def lose_signal(parts: dict[str, Any]) -> None:
    parts["signals"][PLACE].pop(0)


@pytest.mark.parametrize(
    ("change", "part", "text"),
    [
        (change_status, "status", "201"),
        (change_byte, "body", "server Error"),
        (change_space, "body", "} "),
        (add_header, "headers", "x-new: 1"),
        (change_column, "calls", '"outcome": "error"'),
        (lose_row, "calls", '-  "kind": "tool"'),
        (change_attribute, "spans", "RuntimeError"),
        (lose_signal, "signals", "call_started"),
    ],
)
def test_a_change_is_named(change, part, text, recorded, seen):
    change(seen[CASE])
    (difference,) = compare(recorded, *PLACE[:2], seen)
    assert difference.startswith(f"{NAMED}{part}\n")
    assert text in difference


def test_a_request_that_is_not_recorded_is_named(recorded, seen):
    del recorded[CASE]["status"][PLACE]
    (difference,) = compare(recorded, *PLACE[:2], seen)
    assert difference == f"{NAMED}status is not recorded"


def test_a_request_that_is_not_sent_any_more_is_named(recorded, seen):
    del seen[CASE]
    differences = compare(recorded, *PLACE[:2], seen)
    assert f"{NAMED}status is recorded, but was not asked for" in differences


def test_recording_changes_only_its_own_place(recorded, seen):
    change_status(seen[CASE])
    values = replace_place(recorded, *PLACE[:2], seen)
    assert values[CASE]["status"][PLACE] == seen[CASE]["status"][PLACE]
    values[CASE]["status"][PLACE] = recorded[CASE]["status"][PLACE]
    assert values == recorded


def test_places_are_written_and_read():
    places = {
        ("raw", "2026-07-28", "member"),
        ("wsgi", "2026-07-28", "member"),
        ("raw", "2025-11-25", "member"),
        ("wsgi", "2025-11-25", "member"),
        ("sse", "2024-11-05", "staff"),
    }
    text = write_places(places)
    assert text == "raw wsgi | 2026-07-28 2025-11-25 | member; sse | 2024-11-05 | staff"
    assert read_places(text) == places


@pytest.mark.parametrize("group", GROUPS)
def test_every_place_has_one_value_and_no_other_place_has_any(group):
    written = json.loads((FOLDER / f"{group}.json").read_text())
    assert list(written) == list(GROUPS[group])
    for name, parts in written.items():
        assert list(parts) == list(PARTS)
        all_places = places_of(GROUPS[group][name])
        with_status = {place for place in all_places if place[0] not in ("memory", "stdio")}
        for part, by_places in parts.items():
            places = [place for where in by_places for place in read_places(where)]
            expected = with_status if part in ("status", "headers") else all_places
            # A place to which a request no longer applies stays recorded until the file is deleted.
            assert (len(places), set(places)) == (len(expected), expected), (name, part)


def places_of(case: Case) -> set[Place]:
    """Return the places to which a request is sent."""
    return {
        (mount, version, caller)
        for mount in MOUNTS
        for version in ALL
        if case.applies(mount, version)
        for caller in case.callers_at(mount)
    }


def test_the_record_has_no_other_files():
    assert {path.stem for path in FOLDER.iterdir()} == set(GROUPS)


CONTEXT = {"mount": "raw", "version": "2025-11-25", "caller": "member"}


def test_what_follows_from_the_place_is_left_out_and_anything_else_is_not():
    usual = rules._usual_columns(rules.Context(**CONTEXT))
    row = {**rules.DEFAULTS, **usual, "outcome": "ok"}
    assert rules.replace_columns(row, **CONTEXT) == {"outcome": "ok"}
    for name in usual:
        assert rules.replace_columns({**row, name: ""}, **CONTEXT) == {"outcome": "ok", name: ""}
    other = {"user_name": "stan", "server": "matrix-open"}
    assert rules.replace_columns({**row, **other}, **CONTEXT) == {"outcome": "ok", **other}


def test_an_attribute_that_is_missing_is_recorded():
    usual = rules._usual_attributes(rules.Context(**CONTEXT), "tools/call", "add")
    assert rules.replace_attributes("tools/call add", usual, **CONTEXT) == {}
    for name in usual:
        less = {k: v for k, v in usual.items() if k != name}
        attributes = rules.replace_attributes("tools/call add", less, **CONTEXT)
        assert attributes == {name: "<missing>"}


def test_a_length_is_that_of_the_body_or_recorded():
    right, wrong = ([("content-length", length)] for length in ("4", "5"))
    assert rules.replace_headers(right, "body", **CONTEXT) == [
        "content-length: <length of the body>"
    ]
    assert rules.replace_headers(wrong, "body", **CONTEXT) == ["content-length: 5"]


@pytest.mark.parametrize("rule", rules.TEXTS, ids=lambda rule: rule.replacement)
def test_every_rule_has_a_reason_and_is_needed(rule):
    assert rule.reason
    named = rule.replacement.rpartition("<")[2]
    texts = [(FOLDER / f"{group}.json").read_text() for group in GROUPS]
    assert any(f"<{named}".rstrip('"') in text for text in texts)
