"""The files of the record: each part of an answer, and the places at which it was observed.

A file has the cases of a group. Each part of an observation (`PARTS`) is written once for all
places at which it was the same. Places are written as lists of mounts, of revisions and of callers,
which stand for every combination of them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.matrix.callers import CALLERS
from tests.matrix.cases import ALL, HTTP, MOUNTS, NEW, OLD, SSE, SSE_VERSION, USUAL, WITH_STAFF

FOLDER = Path(__file__).parent / "recorded"
PARTS = ("status", "headers", "body", "calls", "spans", "signals")
LONG = WIDTH = 100
COMMAND = "MCP_RECORD=1 python -m pytest -n 0 --ring all tests/matrix/test_record.py"

Place = tuple[str, str, str]
"""Mount, revision, caller."""
Values = dict[str, dict[str, dict[Place, Any]]]
"""By case and part, the value at each place."""

_ORDERS: tuple[tuple[str, ...], ...] = (MOUNTS, ALL, tuple(CALLERS))
_SHORT: tuple[dict[str, tuple[str, ...]], ...] = (
    {"http": HTTP, "all": MOUNTS},
    {"new": NEW, "old": OLD, "all": ALL},
    {"usual": USUAL, "with staff": WITH_STAFF, "all": tuple(CALLERS)},
)


# Places -------------------------------------------------------------------------------------------


def write_places(places: Iterable[Place]) -> str:
    """Return the text for some places."""
    mounts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for mount, version, caller in places:
        mounts[version, caller].add(mount)
    for (version, _), mount_names in mounts.items():
        if mount_names == {*MOUNTS} - {SSE} and version != SSE_VERSION:
            # All mounts that exist at this revision.
            mount_names.add(SSE)
    versions: dict[tuple[frozenset[str], str], set[str]] = defaultdict(set)
    for (version, caller), mount_names in mounts.items():
        versions[frozenset(mount_names), caller].add(version)
    callers: dict[tuple[frozenset[str], frozenset[str]], set[str]] = defaultdict(set)
    for (frozen_mounts, caller), version_names in versions.items():
        callers[frozen_mounts, frozenset(version_names)].add(caller)
    lines = [
        " | ".join(_write_axis(axis, names) for axis, names in enumerate((*key, names)))
        for key, names in callers.items()
    ]
    return "; ".join(sorted(lines))


def _write_axis(axis: int, names: Iterable[str]) -> str:
    given = set(names)
    for short, meant in _SHORT[axis].items():
        if given == set(meant):
            return short
    return " ".join(sorted(given, key=_ORDERS[axis].index))


def read_places(text: str, *, mount: str = "", version: str = "") -> set[Place]:
    """Return the places of a text: all, or those of a mount and a revision."""
    places = set()
    for line in text.split("; "):
        mounts, versions, callers = (
            _read_axis(axis, names) for axis, names in enumerate(line.split(" | "))
        )
        places |= {
            (at_mount, at_version, caller)
            for at_mount in _only(mount, mounts)
            for at_version in _only(version, versions)
            for caller in callers
            if at_mount != SSE or at_version == SSE_VERSION
        }
    return places


def _only(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return names if not name else (name,) if name in names else ()


def _read_axis(axis: int, names: str) -> tuple[str, ...]:
    return _SHORT[axis].get(names) or tuple(names.split())


# Files --------------------------------------------------------------------------------------------


def read_group(group: str, *, mount: str = "", version: str = "") -> Values:
    """Return the record of a group of cases: all, or that of a mount and a revision.

    A value that is equal at several places is one object.
    """
    return {
        case: {
            part: {
                place: value
                for where, value in every.items()
                for place in read_places(where, mount=mount, version=version)
            }
            for part, every in parts.items()
        }
        for case, parts in _written(group).items()
    }


@cache
def _written(group: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return a file of the record, with its long texts joined; a file has thousands of lines."""
    path = FOLDER / f"{group}.json"
    written = json.loads(path.read_text()) if path.exists() else {}
    for parts in written.values():
        for part, every in parts.items():
            for where, value in every.items():
                every[where] = _joined(part, value)
    return dict(written)


def write_group(group: str, values: Values) -> None:
    """Write the file of a group."""
    written = {
        case: {part: _shared(part, parts.get(part, {})) for part in PARTS}
        for case, parts in values.items()
        if any(parts.values())
    }
    (FOLDER / f"{group}.json").write_text(f"{_dump(written)}\n")
    _written.cache_clear()


def _dump(value: Any, indent: str = "") -> str:
    """Return JSON in which each value that fits on one line is on one line."""
    text = json.dumps(value)
    if len(text) + len(indent) <= WIDTH or not isinstance(value, dict | list):
        return text
    inner = f"{indent} "
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {_dump(member, inner)}" for key, member in value.items()]
        opened, closed = "{}"
    else:
        lines = [_dump(member, inner) for member in value]
        opened, closed = "[]"
    return "\n".join([opened, ",\n".join(inner + line for line in lines), indent + closed])


def _shared(part: str, values: Mapping[Place, Any]) -> dict[str, Any]:
    """Return each value once, by its places."""
    places: dict[str, list[Place]] = defaultdict(list)
    for place, value in values.items():
        places[json.dumps(value)].append(place)
    values_by_places = {
        write_places(where): _split(part, json.loads(text)) for text, where in places.items()
    }
    return dict(sorted(values_by_places.items()))


def _split(part: str, value: Any) -> Any:
    """Return a value with its long text in pieces, so that a difference is a line."""
    if part != "body" or len(value) <= LONG:
        return value
    return re.split(r"(?<=[\[,])(?=\{)|(?<=\n)(?=.)", value)


def _joined(part: str, value: Any) -> Any:
    return "".join(value) if part == "body" else value


def replace_place(values: Values, mount: str, version: str, seen: Values) -> Values:
    """Return the values, with those of a mount and a revision replaced, in the order of `seen`."""

    def elsewhere(case: str, part: str) -> dict[Place, Any]:
        known = values.get(case, {}).get(part, {})
        return {place: v for place, v in known.items() if place[:2] != (mount, version)}

    return {
        case: {part: elsewhere(case, part) | parts.get(part, {}) for part in PARTS}
        for case, parts in seen.items()
    }


# Differences --------------------------------------------------------------------------------------


def compare(values: Values, mount: str, version: str, seen: Values) -> list[str]:
    """Return each difference between the record and what was seen at a mount and a revision."""
    differences = []
    for case in [*seen, *(set(values) - set(seen))]:
        for part in PARTS:
            known = values.get(case, {}).get(part, {})
            expected = {place: v for place, v in known.items() if place[:2] == (mount, version)}
            got = seen.get(case, {}).get(part, {})
            for place in sorted({*expected, *got}):
                if place not in expected:
                    differences.append(f"{_named(case, place, part)} is not recorded")
                elif place not in got:
                    differences.append(
                        f"{_named(case, place, part)} is recorded, but was not asked for"
                    )
                elif expected[place] != got[place]:
                    text = _difference(part, expected[place], got[place])
                    differences.append(f"{_named(case, place, part)}\n{text}")
    return differences


def _named(case: str, place: Place, part: str) -> str:
    mount, version, caller = place
    return f"request {case!r}, mount {mount}, revision {version}, caller {caller}: {part}"


def _difference(part: str, expected: Any, got: Any) -> str:
    before, after = (_dump(_split(part, value)).splitlines() for value in (expected, got))
    return "\n".join(difflib.unified_diff(before, after, "recorded", "now", lineterm="", n=2))
