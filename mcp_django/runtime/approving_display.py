"""What is kept of a call that waits, as pages show it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a dry run answered, as a page shows it."""

    changes: tuple[tuple[str, str, str], ...] = ()
    """Fields with what was and what would be."""
    rest: tuple[tuple[str, str], ...] = ()
    is_too_large: bool = False

    @classmethod
    def of(cls, kept: Any) -> Preview | None:
        """A preview as it is kept; ``None`` where there is none."""
        if kept is None:
            return None
        if not isinstance(kept, dict):
            return cls(rest=(("", text(kept)),))
        if kept.get("too_large") is True:
            return cls(is_too_large=True)
        kept = {name: value for name, value in kept.items() if name != "preview"}
        changes = kept.pop("changes", {})
        if not isinstance(changes, dict):
            changes, kept = {}, {**kept, "changes": changes}
        return cls(
            changes=tuple(_change(name, one) for name, one in changes.items()),
            rest=lines(kept),
        )


def _change(name: str, change: Any) -> tuple[str, str, str]:
    if not isinstance(change, dict):
        return name, "", text(change)
    return name, text(change.get("from")), text(change.get("to"))


def lines(values: Any) -> tuple[tuple[str, str], ...]:
    """The members of an object with their values as text."""
    return tuple((name, text(value)) for name, value in values.items())


def text(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)
