"""Statistics of the call log: counts, medians and 95th percentiles, in a few queries per page.

The cost is bounded, whatever the size of the log: the figures of components and servers take a few
queries, a page of charts at most five, and the quality report at most six. Charts and report count
at most the newest ``MAX_CALLS`` calls.

The counts and medians of components and servers read only the last day of the log, and no rows of
other components. Counts come from an index alone. The median is that of the latest calls, since an
exact median would need all calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from operator import or_
from statistics import fmean, median, quantiles
from typing import Any, NamedTuple

from django.db import router
from django.db.models import (
    Case,
    Count,
    Exists,
    IntegerField,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.execution.handlers.entries import BYTES_PER_TOKEN
from mcp_django.models import Call, Component
from mcp_django.server import MCPServer
from mcp_django.tenants import of_tenant

WINDOW = timedelta(days=1)
MEDIAN_SAMPLE_SIZE = 100
"""The number of latest calls from which the median of a component is computed."""

Outcome = Call.Outcome
FAILURES = (Outcome.ERROR, Outcome.INVALID, Outcome.FAILED, Outcome.TIMEOUT)
"""The outcomes that count as errors of a component; a refusal depends on its caller."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentFigures:
    """The calls of one component in the last day; ``ms`` is the median of the latest ones."""

    calls: int = 0
    errors: int = 0
    ms: float | None = None


NO_FIGURES = ComponentFigures()


def component_figures(components: Sequence[Component]) -> dict[Key, ComponentFigures]:
    """Return the figures of called components by server, kind and key, in three queries."""
    if not components:
        return {}
    since = timezone.now() - WINDOW
    calls_since = of_tenant(Call).filter(
        server__in={component.server for component in components},
        component__in={component.key for component in components},
        at__gte=since,
    )
    rows = calls_since.order_by().values("server", "kind", "component")
    rows = rows.annotate(calls=Count("*"), errors=Count("outcome", filter=Q(outcome__in=FAILURES)))
    columns = ("server", "kind", "component", "calls", "errors")
    counted = {_key(names): (calls, errors) for *names, calls, errors in rows.values_list(*columns)}
    medians = _medians(components, counted, since)
    return {
        key: ComponentFigures(calls=calls, errors=errors, ms=medians.get(key))
        for key, (calls, errors) in counted.items()
    }


def _key(names: Sequence[str]) -> Key:
    server, kind, component = names
    return server, kind, component


def _medians(
    components: Sequence[Component], counted: Collection[Key], since: datetime
) -> dict[Key, float]:
    """Return the median time of the ``MEDIAN_SAMPLE_SIZE`` latest calls of each component."""
    if not counted:
        return {}
    sample_starts: dict[Key, datetime] = {}
    # One query cannot read two databases.
    if router.db_for_read(Call) == router.db_for_read(Component):
        calls = of_tenant(Call).filter(
            server=OuterRef("server"),
            component=OuterRef("key"),
            kind=OuterRef("kind"),
            at__gte=since,
        )
        nth = calls.order_by("-at").values("at")[MEDIAN_SAMPLE_SIZE - 1 : MEDIAN_SAMPLE_SIZE]
        pks = [row.pk for row in components if (row.server, row.kind, row.key) in counted]
        rows = of_tenant(Component).filter(pk__in=pks).order_by().annotate(nth=Subquery(nth))
        for *names, at in rows.values_list("server", "kind", "key", "nth"):
            if at is not None:
                sample_starts[_key(names)] = at
    ranges = [
        Q(server=key[0], kind=key[1], component=key[2], at__gte=sample_starts.get(key, since))
        for key in counted
    ]
    times: dict[Key, list[float]] = defaultdict(list)
    latest = of_tenant(Call).filter(reduce(or_, ranges)).exclude(ms=None).order_by()
    # Calls with the same time can exceed ``MEDIAN_SAMPLE_SIZE`` per component.
    limit = 2 * MEDIAN_SAMPLE_SIZE * len(ranges)
    for *names, ms in latest.values_list("server", "kind", "component", "ms")[:limit]:
        if ms is not None:
            times[_key(names)].append(ms)
    return {key: median(sample) for key, sample in times.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """The calls of one server in the last day, its last call, and its components by kind."""

    calls: int = 0
    last_at: datetime | None = None
    components: tuple[tuple[str, int], ...] = ()


def server_figures(names: Sequence[str]) -> dict[str, ServerFigures]:
    """Return the figures by server, in three queries."""
    since = timezone.now() - WINDOW
    calls = of_tenant(Call).order_by().values("server")
    recent = {
        name: (count, last)
        # For all servers: with a filter by server, a database may scan all of their calls.
        for name, count, last in calls.filter(at__gte=since)
        .annotate(count=Count("*"), last=Max("at"))
        .values_list("server", "count", "last")
    }
    quiet = [name for name in names if name not in recent]
    earlier = dict(
        calls.filter(server__in=quiet).annotate(last=Max("at")).values_list("server", "last")
    )
    # The number of components in the code by server and kind, in the order of kinds.
    kinds: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(Component.Kind.values, 0))
    rows = of_tenant(Component).filter(server__in=names, missing_since=None).order_by()
    counted = rows.values("server", "kind").annotate(count=Count("*"))
    for name, kind, count in counted.values_list("server", "kind", "count"):
        kinds[name][kind] = count
    return {
        name: ServerFigures(
            calls=recent.get(name, (0, None))[0],
            last_at=recent[name][1] if name in recent else earlier.get(name),
            components=tuple(kinds[name].items()),
        )
        for name in names
    }


