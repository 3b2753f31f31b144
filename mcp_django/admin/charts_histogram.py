"""Medians and 95th percentiles of many rows, counted by the database in bins.

Databases have no common function for them, and sorting a million rows is no work for a page. The
bounds of the bins grow by the factor 10^(1/5), about 1.6, so what is read off lies within that
factor of the true value, and mostly much closer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from django.db.models import Case, IntegerField, Q, Value, When

PER_DECADE = 5
NOT_COUNTED = -1


class Scale:
    """Bins from ``first`` on, over so many powers of ten; the last one is open above."""

    def __init__(self, first: float, *, decades: int) -> None:
        steps = range(decades * PER_DECADE + 1)
        self.bounds = tuple(first * 10 ** (step / PER_DECADE) for step in steps)

    def bin_of(self, field: str, *, counted: Q) -> Case:
        """The expression that says in which bin a row is, ``NOT_COUNTED`` for the others."""
        within = [
            When(**{f"{field}__lt": bound}, then=Value(number))
            for number, bound in enumerate(self.bounds)
        ]
        left_out = ~counted | Q(**{f"{field}__isnull": True})
        return Case(
            When(left_out, then=Value(NOT_COUNTED)),
            *within,
            default=Value(len(self.bounds)),
            output_field=IntegerField(),
        )

    def quantile(self, bins: Mapping[int, int], share: float) -> float | None:
        """The value below which this share of the rows is; ``None`` where there are no rows."""
        counted = sorted((number, n) for number, n in bins.items() if number != NOT_COUNTED and n)
        rank = share * sum(n for _, n in counted)
        for number, n in counted:
            if rank <= n:
                return self._within(number, rank / n)
            rank -= n
        return self._within(counted[-1][0], 1.0) if counted else None

    def _within(self, number: int, share: float) -> float:
        if number >= len(self.bounds):
            return self.bounds[-1]
        if number == 0:
            return self.bounds[0] * share
        low, high = self.bounds[number - 1], self.bounds[number]
        return low * float((high / low) ** share)


Bins = Counter[int]
"""How many rows are in each bin."""

MILLISECONDS = Scale(1, decades=6)
BYTES = Scale(10, decades=7)
