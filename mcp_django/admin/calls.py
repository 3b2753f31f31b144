"""The call log in the admin: read-only, for millions of rows, with an export to CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from asgiref.sync import sync_to_async
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.urls import NoReverseMatch, URLPattern, reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import is_aware
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.base import (
    EMPTY_VALUE,
    ServerFilter,
    link_to_row,
    render_list,
    render_outcome,
    with_details,
)
from mcp_django.admin.call_filters import (
    SEARCH_HELP,
    CappedPaginator,
    FieldsFilter,
    InvalidFilter,
    KindFilter,
    OutcomeFilter,
    TimeFilter,
    calls_url,
    search_calls,
)
from mcp_django.admin.charts import charts_context
from mcp_django.admin.tasks import ANONYMOUS, READ_RESULT_PERMISSION, link_tasks_of_call
from mcp_django.admin_base import ReadOnlyAdmin, to_local_time
from mcp_django.conf import get_settings
from mcp_django.models import Call, Component, Server, Session
from mcp_django.protocol.text import clip, csv_line
from mcp_django.server import all_servers
from mcp_django.tenants import of_tenant

TONES = {
    **dict.fromkeys(("ok", "asked", "started"), "good"),
    **dict.fromkeys(("failed", "timeout"), "bad"),
}


class CallList(ChangeList):
    """The change list, whose cells link to the calls with the same value."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the rows, and set this list on each of them."""
        super().get_results(request)
        # Records are inserted up to a second after their call, in any order.
        self.result_list = sorted(self.result_list, key=lambda row: (row.at, row.pk), reverse=True)
        for row in self.result_list:
            row.call_list = self

    def link(self, text: str, name: str, value: str) -> Any:
        """Return the text, linked to this list with another filter."""
        if not value:
            return text
        return format_html('<a href="{}">{}</a>', self.get_query_string({name: value}, ["p"]), text)


