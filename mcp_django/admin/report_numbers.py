"""The numbers of the tool quality report: what each component of a server was like to use.

A page costs eight queries at most, whatever the log and the server hold: where to begin (two),
outcomes and sizes, bins of time, bins of bytes, wrong arguments, what was used before the counted
calls, and the rows of the components that are linked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Avg, Count, Q, QuerySet
from django.utils import timezone

from mcp_django.admin.charts_histogram import BYTES, MILLISECONDS, NOT_COUNTED, Bins, Scale
from mcp_django.admin.charts_numbers import TIMED, newest
from mcp_django.admin.figures import FAILURES
from mcp_django.management.facts import BYTES_PER_TOKEN
from mcp_django.models import Call, Component
from mcp_django.server import MCPServer

Outcome = Call.Outcome
Name = tuple[str, str]
"""Kind and key."""

# Wrong arguments are read from so many calls, the newest.
MAX_INVALID = 5_000
# Of a component that failed once in one call nobody knows anything yet.
MIN_CALLS = 5
SHOWN = 20


@dataclass(slots=True, kw_only=True)
class Quality:
    """What one component was like to use in a period."""

    kind: str
    key: str
    pk: int | None = None
    """Of its row in the admin, if it has one."""
    is_offered: bool = False
    was_used: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)
    mean_bytes: float | None = None
    times: Bins = field(default_factory=Counter)
    sizes: Bins = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    """How often each argument did not fit, by its path."""

    @property
    def calls(self) -> int:
        """How often it was called."""
        return self.outcomes.total()

    @property
    def failures(self) -> int:
        """How often that came to nothing but an error."""
        return sum(self.outcomes[one] for one in FAILURES)

    @property
    def failure_rate(self) -> float:
        """The share of those."""
        return self.failures / self.calls if self.calls else 0.0

    @property
    def invalid(self) -> int:
        """Calls with arguments that did not fit."""
        return self.outcomes[Outcome.INVALID]

    @property
    def refused(self) -> int:
        """Calls that were not let through, or not approved."""
        return self.outcomes[Outcome.REFUSED] + self.outcomes[Outcome.DENIED]

    @property
    def limited(self) -> int:
        """Calls that came too often."""
        return self.outcomes[Outcome.LIMITED]

    @property
    def p95_bytes(self) -> float | None:
        """About how many bytes all but every twentieth answer has at most."""
        return BYTES.quantile(self.sizes, 0.95)

    @property
    def tokens(self) -> int | None:
        """About how much of a model's context an answer takes; an estimate by its bytes."""
        return None if self.mean_bytes is None else round(self.mean_bytes / BYTES_PER_TOKEN)

    @property
    def median_ms(self) -> float | None:
        """About how many milliseconds half of the calls took at most."""
        return MILLISECONDS.quantile(self.times, 0.5)

    @property
    def p95_ms(self) -> float | None:
        """About how many milliseconds all but every twentieth took at most."""
        return MILLISECONDS.quantile(self.times, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The components of a server; ``cut`` is from when on calls are counted, if not ``since``."""

    since: datetime
    cut: datetime | None
    every: tuple[Quality, ...]

    @property
    def never_used(self) -> list[Quality]:
        """What is offered and nobody called."""
        return [one for one in self.every if one.is_offered and not one.was_used]

    @property
    def failing(self) -> list[Quality]:
        """The highest rates of errors first."""
        found = [one for one in self.every if one.calls >= MIN_CALLS and one.failures]
        return sorted(found, key=lambda one: (-one.failure_rate, -one.failures))[:SHOWN]

    @property
    def wrong(self) -> list[tuple[Quality, str, int]]:
        """The arguments that models get wrong most often."""
        found = [(one, path, n) for one in self.every for path, n in one.wrong.items()]
        return sorted(found, key=lambda row: (-row[2], row[0].key, row[1]))[:SHOWN]

    @property
    def biggest(self) -> list[Quality]:
        """The longest answers first."""
        found = [one for one in self.every if one.mean_bytes is not None]
        return sorted(found, key=lambda one: -(one.p95_bytes or 0))[:SHOWN]

    @property
    def slowest(self) -> list[Quality]:
        """What takes longest first."""
        found = [one for one in self.every if one.p95_ms is not None]
        return sorted(found, key=lambda one: -(one.p95_ms or 0))[:SHOWN]

    @property
    def refused(self) -> list[Quality]:
        """What callers were kept from most often."""
        found = [one for one in self.every if one.refused or one.limited]
        return sorted(found, key=lambda one: -(one.refused + one.limited))[:SHOWN]


def report(server: MCPServer, period: timedelta, *, now: datetime | None = None) -> Report:
    """The report of a server over a period that ends now."""
    since = (now or timezone.now()) - period
    # A name that is no component's was made up by whoever called.
    all_calls = Call._default_manager.filter(server=server.name).exclude(outcome=Outcome.UNKNOWN)
    calls, cut = newest(all_calls, since)
    found = _offered(server)
    _count_outcomes(calls, found)
    _count_bins(calls, found, "ms", MILLISECONDS, TIMED)
    _count_bins(calls, found, "bytes", BYTES, Q(outcome=Outcome.OK))
    _count_wrong(calls, found)
    if cut is not None:
        _see_what_was_used(all_calls.filter(at__gte=since), found)
    _find_rows(server.name, found)
    every = sorted(found.values(), key=lambda one: (one.kind, one.key))
    return Report(since=since, cut=cut, every=tuple(every))


def _offered(server: MCPServer) -> dict[Name, Quality]:
    return {
        (one.kind, one.key): Quality(kind=one.kind, key=one.key, is_offered=True)
        for one in server.offered
    }


def _of(found: dict[Name, Quality], row: Mapping[str, Any]) -> Quality:
    """The component that a row is about; one that left the code is in the report all the same."""
    name = (row["kind"], row["component"])
    return found.setdefault(name, Quality(kind=name[0], key=name[1]))


def _count_outcomes(calls: QuerySet[Call], found: dict[Name, Quality]) -> None:
    rows = calls.values("kind", "component", "outcome").annotate(n=Count("pk"), mean=Avg("bytes"))
    for row in rows:
        one = _of(found, row)
        one.was_used = True
        one.outcomes[row["outcome"]] += row["n"]
        if row["outcome"] == Outcome.OK:
            one.mean_bytes = row["mean"]


def _count_bins(
    calls: QuerySet[Call], found: dict[Name, Quality], column: str, scale: Scale, counted: Q
) -> None:
    rows = (
        calls.annotate(bin=scale.bin_of(column, counted=counted))
        .exclude(bin=NOT_COUNTED)
        .values("kind", "component", "bin")
        .annotate(n=Count("pk"))
    )
    for row in rows:
        one = _of(found, row)
        bins = one.times if column == "ms" else one.sizes
        bins[row["bin"]] += row["n"]


def _count_wrong(calls: QuerySet[Call], found: dict[Name, Quality]) -> None:
    invalid = calls.filter(outcome=Outcome.INVALID).order_by("-at")
    for row in invalid.values("kind", "component", "problems")[:MAX_INVALID]:
        _of(found, row).wrong.update(set(_paths(row["problems"])))


def _paths(problems: Any) -> Iterable[str]:
    """The paths of the arguments that did not fit."""
    return (str(one) for one in problems) if isinstance(problems, list) else ()


def _see_what_was_used(calls: QuerySet[Call], found: dict[Name, Quality]) -> None:
    """Look for what is not among the counted calls in all of the period, by an index."""
    unseen = [one.key for one in found.values() if not one.was_used]
    rows = calls.filter(component__in=unseen).order_by().values_list("kind", "component")
    for name in rows.distinct():
        if name in found:
            found[name].was_used = True


def _find_rows(server: str, found: dict[Name, Quality]) -> None:
    rows = Component._default_manager.filter(server=server).values_list("kind", "key", "pk")
    for kind, key, pk in rows:
        if (kind, key) in found:
            found[kind, key].pk = pk
