"""``Change``: one difference between two contracts, and what it means to whoever uses the site."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How much a change asks of others.

    ``SAFE``: every call that was right still is, and every answer is what was promised.
    ``APPROVAL``: so too, but a person, or a host on behalf of one, approved other words.
    ``BREAKING``: some call or some reader of answers may fail; or nobody can tell.
    """

    SAFE = 0
    APPROVAL = 1
    BREAKING = 2

    @property
    def word(self) -> str:
        """What commands call it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``where`` is a server, or a component with its server; ``what`` says the rest."""

    level: Level
    where: tuple[str, ...]
    what: str