# Medians and percentiles from bins ----------------------------------------------------------------

# Databases have no common percentile function, and sorting a million rows takes too long for a
# page. So the database counts the rows in bins. The bounds of the bins grow by the factor
# 10^(1/5), about 1.6, so a quantile is within that factor of the true value, and usually much
# closer. If there are at most ``MAX_EXACT`` calls, their values are read, and quantiles are exact.

PER_DECADE = 5
NOT_COUNTED = -1
MAX_EXACT = 1000
# A 95th percentile of fewer values says nothing about the slowest twentieth.
MIN_PERCENTILE = 20


class LogScale:
    """Logarithmic bins from ``first`` on, over ``decades`` powers of ten and an open last bin."""

    def __init__(self, first: float, *, decades: int) -> None:
        steps = range(decades * PER_DECADE + 1)
        self.bounds = tuple(first * 10 ** (step / PER_DECADE) for step in steps)

    def bin_of(self, field: str, *, counted: Q) -> Case:
        """Return the expression for the bin of a row, which is ``NOT_COUNTED`` for other rows."""
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
        """Return the value below which this share of the rows lies, or ``None`` without rows."""
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
"""The number of rows in each bin."""

MILLISECONDS = LogScale(1, decades=6)
BYTES = LogScale(10, decades=7)


@dataclass(slots=True)
class Distribution:
    """The values of a column: in bins, or if there are few of them the values themselves."""

    scale: LogScale
    bins: Bins = field(default_factory=Counter)
    values: list[float] = field(default_factory=list)

    def add(self, other: Distribution) -> None:
        """Add the values of another distribution."""
        self.bins += other.bins
        self.values += other.values

    def use_bins(self) -> None:
        """Replace the values by their bins, so that quantiles agree with those of the charts."""
        self.bins.update(bisect_right(self.scale.bounds, value) for value in self.values)
        self.values.clear()

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values) or sum(
            n for number, n in self.bins.items() if number != NOT_COUNTED
        )

    @property
    def median(self) -> float | None:
        """The median, which is approximate if computed from bins; ``None`` without values."""
        return median(self.values) if self.values else self.scale.quantile(self.bins, 0.5)

    @property
    def p95(self) -> float | None:
        """The 95th percentile; ``None`` if there are fewer than ``MIN_PERCENTILE`` values."""
        if self.count < MIN_PERCENTILE:
            return None
        if self.values:
            return quantiles(self.values, n=20, method="inclusive")[-1]
        return self.scale.quantile(self.bins, 0.95)


Times = partial(Distribution, MILLISECONDS)
Sizes = partial(Distribution, BYTES)


# Calls over time and by component -----------------------------------------------------------------