@admin.register(Call)
class CallAdmin(ReadOnlyAdmin):
    """The call log, newest first; read-only."""

    change_list_template = "admin/mcp_django/call_list.html"
    change_form_template = "admin/mcp_django/call_change_form.html"
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    # Only the order newest first has an index.
    sortable_by = ()
    list_display = [
        *("shown_time", "shown_outcome", "shown_component", "user", "shown_client", "shown_ms"),
    ]
    list_filter = [
        *(FieldsFilter, OutcomeFilter, TimeFilter, ServerFilter, KindFilter, "origin", "writes"),
    ]
    linked_lookups = tuple(FieldsFilter.labels)
    search_fields = ["component"]
    search_help_text = SEARCH_HELP
    fieldsets = [
        (None, {"fields": ["exact_time", "server", "shown_kind", "component_link", "uri"]}),
        (None, {"fields": ["shown_outcome", "code", "reason", "ms", "rows", "bytes", "writes"]}),
        (
            _("Caller"),
            {"fields": ["user_link", "acting_user", "client_link", "client_id", "origin"]},
        ),
        (_("Connection"), {"fields": ["revision", "transport", "session_link", "trace_link"]}),
        (
            _("Arguments"),
            {"fields": ["shown_names", "shown_values", "shown_problems"]},
        ),
    ]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by indexed columns only; for an invalid term, show a message and no rows."""
        try:
            return search_calls(queryset, search_term), False
        except InvalidFilter as exc:
            self.message_user(request, str(exc), messages.WARNING)
            return queryset.none(), False

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the charts of all servers, and of the export."""
        return [
            self.page_path("charts/", self.charts_view, "charts"),
            self.page_path("export/<str:kind>/", self.export_view, "export"),
            *super().get_urls(),
        ]

    def charts_view(self, request: HttpRequest) -> HttpResponseBase:
        """Show the charts of all servers."""
        if not request.user.has_perm("mcp_django.view_call"):
            raise PermissionDenied
        context = charts_context(request, None)
        return self.render_page(request, "call_charts", _("Charts"), **context)

    def has_export_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may view and export the log; viewing alone is not enough."""
        return self.has_view_permission(request) and request.user.has_perm("mcp_django.export_call")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, with the export buttons if the user may export."""
        exports = []
        if self.has_export_permission(request):
            query = request.GET.urlencode()
            for kind in WRITERS:
                url = self.page_url("export", kind)
                exports.append((kind.upper(), f"{url}?{query}" if query else url))
        return super().changelist_view(request, {"exports": exports, **(extra_context or {})})

    def export_view(self, request: HttpRequest, kind: str) -> HttpResponseBase:
        """Return the rows that the list shows with the same filters, as a file."""
        if not self.has_export_permission(request):
            raise PermissionDenied
        if kind not in WRITERS:
            raise Http404
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        filters = request.GET.urlencode()
        try:
            changes = self.get_changelist_instance(request)
        except admin.options.IncorrectLookupParameters:
            # As the list responds to an invalid filter.
            return HttpResponseRedirect(f"{self.page_url('changelist')}?e=1")
        return _response(request, changes.get_queryset(request), kind, filters)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the change list with links in its cells."""
        return CallList

    @admin.display(description=_("time"))
    def shown_time(self, row: Call) -> str:
        """Return the time with seconds."""
        at = to_local_time(row.at)
        return f"{date_format(at, 'SHORT_DATE_FORMAT')} {at:%H:%M:%S}"

    @admin.display(description=_("component"))
    def shown_component(self, row: Any) -> Any:
        """Return the component, shortened: a client can send an unknown name of any length."""
        link = row.call_list.link(clip(row.component), "component", row.component)
        if len([*all_servers()]) < 2:
            return link
        server = row.call_list.link(row.server, "server__exact", row.server)
        return with_details(link, server)

    @admin.display(description=_("user"))
    def user(self, row: Any) -> Any:
        """Return the user, and the acting user if a staff member ran the call as this user."""
        link = row.call_list.link(_user_name(row), "user", row.user_name or row.user_key)
        if not row.acting_user:
            return link
        by = gettext("%(user)s (by %(acting)s)") % {"user": "{user}", "acting": "{acting}"}
        return format_html(by, user=link, acting=row.acting_user)

    @admin.display(description=_("client"))
    def shown_client(self, row: Any) -> Any:
        """Return the name and version that the client sent."""
        return row.call_list.link(clip(row.client), "client", row.client)

    @admin.display(description=_("outcome"))
    def shown_outcome(self, row: Call) -> SafeString:
        """Return the outcome as a colored label."""
        return render_outcome(TONES.get(row.outcome, "fair"), row.get_outcome_display())

    @admin.display(description=_("ms"))
    def shown_ms(self, row: Call) -> str:
        """Return the duration in milliseconds."""
        return (
            EMPTY_VALUE if row.ms is None else f"{row.ms:.0f}" if row.ms >= 10 else f"{row.ms:.1f}"
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the call, with a link to the playground with the same arguments."""
        row = self.get_object(request, unquote(object_id))
        pages = []
        if row is not None:
            user: Any = request.user
            rows = of_tenant(Server).filter(name=row.server).values_list("pk", flat=True)
            server = rows.first()
            may_try = server is not None and row.arguments is not None
            if may_try and user.has_perm("mcp_django.try_components"):
                query = urlencode({"kind": row.kind, "key": row.component, "call": row.pk})
                url = reverse("admin:mcp_django_server_playground", args=[server])
                pages.append((f"{url}?{query}", _("Try it with these arguments")))
        return super().change_view(
            request, object_id, form_url, {"mcp_pages": pages, **(extra_context or {})}
        )

    @admin.display(description=_("time"))
    def exact_time(self, row: Call) -> str:
        """Return the time with milliseconds, and the time zone."""
        at = to_local_time(row.at)
        zone = f" {at.tzname()}" if is_aware(at) else ""
        return f"{date_format(at)}, {at:%H:%M:%S}.{at.microsecond // 1000:03}{zone}"

    @admin.display(description=_("kind"))
    def shown_kind(self, row: Call) -> str:
        """Return the kind of the component."""
        return str(dict(Component.Kind.choices).get(row.kind, row.kind))

    @admin.display(description=_("user"))
    def user_link(self, row: Call) -> SafeString:
        """Return the user, linked to the user's page, and a link to all calls of the user."""
        options = get_user_model()._meta
        _prefix, _colon, pk = row.user_key.partition(":")
        link: SafeString | str = _user_name(row)
        # The site may have no page of its users.
        with suppress(NoReverseMatch):
            if pk:
                page = f"admin:{options.app_label}_{options.model_name}_change"
                link = format_html('<a href="{}">{}</a>', reverse(page, args=[pk]), link)
        return _with_calls(link, user=row.user_name or row.user_key)

    @admin.display(description=_("client"))
    def client_link(self, row: Call) -> SafeString | str:
        """Return the name that the client sent, and a link to all calls with this name."""
        return _with_calls(row.client, client=row.client) if row.client else EMPTY_VALUE

    @admin.display(description=_("component"))
    def component_link(self, row: Call) -> SafeString | str:
        """Return the component, linked to its row if there is one."""
        rows = of_tenant(Component).filter(server=row.server, kind=row.kind, key=row.component)
        pk = rows.values_list("pk", flat=True).first()
        return link_to_row("component", pk, row.component)

    @admin.display(description=_("session"))
    def session_link(self, row: Call) -> SafeString | str:
        """Return the session, linked to its row while that exists."""
        if not row.session:
            return EMPTY_VALUE
        pk = of_tenant(Session).filter(digest=row.session).values_list("pk", flat=True).first()
        return link_to_row("session", pk, row.session[:12] + "…")

    @admin.display(description=_("trace ID"))
    def trace_link(self, row: Call) -> SafeString | str:
        """Return the trace id, linked to ``TRACE_URL`` if that is set."""
        trace_url, trace = get_settings().trace_url, row.trace_id
        if not trace:
            return EMPTY_VALUE
        if trace_url:
            url = trace_url.replace("{trace_id}", quote(trace, safe=""))
            trace = format_html('<a href="{}" rel="noreferrer">{}</a>', url, trace)
        return _with_calls(trace, q=f"trace:{row.trace_id}")

    @admin.display(description=_("task"))
    def task_links(self, row: Call) -> SafeString | str:
        """Return links to the tasks that the call started or ran, while they exist."""
        return link_tasks_of_call(row) or EMPTY_VALUE

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Add the task links if the user may view tasks, and the results of anonymous callers."""
        is_shown = request.user.has_perm("mcp_django.view_task")
        if obj is not None and obj.user_key == ANONYMOUS:
            is_shown = is_shown and request.user.has_perm(READ_RESULT_PERMISSION)
        return [
            (title, {"fields": [*options["fields"], "task_links"]})
            if is_shown and "session_link" in options["fields"]
            else (title, options)
            for title, options in self.fieldsets
        ]

    @admin.display(description=_("names"))
    def shown_names(self, row: Call) -> str:
        """Return the names of the arguments."""
        return ", ".join(map(str, row.argument_names)) or EMPTY_VALUE

    @admin.display(description=_("values"))
    def shown_values(self, row: Call) -> SafeString | str:
        """Return the values of the arguments, if they are logged."""
        if row.arguments is None:
            return gettext("not logged")
        text = json.dumps(row.arguments, indent=2, ensure_ascii=False)
        return format_html('<pre class="mcp-code">{}</pre>', text)

    @admin.display(description=_("invalid arguments"))
    def shown_problems(self, row: Call) -> SafeString | str:
        """Return the paths of the invalid arguments."""
        if not row.problems:
            return EMPTY_VALUE
        return render_list(format_html("<code>{}</code>", path) for path in row.problems)


def _user_name(row: Call) -> str:
    return row.user_name or (gettext("anonymous") if row.user_key == ANONYMOUS else row.user_key)


def _with_calls(text: Any, **query: str) -> SafeString:
    """Return a text with a link to the calls that match a query."""
    url = calls_url(since=None, **query)
    return format_html('{} · <a href="{}">{}</a>', text, url, _("all calls"))


# Export to CSV and JSON ---------------------------------------------------------------------------

CHUNK = 1000
COLUMNS = [field.name for field in Call._meta.concrete_fields]
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def _response(
    request: HttpRequest, queryset: QuerySet[Call], kind: str, filters: str
) -> StreamingHttpResponse:
    """Return the rows as a streamed file, after logging the export in the admin history."""
    user: Any = request.user
    LogEntry.objects.create(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(Call).pk,
        object_repr=gettext("the call log"),
        action_flag=CHANGE,
        change_message=gettext("Exported as %(kind)s: %(filters)s")
        % {"kind": kind.upper(), "filters": filters or gettext("everything")},
    )
    parts = WRITERS[kind](_chunks(queryset))
    # Under ASGI, Django would consume a synchronous iterator before sending anything.
    streamed: Any = _iterate_async(parts) if isinstance(request, ASGIRequest) else parts
    return StreamingHttpResponse(
        streamed,
        content_type=TYPES[kind],
        headers={
            "Content-Disposition": f'attachment; filename="calls.{kind}"',
            "Cache-Control": "no-store",
        },
    )


def _chunks(queryset: QuerySet[Call]) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the rows from newest to oldest, with one query per chunk and no open cursor."""
    ordered = queryset.order_by("-pk").values(*COLUMNS)
    rows = list(ordered[:CHUNK])
    while rows:
        yield rows
        rows = list(ordered.filter(pk__lt=rows[-1]["id"])[:CHUNK])


def _as_csv(chunks: Iterator[Sequence[dict[str, Any]]]) -> Iterator[str]:
    """Yield a header line, then one line for each row."""
    yield csv_line(COLUMNS)
    for rows in chunks:
        yield "".join(csv_line(row[name] for name in COLUMNS) for row in rows)


def _as_json(chunks: Iterator[Sequence[dict[str, Any]]]) -> Iterator[str]:
    """Yield a JSON array with one object for each row."""
    yield "["
    between = "\n"
    for rows in chunks:
        for row in rows:
            yield between + json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False)
            between = ",\n"
    yield "\n]\n"


WRITERS = {"csv": _as_csv, "json": _as_json}


async def _iterate_async(parts: Iterator[str]) -> AsyncIterator[str]:
    def step() -> str | None:
        return next(parts, None)

    while (part := await sync_to_async(step)()) is not None:
        yield part
