"""Tasks in the admin: the list with their status, the page of one task, and cancellation.

A task is a call that continues after its request. Its page shows no more than the call log would,
and never the answers of a user.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _, ngettext

from mcp_django.admin.base import (
    EMPTY_VALUE,
    ServerFilter,
    client_name,
    find_server,
    link_to_row,
    local_time,
    render_list,
    render_outcome,
    time_column,
    with_details,
)
from mcp_django.admin_base import RevocableAdmin
from mcp_django.auth.principal import anonymous_principal, key_of
from mcp_django.components.tool import Tool
from mcp_django.conf import get_settings
from mcp_django.execution import call_record
from mcp_django.models import Call, Component, Session, Task
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.text import clip, escape_invisible, one_line
from mcp_django.storage import task_rows
from mcp_django.storage.databases import rows_of_tenant, write_alias
from mcp_django.tenants import of_tenant

READ_RESULT_PERMISSION = "mcp_django.read_task_result"
ANONYMOUS = anonymous_principal().key
# Clients and functions choose the size of these columns, and the list does not show them.
LONG_COLUMNS = [
    *("arguments", "scopes", "caller", "capabilities", "trace", "state", "questions"),
    *("answers", "keys", "result", "error"),
]
TONES = {"completed": "good", "failed": "bad"}
# Limits for display, in characters or items.
MAX_TEXT_SHOWN = 20_000
MAX_QUESTION = 500
MAX_QUESTIONS = 20


class TaskChangeList(ChangeList):
    """The change list without the columns that only the page of one task shows."""

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[Any]:
        """Return the rows without the long columns."""
        queryset: QuerySet[Any] = super().get_queryset(request, *args, **kwargs)
        return queryset.defer(*LONG_COLUMNS)


@admin.register(Task)
class TaskAdmin(RevocableAdmin):
    """The tasks of all users, newest first; they can be cancelled but not edited."""

    action_name, action_label = "cancel", _("Cancel the task")
    confirmation_text = _(
        "The worker is notified within seconds. An asynchronous function is stopped; a synchronous "
        "one continues until it checks ctx.cancelled, and its result is discarded."
    )
    done_message = _("Cancelled.")

    change_list_template = "admin/mcp_django/task_list.html"
    list_display = [
        *("tool_and_server", "status_and_message", "caller_and_client"),
        *(time_column("created_at", _("created")), time_column("expires_at", _("expires"))),
    ]
    list_filter = ["status", ServerFilter, "created_at"]
    list_select_related = ["user"]
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = ["cancel"]
    fieldsets = [
        (None, {"fields": ["tool_link", "server", "shown_status", "whole_message"]}),
        (_("Caller"), {"fields": ["caller_name", "principal", "client", "client_id"]}),
        (
            _("Connection and worker"),
            {"fields": ["protocol_version", "session_link", "engine_name", "run", "lease"]},
        ),
        (_("Times"), {"fields": ["created_at", "updated_at", "expires_at"]}),
        (_("Arguments"), {"fields": ["shown_names", "shown_values"]}),
        (_("Pending requests to the client"), {"fields": ["shown_questions"]}),
        (_("Result"), {"fields": ["shown_size", "shown_result"]}),
    ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false: calls create tasks."""
        return False

    def has_read_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may read the results of other users' tasks."""
        return self.has_view_permission(request) and request.user.has_perm(READ_RESULT_PERMISSION)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return all tasks; those of anonymous callers only with ``read_task_result``.

        The task of an anonymous caller and its result are protected by the id alone, and the id
        is in the URL of the task's page.
        """
        rows = rows_of_tenant(Task).order_by("-created_at", "-task_id")
        return rows if self.has_read_permission(request) else rows.exclude(principal=ANONYMOUS)

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Return the search fields, with the username field but without the id of a task."""
        user = f"user__{get_user_model().USERNAME_FIELD}"
        return ["tool", "server", "principal", "client_id", "status_message", user]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the change list without the long columns."""
        return TaskChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return one task, after closing it if it has expired or its worker is lost."""
        if "\0" not in object_id:
            task_rows.close_expired([object_id])
        return super().get_object(request, object_id, from_field)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Show the list, after closing tasks that have expired or whose worker is lost."""
        if self.has_view_permission(request):
            task_rows.close_expired()
        extra = {
            "survives_nothing": not get_settings().task_backend,
            "hides_anonymous": not self.has_read_permission(request),
        }
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def end(self, request: HttpRequest, rows: Sequence[Task]) -> None:
        """Cancel the tasks after this transaction commits: other processes read the rows."""
        transaction.on_commit(partial(_cancel, list(rows)), using=write_alias())

    def is_ended(self, row: Task) -> bool:
        """Return whether the status of the task is terminal."""
        return row.is_terminal

    @admin.action(description=_("Cancel selected tasks"), permissions=["end"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Task]) -> HttpResponse | None:
        """Ask for confirmation, then cancel the selected tasks in every process."""
        return self.end_selected(
            request,
            queryset,
            lambda n: ngettext("%(n)d task was cancelled.", "%(n)d tasks were cancelled.", n),
        )

    @admin.display(description=_("caller"))
    def caller_name(self, row: Task) -> str:
        """Return the name of the caller."""
        if row.user is not None:
            return str(row.user.get_username())
        return gettext("anonymous") if row.principal == ANONYMOUS else one_line(row.principal)

    @admin.display(description=_("client"))
    def client(self, row: Task) -> str:
        """Return the name and version that the client sent, or its client id."""
        return one_line(client_name(row.client_info)) or row.client_id or gettext("unknown")

    @admin.display(description=_("status"), ordering="status")
    def shown_status(self, row: Task) -> SafeString:
        """Return the status as a colored label."""
        tone = TONES.get(row.status, "fair")
        text = row.get_status_display()
        result = None if "result" in row.get_deferred_fields() else row.result
        if isinstance(result, dict) and result.get("isError"):
            tone, text = "fair", gettext("%(status)s (with a tool error)") % {"status": text}
        return render_outcome(tone, text)

    @admin.display(description=_("tool"), ordering="tool")
    def tool_and_server(self, row: Task) -> SafeString:
        """Return the tool and its server."""
        return with_details(row.tool, row.server)

    @admin.display(description=_("status"), ordering="status")
    def status_and_message(self, row: Task) -> SafeString:
        """Return the status and the status message, shortened."""
        return with_details(self.shown_status(row), one_line(row.status_message))

    @admin.display(description=_("caller"))
    def caller_and_client(self, row: Task) -> SafeString:
        """Return the names of the caller and the client."""
        return with_details(self.caller_name(row), self.client(row))

    @admin.display(description=_("status message"))
    def whole_message(self, row: Task) -> str:
        """Return the complete status message."""
        return one_line(row.status_message, limit=MAX_TEXT_SHOWN) or EMPTY_VALUE

    @admin.display(description=_("tool"))
    def tool_link(self, row: Task) -> SafeString | str:
        """Return the tool, linked to its row if there is one."""
        rows = of_tenant(Component).filter(server=row.server, kind="tool", key=row.tool)
        return link_to_row("component", rows.values_list("pk", flat=True).first(), row.tool)

    @admin.display(description=_("session"))
    def session_link(self, row: Task) -> SafeString | str:
        """Return the session of the call, linked to its row while that exists."""
        if row.session is None:
            return EMPTY_VALUE
        pk = rows_of_tenant(Session).filter(pk=row.session).values_list("pk", flat=True).first()
        return link_to_row("session", pk, gettext("session %(number)d") % {"number": row.session})

    @admin.display(description=_("backend"))
    def engine_name(self, row: Task) -> str:
        """Return the task backend that runs the task."""
        return row.engine or gettext("threads of the process that received the call")

    @admin.display(description=_("worker"))
    def lease(self, row: Task) -> str:
        """Return whether a worker runs the task, and when its lease expires."""
        if row.status != Task.Status.WORKING:
            return EMPTY_VALUE
        if row.lease_until is None:
            return gettext("not started yet")
        until = local_time(row.lease_until)
        return gettext("running; considered lost after %(moment)s") % {"moment": until}

    @admin.display(description=_("names"))
    def shown_names(self, row: Task) -> str:
        """Return the names of the arguments."""
        return (
            ", ".join(call_record.summarize_arguments(row.arguments.encode()).names) or EMPTY_VALUE
        )

    @admin.display(description=_("values"))
    def shown_values(self, row: Task) -> SafeString | str:
        """Return the values of the arguments, if they are logged."""
        # Secrets are left out, and only the tool knows which arguments are secret.
        server: Any = find_server(row.server)
        tool = None if server is None else server.declared_catalog.by_kind["tool"].get(row.tool)
        if not isinstance(tool, Tool) or not call_record.logs_arguments(tool, server):
            return gettext("not logged")
        arguments = call_record.summarize_arguments(row.arguments.encode()).values
        return _pre(tool.mask(arguments))

    @admin.display(description=_("pending requests"))
    def shown_questions(self, row: Task) -> SafeString | str:
        """Return the unanswered requests to the client; answers are never shown."""
        questions = row.questions if isinstance(row.questions, dict) else {}
        if not questions:
            return gettext("none")
        lines = []
        for question in list(questions.values())[:MAX_QUESTIONS]:
            client_request = question if isinstance(question, dict) else {}
            params = client_request.get("params")
            message = params.get("message") if isinstance(params, dict) else ""
            lines.append(
                format_html(
                    '<code dir="ltr">{}</code> <bdi>{}</bdi>',
                    one_line(str(client_request.get("method", ""))),
                    one_line(str(message or ""), limit=MAX_QUESTION),
                )
            )
        more = [gettext("and more")] if len(questions) > MAX_QUESTIONS else []
        return render_list([*lines, *more])

    @admin.display(description=_("size of the result"))
    def shown_size(self, row: Task) -> str:
        """Return the size of the result."""
        outcome = _outcome_of(row)
        return EMPTY_VALUE if outcome is None else filesizeformat(len(jsonrpc.encode(outcome)))

    @admin.display(description=_("result"))
    def shown_result(self, row: Task) -> SafeString | str:
        """Return the result as indented JSON."""
        outcome = _outcome_of(row)
        return EMPTY_VALUE if outcome is None else _pre(outcome)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets without the result or values that the user may not read."""
        may_read = {
            "shown_result": self.has_read_permission(request),
            "shown_values": request.user.has_perm("mcp_django.view_call"),
        }
        hidden = [name for name, may in may_read.items() if not may]
        return [
            (title, {"fields": [name for name in options["fields"] if name not in hidden]})
            for title, options in self.fieldsets
        ]