# The numbers of the charts. A page takes at most five queries: two for the start time, one over
# time, two by component.

# Only this many of the newest calls are counted, so that a page loads within seconds.
MAX_CALLS = 100_000
MAX_COMPONENTS = 20

REFUSALS = (Outcome.UNKNOWN, Outcome.REFUSED, Outcome.LIMITED, Outcome.DENIED)
COUNTS = {
    "n": Count("pk"),
    "errors": Count("pk", filter=Q(outcome__in=FAILURES)),
    "refused": Count("pk", filter=Q(outcome__in=REFUSALS)),
}
# Calls that ran to completion; the time of refused or cancelled calls is meaningless.
COMPLETED_OUTCOMES = (Outcome.OK, Outcome.ERROR, Outcome.FAILED, Outcome.TIMEOUT)
COMPLETED = Q(outcome__in=COMPLETED_OUTCOMES)


class Range(NamedTuple):
    """A time range and its steps."""

    slug: str
    title: Any
    length: timedelta
    step: timedelta


RANGES = {
    span.slug: span
    for span in (
        Range("hour", _("Last hour"), timedelta(hours=1), timedelta(minutes=1)),
        Range("day", _("Last day"), timedelta(days=1), timedelta(hours=1)),
        Range("week", _("Last week"), timedelta(days=7), timedelta(hours=6)),
    )
}


