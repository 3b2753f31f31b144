"""The search and the filters of the call log, for millions of rows.

No filter queries the database for its choices, the paginator counts only the newest rows, and the
search uses indexed columns only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.base import ConditionFilter, ExactFilter
from mcp_django.admin.statistics import FAILURES, REFUSALS
from mcp_django.admin_base import to_local_time
from mcp_django.models import Call, Component
from mcp_django.protocol.text import clip, nearest
from mcp_django.tenants import of_tenant

if TYPE_CHECKING:
    Pages = Paginator[Call]
else:
    Pages = Paginator

MAX_COUNTED = 10_000


class CappedPaginator(Pages):
    """A paginator over the newest ``MAX_COUNTED`` rows, which does not count the whole table."""

    @cached_property
    def count(self) -> int:
        """The number of rows, at most ``MAX_COUNTED``."""
        return min(self._found, MAX_COUNTED)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than are counted."""
        return self._found > MAX_COUNTED

    @cached_property
    def _found(self) -> int:
        newest: Any = self.object_list
        return int(newest.order_by()[: MAX_COUNTED + 1].count())


LAST_CHARACTER = "\U0010ffff"
TRACE_ID = re.compile(r"[0-9a-f]{32}")
OUTCOME_GROUPS: Mapping[str, tuple[Any, Sequence[str]]] = {
    "failures": (_("All failures"), FAILURES),
    "refusals": (_("All refusals"), REFUSALS),
}


class InvalidFilter(ValueError):
    """A search or a filter that cannot be applied; the message says what to write instead."""


def parse_outcomes(text: str) -> list[str]:
    """Return the outcomes that a text names, separated by commas; groups are ``OUTCOME_GROUPS``.

    Raises:
        InvalidFilter: one of them is unknown.
    """
    outcomes: dict[str, None] = {}
    for name in filter(None, (part.strip().lower() for part in text.split(","))):
        if name in OUTCOME_GROUPS:
            outcomes.update(dict.fromkeys(map(str, OUTCOME_GROUPS[name][1])))
        elif name in Call.Outcome.values:
            outcomes[name] = None
        else:
            names = [*OUTCOME_GROUPS, *Call.Outcome.values]
            wrong = gettext("There is no outcome “%(name)s”. Choose from: %(known)s.")
            close = nearest(name, names)
            raise InvalidFilter(
                wrong % {"name": clip(name), "known": ", ".join([close] if close else names)}
            )
    return list(outcomes)


def match_column(column: str, text: str, *, using: str) -> Q:
    """Return the condition for a value, or for a prefix if the text ends with a star."""
    if not text.endswith("*") or text == "*":
        return Q(**{column: text})
    beginning = text[:-1]
    if connections[using].vendor == "sqlite":
        # LIKE does not use an index in SQLite.
        return Q(**{f"{column}__gte": beginning, f"{column}__lt": beginning + LAST_CHARACTER})
    return Q(**{f"{column}__startswith": beginning})


def match_user(text: str, *, using: str) -> list[Q]:
    """Return the conditions for a user by name, ignoring case, or by key."""
    if text.endswith("*"):
        return [match_column("user_name", text, using=using)]
    user_model = get_user_model()
    users = user_model._default_manager.filter(**{f"{user_model.USERNAME_FIELD}__iexact": text})
    names = {text, *users.values_list(user_model.USERNAME_FIELD, flat=True)[:10]}
    keys = {text, f"user:{text}"}
    return [*(Q(user_name=name) for name in sorted(names)), *(Q(user_key=key) for key in keys)]


def _match_client(text: str, *, using: str) -> list[Q]:
    return [match_column("client", text, using=using), Q(client_id=text)]


def _any_of(conditions: Iterable[Q], *, using: str) -> Q | None:
    """Return the conditions that match any row, joined by ``OR``; ``None`` if none does.

    Each column has an index. If the ``OR`` included columns without matching rows, the database
    would sort all matches.
    """
    calls = of_tenant(Call).using(using)
    matching = [
        condition for condition in conditions if calls.filter(condition).order_by().exists()
    ]
    if not matching:
        return None
    first, *others = matching
    for condition in others:
        first |= condition
    return first


def calls_url(*, since: datetime | None = None, **query: str) -> str:
    """Return the URL of the call log with these filters; ``since`` is the first moment."""
    if since is not None:
        local = to_local_time(since)
        query["from"] = local.replace(tzinfo=None).isoformat(timespec="minutes")
    filters = {name: value for name, value in query.items() if value}
    return f"{reverse('admin:mcp_django_call_changelist')}?{urlencode(filters)}"


