"""``Rate``: how often something may be used, and by whom together.

Written ``"100/h"``: a hundred times an hour by each user. ``"client: 10/30s"`` counts each client
of a user for itself, ``"all: 10000/d"`` everybody together. A quota is a rate with a long period.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

Of = Literal["user", "client", "all"]
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
# The longest time that a cache can be asked to keep a number for without surprises (memcached).
MAX_SECONDS = 30 * 24 * 3600
_RATE = re.compile(
    r"(?:(?P<of>user|client|all)\s*:\s*)?(?P<count>[0-9]{1,9})\s*/\s*(?P<length>[0-9]{0,7})(?P<unit>[smhd])"
)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` uses within ``seconds``, by each user, each client of a user, or by all."""

    count: int
    seconds: int
    of: Of = "user"

    def __str__(self) -> str:
        unit, size = next(
            (unit, size) for unit, size in reversed(UNITS.items()) if self.seconds % size == 0
        )
        length = self.seconds // size
        whose = "" if self.of == "user" else f"{self.of}: "
        return f"{whose}{self.count}/{'' if length == 1 else length}{unit}"


def parse(text: str) -> Rate:
    """A rate as it is written.

    Raises:
        ValueError: it is none; the message says what to write.
    """
    found = _RATE.fullmatch(text.strip())
    seconds = int(found["length"] or 1) * UNITS[found["unit"]] if found else 0
    if found is None or not 0 < seconds <= MAX_SECONDS:
        raise ValueError(
            f"{text!r} is no rate: write '100/h', 'client: 10/30s' or 'all: 10000/d', with a "
            "period of 1s to 30d"
        )
    return Rate(int(found["count"]), seconds, cast(Of, found["of"] or "user"))


def parse_all(texts: str | Iterable[str]) -> tuple[Rate, ...]:
    """Several rates: a list of them, or one text with commas in between; empty for none.

    Raises:
        ValueError: one of them is none.
    """
    each = texts.split(",") if isinstance(texts, str) else texts
    return tuple(parse(text) for text in each if text.strip())
