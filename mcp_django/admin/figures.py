"""What the call log says of the components on one page, and of servers, in a few queries.

Nothing here reads more of the log than the last day, nor rows of other components. Counts come from
an index alone. The median is that of the latest calls, since an exact one would read them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from statistics import median

from django.db import router
from django.db.models import Count, Max, OuterRef, Q, Subquery
from django.utils import timezone

from mcp_django.models import Call, Component

WINDOW = timedelta(days=1)
SAMPLE = 100
"""Of so many of its latest calls a component gets its median."""

Outcome = Call.Outcome
FAILURES = (Outcome.ERROR, Outcome.INVALID, Outcome.FAILED, Outcome.TIMEOUT)
"""What counts as an error of a component; a refusal says something of its caller."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The last day of one component; ``ms`` is the median of its latest calls."""

    calls: int = 0
    errors: int = 0
    ms: float | None = None


NONE = Figures()


def figures_of(components: Sequence[Component]) -> dict[Key, Figures]:
    """The figures by server, kind and key; those without a call are left out. Three queries."""
    if not components:
        return {}
    since = timezone.now() - WINDOW
    counted = _counted(components, since)
    medians = _medians(counted, _latest(components, counted, since), since)
    return {
        key: Figures(calls=calls, errors=errors, ms=medians.get(key))
        for key, (calls, errors) in counted.items()
    }


def _key(names: Sequence[str]) -> Key:
    server, kind, component = names
    return server, kind, component


def _counted(components: Sequence[Component], since: datetime) -> dict[Key, tuple[int, int]]:
    found = Call._default_manager.filter(
        server__in={one.server for one in components},
        component__in={one.key for one in components},
        at__gte=since,
    )
    rows = found.order_by().values("server", "kind", "component")
    rows = rows.annotate(calls=Count("*"), errors=Count("outcome", filter=Q(outcome__in=FAILURES)))
    columns = ("server", "kind", "component", "calls", "errors")
    return {_key(names): (calls, errors) for *names, calls, errors in rows.values_list(*columns)}


def _latest(
    components: Sequence[Component], counted: Container[Key], since: datetime
) -> dict[Key, datetime]:
    """From when on a component has as many calls as its median is made of, if it has more."""
    if router.db_for_read(Call) != router.db_for_read(Component):
        # Nothing can be asked of both at once.
        return {}
    calls = Call._default_manager.filter(
        server=OuterRef("server"), component=OuterRef("key"), kind=OuterRef("kind"), at__gte=since
    )
    nth = calls.order_by("-at").values("at")[SAMPLE - 1 : SAMPLE]
    called = [one.pk for one in components if (one.server, one.kind, one.key) in counted]
    rows = Component._default_manager.filter(pk__in=called).order_by().annotate(nth=Subquery(nth))
    found = rows.values_list("server", "kind", "key", "nth")
    return {_key(names): at for *names, at in found if at is not None}


def _medians(
    counted: Iterable[Key], latest: Mapping[Key, datetime], since: datetime
) -> dict[Key, float]:
    ranges = [
        Q(server=server, kind=kind, component=component, at__gte=latest.get(key, since))
        for key in counted
        for server, kind, component in [key]
    ]
    if not ranges:
        return {}
    times: dict[Key, list[float]] = defaultdict(list)
    rows = Call._default_manager.filter(reduce(or_, ranges)).exclude(ms=None).order_by()
    # Calls of one moment may be more than were asked for.
    most = 2 * SAMPLE * len(ranges)
    for *names, ms in rows.values_list("server", "kind", "component", "ms")[:most]:
        if ms is not None:
            times[_key(names)].append(ms)
    return {key: median(some) for key, some in times.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """The last day of one server, its last call ever, and how many components there are by kind."""

    calls: int = 0
    last_at: datetime | None = None
    components: tuple[tuple[str, int], ...] = ()


def figures_of_servers(names: Sequence[str]) -> dict[str, ServerFigures]:
    """The figures by server; three queries."""
    since = timezone.now() - WINDOW
    calls = Call._default_manager.order_by().values("server")
    recent = {
        name: (count, last)
        # Of all servers: asked for some of them, a database may go through all of their calls.
        for name, count, last in calls.filter(at__gte=since)
        .annotate(count=Count("*"), last=Max("at"))
        .values_list("server", "count", "last")
    }
    quiet = [name for name in names if name not in recent]
    earlier = dict(
        calls.filter(server__in=quiet).annotate(last=Max("at")).values_list("server", "last")
    )
    kinds = _kinds(names)
    return {
        name: ServerFigures(
            calls=recent.get(name, (0, None))[0],
            last_at=recent[name][1] if name in recent else earlier.get(name),
            components=tuple(kinds[name].items()),
        )
        for name in names
    }


def _kinds(names: Sequence[str]) -> dict[str, dict[str, int]]:
    """How many components code declares, of each kind in the order of the kinds."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(Component.Kind.values, 0))
    rows = Component._default_manager.filter(server__in=names, missing_since=None).order_by()
    counted = rows.values("server", "kind").annotate(count=Count("*"))
    for name, kind, count in counted.values_list("server", "kind", "count"):
        found[name][kind] = count
    return found
