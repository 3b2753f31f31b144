"""A driver's cursor that tells how many rows were fetched from it, and how long that took."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_django.runtime.governor.watch import Watch


class CountedCursor:
    """Stands where the driver's cursor stood in one cursor of Django's; all else is passed on."""

    def __init__(self, raw: Any, watch: Watch) -> None:
        self.raw = raw
        self.watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def fetchone(self) -> Any:
        """The next row."""
        return self._counted(self.raw.fetchone, _one)

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """The next rows."""
        return self._counted(lambda: self.raw.fetchmany(*args, **kwargs), len)

    def fetchall(self) -> Any:
        """All rows that are left; no more are read than may be."""
        left = self.watch.rows_left
        # One more than there may be is enough to be told so.
        return self.raw.fetchall() if left is None else self.fetchmany(left + 1)

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def _counted(self, fetch: Callable[[], Any], count: Callable[[Any], int]) -> Any:
        rows = self.watch.timed(fetch)
        self.watch.add_rows(count(rows))
        return rows


def _one(row: Any) -> int:
    return int(row is not None)