@dataclass(slots=True, kw_only=True)
class CallCounts:
    """The numbers of calls in a span of time, or of a component."""

    calls: int = 0
    errors: int = 0
    refused: int = 0
    times: Distribution = field(default_factory=Times)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one row of a query, which has the numbers of one bin."""
        self.calls += row["n"]
        self.errors += row["errors"]
        self.refused += row["refused"]
        self.times.bins[row["bin"]] += row["n"]

    def add_call(self, outcome: str, ms: float | None) -> None:
        """Add one call."""
        self.calls += 1
        self.errors += outcome in FAILURES
        self.refused += outcome in REFUSALS
        if ms is not None and outcome in COMPLETED_OUTCOMES:
            self.times.values.append(ms)

    @property
    def ok(self) -> int:
        """The number of calls that neither failed nor were refused."""
        return self.calls - self.errors - self.refused

    @property
    def median(self) -> float | None:
        """The median duration in milliseconds."""
        return self.times.median

    @property
    def p95(self) -> float | None:
        """The 95th percentile of the duration in milliseconds."""
        return self.times.p95


@dataclass(slots=True, kw_only=True)
class TimelinePoint(CallCounts):
    """The numbers of one step of a range."""

    at: datetime


@dataclass(slots=True, kw_only=True)
class ComponentCounts(CallCounts):
    """The numbers of one component."""

    server: str
    kind: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartData:
    """The numbers of the charts; if ``cut`` is set, only calls after it are counted."""

    range: Range
    since: datetime
    cut: datetime | None
    points: Sequence[TimelinePoint]
    components: Sequence[ComponentCounts]
    is_exact: bool = False
    """Whether median and percentile are exact, since there are at most ``MAX_EXACT`` calls."""

    @property
    def total(self) -> CallCounts:
        """The sum of all points."""
        total = CallCounts()
        for point in self.points:
            total.calls += point.calls
            total.errors += point.errors
            total.refused += point.refused
            total.times.add(point.times)
        return total


def _newest(calls: QuerySet[Call], since: datetime) -> tuple[QuerySet[Call], datetime | None]:
    """Return the calls since a time, and the time of the cut if there are more than ``MAX_CALLS``.

    The index by time does not contain the server. So the cut for one server is that of the whole
    log: it leaves fewer calls than possible, but finding the cut takes no scan.
    """
    calls = calls.filter(at__gte=since).order_by()
    if calls[: MAX_CALLS + 1].count() <= MAX_CALLS:
        return calls, None
    times = of_tenant(Call).order_by("-at").values_list("at", flat=True)
    # None if the log was pruned in the meantime.
    cut = next(iter(times[MAX_CALLS : MAX_CALLS + 1]), None)
    return (calls, None) if cut is None else (calls.filter(at__gt=cut), cut)


def build_chart_data(
    span: Range,
    *,
    server: str | None = None,
    component: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> ChartData:
    """Return the numbers of a range that ends now, of all servers, one server or one component.

    ``component`` has the ``kind`` and the ``key`` of a component.
    """
    now = now or timezone.now()
    since = _floor(now, span.step) - span.length + span.step
    calls = of_tenant(Call)
    calls = calls if server is None else calls.filter(server=server)
    if component is not None:
        calls = calls.filter(kind=component["kind"], component=component["key"])
    counted, cut = _newest(calls, since)
    call_values = _read_few(counted) if cut is None else None
    if call_values is None:
        points, components = _over_time(counted, span, since, cut), _by_component(counted)
    else:
        points_by_step = {at: TimelinePoint(at=at) for at in _steps(span, since)}
        for call in call_values:
            if point := points_by_step.get(_floor(call.at, span.step)):
                point.add_call(call.outcome, call.ms)
        points = [*points_by_step.values()]
        by_key: dict[Key, ComponentCounts] = {}
        for call in _read_few(_of_components(counted)) or ():
            key = (call.server, call.kind, call.component)
            new = ComponentCounts(server=call.server, kind=call.kind, key=call.component)
            by_key.setdefault(key, new).add_call(call.outcome, call.ms)
        ranking = sorted(by_key, key=lambda key: (-by_key[key].calls, key))
        components = [by_key[key] for key in ranking[:MAX_COMPONENTS]]
    return ChartData(
        range=span,
        since=since,
        cut=cut,
        points=points,
        components=components,
        is_exact=call_values is not None,
    )


class CallValues(NamedTuple):
    """The columns of a call from which the statistics of few calls are computed."""

    at: datetime
    server: str
    kind: str
    component: str
    outcome: str
    ms: float | None
    bytes: int | None


def _read_few(calls: QuerySet[Call]) -> list[CallValues] | None:
    """Return the calls if there are at most ``MAX_EXACT``."""
    rows = calls.values_list(*CallValues._fields)[: MAX_EXACT + 1]
    call_values = [CallValues(*row) for row in rows]
    return call_values if len(call_values) <= MAX_EXACT else None


def _of_components(calls: QuerySet[Call]) -> QuerySet[Call]:
    """Return the calls without those of unknown names: clients can send any name.

    Calls of an existing component that is hidden from the caller have the same outcome as calls of
    an unknown name, but are counted.
    """
    if router.db_for_read(Call) != router.db_for_read(Component):
        # One query cannot read two databases.
        return calls.exclude(outcome=Outcome.UNKNOWN)
    rows = of_tenant(Component).filter(
        server=OuterRef("server"), kind=OuterRef("kind"), key=OuterRef("component")
    )
    return calls.exclude(Q(outcome=Outcome.UNKNOWN) & ~Exists(rows.order_by()))


def _steps(span: Range, since: datetime) -> list[datetime]:
    return [since + number * span.step for number in range(int(span.length / span.step))]


def _over_time(
    calls: QuerySet[Call], span: Range, since: datetime, cut: datetime | None
) -> list[TimelinePoint]:
    # Steps before the cut are left out: their calls were not counted, which is not zero calls.
    points = [
        TimelinePoint(at=at) for at in _steps(span, since) if cut is None or at + span.step > cut
    ]
    # Comparisons are faster than Django's truncation, which SQLite runs in Python.
    ends = enumerate(point.at + span.step for point in points)
    step = Case(
        *(When(at__lt=end, then=Value(number)) for number, end in ends),
        # A call that was logged during this request may be after the last step.
        default=Value(NOT_COUNTED),
        output_field=IntegerField(),
    )
    bins = MILLISECONDS.bin_of("ms", counted=COMPLETED)
    for row in calls.annotate(step=step, bin=bins).values("step", "bin").annotate(**COUNTS):
        if row["step"] != NOT_COUNTED:
            points[row["step"]].add(row)
    return points


def _by_component(calls: QuerySet[Call]) -> list[ComponentCounts]:
    """Return the numbers of the most used components."""
    calls = _of_components(calls)
    names = ("server", "kind", "component")
    top_rows = calls.values(*names).annotate(n=Count("pk")).order_by("-n", *names)[:MAX_COMPONENTS]
    components = {
        tuple(row[name] for name in names): ComponentCounts(
            server=row["server"], kind=row["kind"], key=row["component"]
        )
        for row in top_rows
    }
    rows = (
        calls.filter(component__in={key for _, _, key in components})
        .annotate(bin=MILLISECONDS.bin_of("ms", counted=COMPLETED))
        .values(*names, "bin")
        .annotate(**COUNTS)
    )
    for row in rows:
        if component := components.get(tuple(row[name] for name in names)):
            component.add(row)
    return list(components.values())


def _floor(moment: datetime, step: timedelta) -> datetime:
    """Return the start of the step that contains a moment."""
    began = datetime(2000, 1, 1, tzinfo=moment.tzinfo and UTC)
    return moment - (moment - began) % step


# Numbers of the quality report --------------------------------------------------------------------

# A page takes at most six queries, whatever the size of the log and the server: the start time
# (two), the calls, invalid arguments, components that were used before the counted calls, and the
# rows of the linked components.

Name = tuple[str, str]
"""The kind and the key of a component."""

# Invalid arguments are read from at most this many calls, the newest.
MAX_INVALID = 5_000
# The error rate of fewer calls is not meaningful.
MIN_CALLS = 5
MAX_ROWS = 20


@dataclass(slots=True, kw_only=True)
class ComponentQuality:
    """The numbers of one component in a period."""

    kind: str
    key: str
    pk: int | None = None
    """The primary key of its row in the admin, if it has one."""
    is_in_catalog: bool = False
    was_used: bool = False
    outcomes: Counter[str] = field(default_factory=Counter)
    mean_bytes: float | None = None
    times: Distribution = field(default_factory=Times)
    sizes: Distribution = field(default_factory=Sizes)
    wrong: Counter[str] = field(default_factory=Counter)
    """How often each argument was invalid, by its path."""

    @property
    def calls(self) -> int:
        """The number of calls."""
        return self.outcomes.total()

    @property
    def failures(self) -> int:
        """The number of failed calls."""
        return sum(self.outcomes[outcome] for outcome in FAILURES)

    @property
    def failure_rate(self) -> float:
        """The share of failed calls, from 0 to 1."""
        return self.failures / self.calls if self.calls else 0.0

    @property
    def invalid(self) -> int:
        """The number of calls with invalid arguments."""
        return self.outcomes[Outcome.INVALID]

    @property
    def refused(self) -> int:
        """The number of calls that were refused, not approved, or hidden from the caller."""
        refused = (Outcome.REFUSED, Outcome.DENIED, Outcome.UNKNOWN)
        return sum(self.outcomes[outcome] for outcome in refused)

    @property
    def limited(self) -> int:
        """The number of calls above a rate limit."""
        return self.outcomes[Outcome.LIMITED]

    @property
    def p95_bytes(self) -> float | None:
        """The 95th percentile of the result size in bytes."""
        return self.sizes.p95

    @property
    def tokens(self) -> int | None:
        """The mean size of a result in tokens, estimated from its bytes."""
        return None if self.mean_bytes is None else round(self.mean_bytes / BYTES_PER_TOKEN)

    @property
    def median_ms(self) -> float | None:
        """The median duration in milliseconds."""
        return self.times.median

    @property
    def p95_ms(self) -> float | None:
        """The 95th percentile of the duration in milliseconds."""
        return self.times.p95


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """The components of a server; if ``cut`` is set, only calls after it are counted."""

    since: datetime
    cut: datetime | None
    every: tuple[ComponentQuality, ...]
    is_exact: bool = False
    """Whether median and percentile are exact, since there are at most ``MAX_EXACT`` calls."""

    @property
    def never_used(self) -> list[ComponentQuality]:
        """The components in the catalog without a call in the period."""
        return [
            component
            for component in self.every
            if component.is_in_catalog and not component.was_used
        ]

    @property
    def failing(self) -> list[ComponentQuality]:
        """The components with the highest error rates."""
        components = [
            component
            for component in self.every
            if component.calls >= MIN_CALLS and component.failures
        ]
        components.sort(key=lambda component: (-component.failure_rate, -component.failures))
        return components[:MAX_ROWS]

    @property
    def wrong(self) -> list[tuple[ComponentQuality, str, int]]:
        """The arguments that are invalid most often, with their numbers."""
        rows = [
            (component, path, n) for component in self.every for path, n in component.wrong.items()
        ]
        return sorted(rows, key=lambda row: (-row[2], row[0].key, row[1]))[:MAX_ROWS]

    @property
    def biggest(self) -> list[ComponentQuality]:
        """The components with the largest results."""
        components = [component for component in self.every if component.mean_bytes is not None]
        components.sort(key=lambda component: -(component.p95_bytes or component.mean_bytes or 0))
        return components[:MAX_ROWS]

    @property
    def slowest(self) -> list[ComponentQuality]:
        """The components with the longest durations."""
        components = [component for component in self.every if component.median_ms is not None]
        components.sort(key=lambda component: -(component.p95_ms or component.median_ms or 0))
        return components[:MAX_ROWS]

    @property
    def refused(self) -> list[ComponentQuality]:
        """The components with the most refused and rate-limited calls."""
        components = [
            component for component in self.every if component.refused or component.limited
        ]
        components.sort(key=lambda component: -(component.refused + component.limited))
        return components[:MAX_ROWS]


def build_quality_report(
    server: MCPServer, period: timedelta, *, now: datetime | None = None
) -> QualityReport:
    """Return the report of a server over a period that ends now."""
    since = (now or timezone.now()) - period
    all_calls = _of_components(of_tenant(Call).filter(server=server.name))
    calls, cut = _newest(all_calls, since)
    qualities = _Qualities()
    for component in server.catalog:
        qualities[component.kind, component.key].is_in_catalog = True
    is_exact = _add_calls(calls, qualities) <= MAX_EXACT and cut is None
    if not is_exact:
        for quality in qualities.values():
            quality.times.use_bins()
            quality.sizes.use_bins()
    invalid = calls.filter(outcome=Outcome.INVALID).order_by("-at")
    for row in invalid.values("kind", "component", "problems")[:MAX_INVALID]:
        paths = row["problems"] if isinstance(row["problems"], list) else ()
        qualities[row["kind"], row["component"]].wrong.update(set(map(str, paths)))
    if cut is not None:
        # Components may have been used in the period, but not in the counted calls.
        unused = [quality.key for quality in qualities.values() if not quality.was_used]
        used = all_calls.filter(at__gte=since).filter(component__in=unused).order_by()
        for name in used.values_list("kind", "component").distinct():
            if name in qualities:
                qualities[name].was_used = True
    rows = of_tenant(Component).filter(server=server.name).values_list("kind", "key", "pk")
    for kind, key, pk in rows:
        if (kind, key) in qualities:
            qualities[kind, key].pk = pk
    components = sorted(qualities.values(), key=lambda quality: (quality.kind, quality.key))
    return QualityReport(since=since, cut=cut, every=tuple(components), is_exact=is_exact)


class _Qualities(dict[Name, ComponentQuality]):
    """The components of a report; one that the code no longer declares is added on first access."""

    def __missing__(self, name: Name) -> ComponentQuality:
        quality = self[name] = ComponentQuality(kind=name[0], key=name[1])
        return quality


def _add_calls(calls: QuerySet[Call], qualities: _Qualities) -> int:
    """Add the outcomes, durations and sizes of calls, and return their number.

    The rows are counted in Python: to count the outcomes and bins of each component, the database
    takes three times as long.
    """
    number = 0
    rows = calls.values_list("kind", "component", "outcome", "ms", "bytes")
    for kind, key, outcome, ms, size in rows.iterator():
        number += 1
        quality = qualities[kind, key]
        quality.outcomes[outcome] += 1
        if ms is not None and outcome in COMPLETED_OUTCOMES:
            quality.times.values.append(ms)
        if size is not None and outcome == Outcome.OK:
            quality.sizes.values.append(size)
    for quality in qualities.values():
        quality.was_used = bool(quality.outcomes)
        quality.mean_bytes = fmean(quality.sizes.values) if quality.sizes.values else None
    return number