def _cancel(rows: Sequence[Task]) -> None:
    for row in rows:
        task_rows.cancel_task(row)


# How many tasks of the tool are searched, and how many matching ones are shown.
MAX_CANDIDATES, MAX_TASKS_SHOWN = 100, 5
# A call record is older than its task, and its time is from another clock.
CLOCK_TOLERANCE = timedelta(minutes=1)


def link_tasks_of_call(call: Call) -> SafeString | str:
    """Return links to the tasks that a call started, or to the one that it ran; empty without one.

    A call record does not contain the id of its task, since the id gives access to the task. Both
    are matched by caller, tool and digest of the arguments, so two identical calls link to the
    tasks of both.
    """
    if call.kind != "tool" or not call.arguments_digest:
        return ""
    tasks = rows_of_tenant(Task).filter(server=call.server, tool=call.component)
    tasks = tasks.filter(expires_at__gt=call.at)
    if call.transport == "task":
        tasks = tasks.filter(created_at__lt=call.at + CLOCK_TOLERANCE)
    else:
        ends = call.at + timedelta(milliseconds=call.ms or 0)
        tasks = tasks.filter(created_at__range=(call.at - CLOCK_TOLERANCE, ends + CLOCK_TOLERANCE))
    tasks = tasks.only(
        "task_id", "tool", "status", "created_at", "principal", "arguments", "user"
    ).select_related("user")
    rows = []
    for row in tasks.order_by("-created_at", "-task_id")[:MAX_CANDIDATES]:
        caller = row.principal if row.user is None else key_of(row.user)
        if caller[:128] == call.user_key:
            summary = call_record.summarize_arguments(row.arguments.encode())
            if summary.digest == call.arguments_digest:
                rows.append(row)
    links = []
    for row in rows[:MAX_TASKS_SHOWN]:
        label = gettext("%(status)s, since %(since)s") % {
            "status": row.get_status_display(),
            "since": local_time(row.created_at),
        }
        links.append((link_to_row("task", row.pk, label),))
    return format_html_join(" ", "{}", links)


def _outcome_of(row: Task) -> Any:
    """Return the result or the JSON-RPC error, or ``None`` before there is one."""
    return row.error if row.error is not None else row.result


def _pre(value: Any) -> SafeString:
    """Return a JSON value as indented text, truncated."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    excerpt = clip(escape_invisible(text[: MAX_TEXT_SHOWN + 1]), limit=MAX_TEXT_SHOWN)
    return format_html('<pre class="mcp-code" tabindex="0" dir="ltr">{}</pre>', excerpt)
