"""The numbers of the charts: calls over time and by component, counted by the database.

Whatever the log holds, a page costs five queries at most: two for where to begin, one over time,
two by component.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, QuerySet
from django.db.models.functions import TruncHour, TruncMinute
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.charts_histogram import MILLISECONDS, Bins
from mcp_django.admin.figures import FAILURES
from mcp_django.models import Call

Outcome = Call.Outcome

# Of a busier log the newest are counted, so that a page is there within seconds on any database.
MAX_CALLS = 100_000
MAX_COMPONENTS = 20

REFUSALS = (Outcome.UNKNOWN, Outcome.REFUSED, Outcome.LIMITED, Outcome.DENIED)
# What ran to an end of its own; a refusal takes no time, and one that was cancelled says nothing.
TIMED = Q(outcome__in=(Outcome.OK, Outcome.ERROR, Outcome.FAILED, Outcome.TIMEOUT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """How far back, in steps of how long; ``trunc`` is what the database groups by."""

    slug: str
    title: Any
    length: timedelta
    step: timedelta
    trunc: Any


RANGES = {
    one.slug: one
    for one in (
        Range(
            slug="hour",
            title=_("Last hour"),
            length=timedelta(hours=1),
            step=timedelta(minutes=1),
            trunc=TruncMinute,
        ),
        Range(
            slug="day",
            title=_("Last day"),
            length=timedelta(days=1),
            step=timedelta(hours=1),
            trunc=TruncHour,
        ),
        Range(
            slug="week",
            title=_("Last week"),
            length=timedelta(days=7),
            step=timedelta(hours=6),
            trunc=TruncHour,
        ),
    )
}


@dataclass(slots=True, kw_only=True)
class Tally:
    """Calls of a span of time, or of a component."""

    calls: int = 0
    errors: int = 0
    refused: int = 0
    bins: Bins = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count what the database says of one bin."""
        self.calls += row["n"]
        self.errors += row["errors"]
        self.refused += row["refused"]
        self.bins[row["bin"]] += row["n"]

    @property
    def ok(self) -> int:
        """Those that neither failed nor were refused."""
        return self.calls - self.errors - self.refused

    @property
    def error_rate(self) -> float:
        """The share of errors."""
        return self.errors / self.calls if self.calls else 0.0

    @property
    def median(self) -> float | None:
        """About how many milliseconds half of them took at most."""
        return MILLISECONDS.quantile(self.bins, 0.5)

    @property
    def p95(self) -> float | None:
        """About how many milliseconds all but every twentieth took at most."""
        return MILLISECONDS.quantile(self.bins, 0.95)


@dataclass(slots=True, kw_only=True)
class Point(Tally):
    """A step of a range."""

    at: datetime


@dataclass(slots=True, kw_only=True)
class Used(Tally):
    """A component of a server."""

    server: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the charts draw; ``cut`` is from when on calls are counted, if not from ``since``."""

    range: Range
    since: datetime
    cut: datetime | None
    points: Sequence[Point]
    components: Sequence[Used]

    @property
    def total(self) -> Tally:
        """All that is counted."""
        whole = Tally()
        for point in self.points:
            whole.calls += point.calls
            whole.errors += point.errors
            whole.refused += point.refused
            whole.bins += point.bins
        return whole


def newest(calls: QuerySet[Call], since: datetime) -> tuple[QuerySet[Call], datetime | None]:
    """The calls since then; of more than ``MAX_CALLS`` the newest, and from when on those are.

    The index by time has no server in it. So where one server is asked for, the cut is that of the
    whole log: it leaves of a busy server a little less than there could be, and is found at once.
    """
    calls = calls.filter(at__gte=since).order_by()
    if calls[: MAX_CALLS + 1].count() <= MAX_CALLS:
        return calls, None
    times = Call._default_manager.order_by("-at").values_list("at", flat=True)
    # None, where the log was pruned a moment ago.
    cut = next(iter(times[MAX_CALLS : MAX_CALLS + 1]), None)
    return (calls, None) if cut is None else (calls.filter(at__gt=cut), cut)


def numbers(span: Range, *, server: str | None = None, now: datetime | None = None) -> Numbers:
    """The numbers of a range that ends now, of one server or of all."""
    now = now or timezone.now()
    since = _floor(now, span.step) - span.length + span.step
    calls = Call._default_manager.all()
    calls = calls if server is None else calls.filter(server=server)
    counted, cut = newest(calls, since)
    return Numbers(
        range=span,
        since=since,
        cut=cut,
        points=_over_time(counted, span, since, cut),
        components=_by_component(counted),
    )


COUNTS = {
    "n": Count("pk"),
    "errors": Count("pk", filter=Q(outcome__in=FAILURES)),
    "refused": Count("pk", filter=Q(outcome__in=REFUSALS)),
}


def _over_time(
    calls: QuerySet[Call], span: Range, since: datetime, cut: datetime | None
) -> list[Point]:
    steps = [since + number * span.step for number in range(int(span.length / span.step))]
    # Of what is before the cut nothing is known, which is not the same as no calls.
    points = {at: Point(at=at) for at in steps if cut is None or at + span.step > cut}
    # In UTC, which every database can without tables of time zones.
    zone = UTC if settings.USE_TZ else None
    found = (
        calls.annotate(
            moment=span.trunc("at", tzinfo=zone), bin=MILLISECONDS.bin_of("ms", counted=TIMED)
        )
        .values("moment", "bin")
        .annotate(**COUNTS)
    )
    for row in found:
        point = points.get(_floor(row["moment"], span.step))
        # One that was written while this page was made may be newer than its end.
        if point is not None:
            point.add(row)
    return list(points.values())


def _by_component(calls: QuerySet[Call]) -> list[Used]:
    """The components that were used most."""
    # A name that is no component's was made up by whoever called.
    known = calls.exclude(outcome=Outcome.UNKNOWN)
    names = ("server", "kind", "component")
    most = known.values(*names).annotate(n=Count("pk")).order_by("-n", *names)[:MAX_COMPONENTS]
    used = {
        tuple(row[name] for name in names): Used(
            server=row["server"], kind=row["kind"], key=row["component"]
        )
        for row in most
    }
    found = (
        known.filter(component__in={key for _, _, key in used})
        .annotate(bin=MILLISECONDS.bin_of("ms", counted=TIMED))
        .values(*names, "bin")
        .annotate(**COUNTS)
    )
    for row in found:
        one = used.get(tuple(row[name] for name in names))
        if one is not None:
            one.add(row)
    return list(used.values())


def _floor(moment: datetime, step: timedelta) -> datetime:
    """The beginning of the step that a moment is in."""
    began = datetime(2000, 1, 1, tzinfo=moment.tzinfo and UTC)
    return moment - (moment - began) % step