def component_query(row: Any) -> dict[str, str]:
    """Return the filters for the calls of a component."""
    return {"server__exact": row.server, "kind__exact": row.kind, "component": row.key}


# The search ---------------------------------------------------------------------------------------

SEARCH_HELP = _(
    "Words, or tool:, prompt:, resource:, user:, client:, outcome: and trace: with a value. "
    "End a value with * to match a prefix; quote a value that has spaces."
)
MAX_TERMS = 10
_TERM = re.compile(r'(?:(?P<name>[a-z]+):)?(?:"(?P<quoted>[^"]*)"|(?P<word>\S+))')
_KINDS = {"tool": ("tool",), "prompt": ("prompt",), "resource": ("resource", "resource template")}


class Term(NamedTuple):
    """A word of a search, with the name before its colon, if there is one."""

    name: str
    text: str


def parse_search(text: str) -> list[Term]:
    """Return the terms of a search; what is before a colon is a name only if it is known."""
    terms = []
    for match in _TERM.finditer(text):
        name = match["name"] or ""
        if name and name not in _SEARCHES:
            terms.append(Term("", match[0]))
        else:
            value = match["word"] if match["quoted"] is None else match["quoted"]
            terms.append(Term(name, value))
    return terms


def search_calls(queryset: QuerySet[Call], text: str) -> QuerySet[Call]:
    """Return the rows that match each term of a search.

    Words without a name are searched as one value; if no call has it, each word has to match.

    Raises:
        InvalidFilter: a term has an invalid value.
    """
    terms, using = [*dict.fromkeys(parse_search(text))], queryset.db
    if len(terms) > MAX_TERMS:
        raise InvalidFilter(gettext("Search for at most %(n)d words.") % {"n": MAX_TERMS})
    for term in terms:
        if term.name == "outcome":
            queryset = queryset.filter(outcome__in=parse_outcomes(term.text))
        elif term.name:
            queryset = _filter_any(queryset, _SEARCHES[term.name](term.text, using=using))
        if term.name in _KINDS:
            queryset = queryset.filter(kind__in=_KINDS[term.name])
    words = [term.text for term in terms if not term.name]
    whole = _any_of(_match_word(" ".join(words), using=using), using=using) if words else None
    if whole is not None:
        return queryset.filter(whole)
    if len(words) == 1:
        return queryset.none()
    for word in words:
        queryset = _filter_any(queryset, _match_word(word, using=using))
    return queryset


def _filter_any(queryset: QuerySet[Call], conditions: Iterable[Q]) -> QuerySet[Call]:
    condition = _any_of(conditions, using=queryset.db)
    return queryset.none() if condition is None else queryset.filter(condition)


def _match_component(text: str, *, using: str) -> list[Q]:
    return [match_column("component", text, using=using)]


def _match_trace(text: str, *, using: str) -> list[Q]:
    return [Q(trace_id=text.lower())]


def _match_word(text: str, *, using: str) -> list[Q]:
    if TRACE_ID.fullmatch(text.lower()):
        return _match_trace(text, using=using)
    matches = (_match_component, match_user, _match_client)
    return [condition for match in matches for condition in match(text, using=using)]


_SEARCHES: Mapping[str, Any] = {
    **dict.fromkeys((*_KINDS, "component"), _match_component),
    "user": match_user,
    "client": _match_client,
    "trace": _match_trace,
    "outcome": None,
}


# Filters ------------------------------------------------------------------------------------------


class KindFilter(ExactFilter):
    """A filter by kind of component."""

    title = _("kind")
    parameter_name = "kind__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return all kinds."""
        return Component.Kind.choices


class TimeFilter(ConditionFilter):
    """A filter by age, and for today and yesterday in the current time zone."""

    title = _("time")
    parameter_name = "since"

    def conditions(self) -> Mapping[str, tuple[Any, Q]]:
        """Return the time ranges."""
        now, today = timezone.now(), start_of_day(_today())
        yesterday = Q(at__gte=start_of_day(_today() - timedelta(days=1)), at__lt=today)
        return {
            "hour": (_("Past hour"), Q(at__gte=now - timedelta(hours=1))),
            "today": (_("Today"), Q(at__gte=today)),
            "yesterday": (_("Yesterday"), yesterday),
            "day": (_("Past 24 hours"), Q(at__gte=now - timedelta(days=1))),
            "week": (_("Past 7 days"), Q(at__gte=now - timedelta(days=7))),
            "month": (_("Past 30 days"), Q(at__gte=now - timedelta(days=30))),
        }


def _today() -> date:
    return timezone.localdate() if settings.USE_TZ else timezone.now().date()


