"""The call log as a file: the rows that the list shows, as they are read."""

from __future__ import annotations

import csv
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.handlers.asgi import ASGIRequest
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.translation import gettext as _

from mcp_django.models import Call

CHUNK = 1000
COLUMNS = [field.name for field in Call._meta.concrete_fields]
# A spreadsheet takes what begins so for a formula, and what clients send is in the rows.
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


def response(
    request: HttpRequest, queryset: QuerySet[Call], kind: str, filters: str
) -> StreamingHttpResponse:
    """The rows as a file; that somebody took them is noted first."""
    user: Any = request.user
    LogEntry.objects.create(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(Call).pk,
        object_repr=_("the call log"),
        action_flag=CHANGE,
        change_message=_("Exported as %(kind)s: %(filters)s")
        % {"kind": kind.upper(), "filters": filters or _("everything")},
    )
    parts = WRITERS[kind](_chunks(queryset))
    # Django would read all of a synchronous iterator at once under ASGI.
    streamed: Any = _stepwise(parts) if isinstance(request, ASGIRequest) else parts
    return StreamingHttpResponse(
        streamed,
        content_type=TYPES[kind],
        headers={
            "Content-Disposition": f'attachment; filename="calls.{kind}"',
            "Cache-Control": "no-store",
        },
    )


def _chunks(queryset: QuerySet[Call]) -> Iterator[Sequence[dict[str, Any]]]:
    """The rows from the newest on, each part in a query of its own: nothing is held open."""
    ordered = queryset.order_by("-pk").values(*COLUMNS)
    rows = list(ordered[:CHUNK])
    while rows:
        yield rows
        rows = list(ordered.filter(pk__lt=rows[-1]["id"])[:CHUNK])


class _Lines:
    """A file for the writer of CSV, which gives back what it is given."""

    def write(self, text: str) -> str:
        return text


def as_csv(chunks: Iterator[Sequence[dict[str, Any]]]) -> Iterator[str]:
    """One line for each row, under a line of names."""
    writer = csv.writer(_Lines())
    yield writer.writerow(COLUMNS)
    for rows in chunks:
        yield "".join(writer.writerow([_cell(row[name]) for name in COLUMNS]) for row in rows)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        value = json.dumps(value, ensure_ascii=False)
    elif hasattr(value, "isoformat"):
        value = value.isoformat()
    if isinstance(value, str) and value.startswith(FORMULAS):
        return f"'{value}"
    return value


def as_json(chunks: Iterator[Sequence[dict[str, Any]]]) -> Iterator[str]:
    """An array with one object for each row."""
    yield "["
    between = "\n"
    for rows in chunks:
        for row in rows:
            yield between + json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False)
            between = ",\n"
    yield "\n]\n"


WRITERS = {"csv": as_csv, "json": as_json}


async def _stepwise(parts: Iterator[str]) -> AsyncIterator[str]:
    def step() -> str | None:
        return next(parts, None)

    while (part := await sync_to_async(step)()) is not None:
        yield part
