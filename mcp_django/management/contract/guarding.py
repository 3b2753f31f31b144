"""Who may use what: stricter breaks somebody's access, and looser is for a person to see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mcp_django.management.contract.change import Level

Found = tuple[Level, str]


def guarding(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Found]:
    """What changed in the permissions, the scopes, and what a client must be able to."""
    yield from _listed("permission", "the permission", old, new, gone=Level.APPROVAL)
    yield from _listed("scopes", "the scope", old, new, gone=Level.APPROVAL)
    yield from _listed("needs", "a client with", old, new, gone=Level.SAFE)
    before, after = old.get("approval", ""), new.get("approval", "")
    if before != after:
        said = f"of {after}" if after else "of nobody"
        yield Level.APPROVAL, f"a call needs the approval {said} now"


def _listed(
    name: str, what: str, old: Mapping[str, Any], new: Mapping[str, Any], *, gone: Level
) -> Iterator[Found]:
    before, after = old.get(name, ()), new.get(name, ())
    for one in after:
        if one not in before:
            yield Level.BREAKING, f"needs {what} {one} now"
    for one in before:
        if one not in after:
            yield gone, f"needs {what} {one} no more"
