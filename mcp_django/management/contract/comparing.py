"""Two contracts, and what changed from the one to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcp_django.management.contract import components
from mcp_django.management.contract.change import Change, Level
from mcp_django.management.contract.document import PLURALS, SERVERS
from mcp_django.management.contract.guarding import guarding

Entry = Mapping[str, Any]
WORDS = ("title", "description", "instructions", "website_url", "icons")


def changes_between(old: Entry, new: Entry) -> list[Change]:
    """The changes, those that ask most of others first."""
    found = [
        change
        for name in sorted({*old[SERVERS], *new[SERVERS]})
        for change in _server(name, old[SERVERS].get(name), new[SERVERS].get(name))
    ]
    return sorted(found, key=lambda one: (-one.level, one.where, one.what))


def _server(name: str, old: Entry | None, new: Entry | None) -> Iterator[Change]:
    where = (name,)
    if old is None or new is None:
        level, what = (Level.SAFE, "is new") if old is None else (Level.BREAKING, "is gone")
        yield Change(level=level, where=where, what=f"the server {what}")
        return
    for word in WORDS:
        if old.get(word) != new.get(word):
            yield Change(level=Level.APPROVAL, where=where, what=f"other {word}")
    for level, what in guarding(old, new):
        yield Change(level=level, where=where, what=what)
    for plural in PLURALS:
        yield from _table(name, plural, old.get(plural, {}), new.get(plural, {}))


def _table(
    server: str, plural: str, old: Mapping[str, Entry], new: Mapping[str, Entry]
) -> Iterator[Change]:
    """The components of one kind; one whose name another answers to now was renamed."""
    answering = {alias: key for key, one in new.items() for alias in one.get("aliases", ())}
    answering |= {key: key for key in new}
    came_of: set[str] = set()
    for key, before in old.items():
        where = (server, plural, key)
        present = answering.get(key)
        if present is None:
            what = "is gone, and no alias of it left: what replaces it may have it in aliases=[...]"
            yield Change(level=Level.BREAKING, where=where, what=what)
            continue
        came_of.add(present)
        if present != key:
            what = f"is called {present} now, and answers to its former name"
            yield Change(level=Level.APPROVAL, where=where, what=what)
        for level, what in components.changes(plural, before, new[present]):
            yield Change(level=level, where=(server, plural, present), what=what)
        for alias in before.get("aliases", ()):
            if answering.get(alias) != present:
                what = f"answers no more to its former name {alias}"
                yield Change(level=Level.BREAKING, where=(server, plural, present), what=what)
    for key in new:
        if key not in came_of:
            yield Change(level=Level.SAFE, where=(server, plural, key), what="is new")
