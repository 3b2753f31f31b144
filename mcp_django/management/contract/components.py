"""What changed in one component that is there before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcp_django.management.contract.change import Level
from mcp_django.management.contract.guarding import guarding
from mcp_django.management.contract.schema_changes import schema_changes

Found = tuple[Level, str]
Entry = Mapping[str, Any]

KEYS = frozenset({"name", "uri", "uriTemplate"})
"""What tells components apart; another one is told of as another name."""
ELSEWHERE = frozenset({"inputSchema", "outputSchema", "arguments", "execution", "mimeType", "size"})
NO_TASK = "forbidden"


def changes(plural: str, old: Entry, new: Entry) -> Iterator[Found]:
    """The changes of one component."""
    if old.get("digest") == new.get("digest"):
        return
    before, after = old["definition"], new["definition"]
    yield from guarding(old, new)
    for alias in new.get("aliases", ()):
        if alias not in old.get("aliases", ()) and alias not in _keys(before):
            yield Level.SAFE, f"answers to {alias} as well"
    yield from _input(plural, old, new)
    yield from _output(before, after)
    yield from _execution(before, after)
    for name in sorted({*before, *after} - ELSEWHERE - KEYS):
        if before.get(name) != after.get(name):
            yield Level.APPROVAL, f"other {name}{_members(before.get(name), after.get(name))}"
    if plural in ("resources", "templates") and before.get("name") != after.get("name"):
        # A tool or prompt is called by its name, and a resource by its address.
        yield Level.APPROVAL, "other name"
    if before.get("mimeType") != after.get("mimeType"):
        was, now = before.get("mimeType", "not given"), after.get("mimeType", "not given")
        yield Level.BREAKING, f"the MIME type was {was}, is {now}"
    if before.get("size") != after.get("size"):
        yield Level.SAFE, "another size"


def _keys(definition: Entry) -> list[Any]:
    return [definition[name] for name in KEYS if name in definition]


def _input(plural: str, old: Entry, new: Entry) -> Iterator[Found]:
    if plural == "tools":
        before, after = old["definition"], new["definition"]
        yield from schema_changes(before.get("inputSchema"), after.get("inputSchema"), "input")
    elif "arguments" in old or "arguments" in new:
        empty = {"type": "object", "properties": {}}
        yield from schema_changes(old.get("arguments", empty), new.get("arguments", empty), "input")


def _output(before: Entry, after: Entry) -> Iterator[Found]:
    old, new = before.get("outputSchema"), after.get("outputSchema")
    if new is None and old is not None:
        yield Level.BREAKING, "output: it has no schema any more"
    elif old is None and new is not None:
        # Nothing was promised, and hosts read the new words.
        yield Level.APPROVAL, "output: it has a schema now"
    elif old is not None:
        yield from schema_changes(old, new, "output")


def _execution(before: Entry, after: Entry) -> Iterator[Found]:
    """Whether a call may, must or must not become a task."""
    old, new = before.get("execution") or {}, after.get("execution") or {}
    was, now = (one.get("taskSupport", NO_TASK) for one in (old, new))
    if was != now:
        # What was done one way has to be possible still.
        level = Level.SAFE if now == "optional" else Level.BREAKING
        yield level, f"as a task: was {was}, is {now}"
    rest = ({k: v for k, v in one.items() if k != "taskSupport"} for one in (old, new))
    if len({str(sorted(one.items())) for one in rest}) > 1:
        yield Level.APPROVAL, "other execution"


def _members(old: Any, new: Any) -> str:
    """The members of an object that differ, as far as that is worth saying."""
    if not isinstance(old or {}, dict) or not isinstance(new or {}, dict):
        return ""
    before, after = old or {}, new or {}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f": {', '.join(names)}" if names else ""