def start_of_day(day: date) -> datetime:
    """Return the first moment of a day in the current time zone."""
    return _aware(datetime.combine(day, time.min))


def _aware(moment: datetime) -> datetime:
    if timezone.is_aware(moment) == settings.USE_TZ:
        return moment
    return timezone.make_aware(moment) if settings.USE_TZ else timezone.make_naive(moment)


class OutcomeFilter(admin.SimpleListFilter):
    """A filter by outcomes: a group of them, or several that are chosen one after the other."""

    title = _("outcome")
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the groups, then all outcomes."""
        groups = [(name, title) for name, (title, _outcomes) in OUTCOME_GROUPS.items()]
        return [*groups, *Call.Outcome.choices]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter by the chosen outcomes.

        Raises:
            IncorrectLookupParameters: one of them is unknown.
        """
        try:
            chosen = parse_outcomes(self.value() or "")
        except InvalidFilter as exc:
            raise IncorrectLookupParameters(str(exc)) from exc
        return queryset.filter(outcome__in=chosen) if chosen else queryset

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield the choices; the link of an outcome adds it to the chosen ones, or removes it."""
        value = self.value() or ""
        chosen = list(filter(None, value.split(",")))
        remove = changelist.get_query_string(remove=[self.parameter_name])
        yield {"selected": not chosen, "query_string": remove, "display": _("All")}
        for name, title in self.lookup_choices:
            is_group = name in OUTCOME_GROUPS
            others = [
                outcome for outcome in chosen if outcome != name and outcome not in OUTCOME_GROUPS
            ]
            outcomes = [name] if is_group else others if name in chosen else [*others, name]
            is_off = name in chosen and (is_group or not outcomes)
            link = changelist.get_query_string({self.parameter_name: ",".join(outcomes)})
            yield {
                "selected": name in chosen,
                "query_string": remove if is_off else link,
                "display": title,
            }


class FieldsFilter(admin.ListFilter):
    """A filter whose values are typed: component, user, client, first and last day.

    ``from`` and ``to`` are dates, or dates with a time, in the current time zone. If ``to`` is a
    date, that day is included.
    """

    title = _("details")
    template = "admin/mcp_django/call_fields.html"
    labels: Mapping[str, Any] = {
        "component": _("Component"),
        "user": _("User"),
        "client": _("Client"),
        "from": _("From"),
        "to": _("To"),
    }

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.labels:
            if text := (params.pop(name, None) or [""])[-1].strip():
                self.used_parameters[name] = text

    def has_output(self) -> bool:
        """Return true."""
        return True

    def expected_parameters(self) -> list[str | None]:
        """Return the names of the fields."""
        return list(self.labels)

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield the fields with their values, and the other parameters of the list."""
        others = changelist.get_query_string(remove=list(self.labels))
        yield {
            "fields": [self._field(name) for name in self.labels],
            "others": parse_qsl(others.removeprefix("?")),
            "clear": others if self.used_parameters else "",
        }

    def _field(self, name: str) -> dict[str, Any]:
        value, kind = str(self.used_parameters.get(name, "")), "text"
        if name in ("from", "to"):
            kind = "datetime-local" if "T" in value else "date"
        return {"name": name, "label": self.labels[name], "value": value, "type": kind}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter by the given values; for an invalid one, show a message and no rows."""
        texts, using = {name: str(text) for name, text in self.used_parameters.items()}, queryset.db
        try:
            for name, condition in (("from", "at__gte"), ("to", "at__lt")):
                if name in texts:
                    moment = _parse_moment(texts[name], is_end=name == "to")
                    queryset = queryset.filter(**{condition: moment})
        except InvalidFilter as exc:
            messages.warning(request, str(exc))
            return queryset.none()
        if "component" in texts:
            queryset = queryset.filter(match_column("component", texts["component"], using=using))
        if "user" in texts:
            queryset = _filter_any(queryset, match_user(texts["user"], using=using))
        if "client" in texts:
            queryset = _filter_any(queryset, _match_client(texts["client"], using=using))
        return queryset


def _parse_moment(text: str, *, is_end: bool) -> datetime:
    try:
        day = parse_date(text)
        if day is not None:
            return start_of_day(day + timedelta(days=int(is_end)))
        moment = parse_datetime(text)
        if moment is not None:
            return _aware(moment)
    except (ValueError, OverflowError):
        pass
    wrong = gettext("“%(text)s” is not a date. Write it as 2026-11-28 or 2026-11-28T14:30.")
    raise InvalidFilter(wrong % {"text": clip(text)})
