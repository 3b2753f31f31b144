"""What a page shows of a task: never more than the call log would, and answers to nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from mcp_django.admin.servers import server_of
from mcp_django.core.tool import Tool
from mcp_django.execution import call_record
from mcp_django.models import Task
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import clip
from mcp_django.protocol.text import one_line, visible

NONE = "-"
# More than a person reads.
MAX_SHOWN = 20_000
MAX_QUESTION = 500
MAX_QUESTIONS = 20
MAX_LINE = 120


def tool_of(row: Task) -> tuple[Any, Tool] | None:
    """The server and the tool as they are now, if they still are."""
    server = server_of(row.server)
    found = None if server is None else server.available.tables["tool"].get(row.tool)
    return (server, found) if isinstance(found, Tool) else None


def line(text: str, limit: int = MAX_LINE) -> str:
    """A text that a client or a function chose, in one line of a list."""
    return clip(one_line(text[: limit + 1]), limit=limit)


def names_of(row: Task) -> str:
    """The names of its arguments."""
    return ", ".join(call_record.names(_given(row))) or NONE


def values_of(row: Task) -> SafeString | str:
    """Their values, where the call log has them: without secrets, which only a tool can name."""
    found = tool_of(row)
    if found is None or not call_record.are_logged(found[1], found[0]):
        return _("not logged")
    return pre(call_record.shown(_given(row), found[1]))


def _given(row: Task) -> Any:
    return call_record.read(row.arguments.encode())


def questions_of(row: Task) -> SafeString | str:
    """What waits for an answer; what was answered is shown to nobody."""
    found = row.questions if isinstance(row.questions, dict) else {}
    if not found:
        return _("nothing")
    lines = [_question(one) for one in list(found.values())[:MAX_QUESTIONS]]
    more = [_("and more")] if len(found) > MAX_QUESTIONS else []
    items = format_html_join("", "<li>{}</li>", ((one,) for one in [*lines, *more]))
    return format_html('<ul class="mcp-list">{}</ul>', items)


def _question(asked: Any) -> SafeString:
    asked = asked if isinstance(asked, dict) else {}
    params = asked.get("params")
    said = params.get("message") if isinstance(params, dict) else ""
    method = line(str(asked.get("method", "")))
    return format_html(
        '<code dir="ltr">{}</code> <bdi>{}</bdi>', method, line(str(said or ""), MAX_QUESTION)
    )


def came_of(row: Task) -> Any:
    """The result or the JSON-RPC error, ``None`` before there is one."""
    return row.error if row.error is not None else row.result


def is_error_for_model(row: Task) -> bool:
    """Whether it ended with a result that tells the model of an error."""
    return isinstance(row.result, dict) and bool(row.result.get("isError"))


def size_of(row: Task) -> int | None:
    """How many bytes it answered."""
    came = came_of(row)
    return None if came is None else len(jsonrpc.encode(came))


def pre(value: Any) -> SafeString:
    """A JSON value to be read, cut where it is long."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    shown = clip(visible(text[: MAX_SHOWN + 1]), limit=MAX_SHOWN)
    return format_html('<pre class="mcp-code" tabindex="0" dir="ltr">{}</pre>', shown)


def parts_of_client(info: Any) -> Iterator[str]:
    """What a client says that it is."""
    for key in ("name", "version"):
        if isinstance(info, dict) and info.get(key):
            yield str(info[key])
