"""From a line of the call log to the task that it began, or was a run of.

A line names no task, since an id opens one. What both have is the caller, the tool and the digest
of the arguments, so a call that was made twice leads to the tasks of both.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet
from django.utils.formats import localize
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _

from mcp_django.admin.linking import linked
from mcp_django.auth.principal import key_of
from mcp_django.execution import call_record
from mcp_django.models import Call, Task
from mcp_django.storage.databases import rows

# Of one tool, of which those of one caller with the same arguments are shown.
MAX_SOUGHT, MAX_SHOWN = 100, 5
# The line is from before its task, by another clock.
SLACK = timedelta(minutes=1)


def tasks_of(call: Call) -> SafeString | str:
    """Links to the tasks, empty if there is none any more."""
    if call.kind != "tool" or not call.arguments_digest:
        return ""
    found = [row for row in _candidates(call) if _is_of(row, call)][:MAX_SHOWN]
    return format_html_join(" ", "{}", ((linked("task", row.pk, _named(row)),) for row in found))


def _candidates(call: Call) -> QuerySet[Task]:
    mine = rows(Task).filter(server=call.server, tool=call.component)
    near = mine.filter(expires_at__gt=call.at)
    if call.transport == "task":
        near = near.filter(created_at__lt=call.at + SLACK)
    else:
        ends = call.at + timedelta(milliseconds=call.ms or 0)
        near = near.filter(created_at__range=(call.at - SLACK, ends + SLACK))
    short = near.only(
        "task_id", "tool", "status", "created_at", "principal", "arguments", "user"
    ).select_related("user")
    return short.order_by("-created_at", "-task_id")[:MAX_SOUGHT]


def _is_of(row: Task, call: Call) -> bool:
    caller = row.principal if row.user is None else key_of(row.user)
    if caller[:128] != call.user_key:
        return False
    return call_record.digest(call_record.read(row.arguments.encode())) == call.arguments_digest


def _named(row: Task) -> str:
    began = localtime(row.created_at) if is_aware(row.created_at) else row.created_at
    return _("%(status)s, since %(since)s") % {
        "status": row.get_status_display(),
        "since": localize(began),
    }
