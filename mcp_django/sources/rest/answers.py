"""What a REST view answered, as the result of a tool.

A status of 400 and above is a failure that the model reads: what the serializer says of each
field, or in our words that it is missing, refused or too soon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.http.response import HttpResponseBase
from rest_framework.response import Response

from mcp_django.exceptions import ToolError
from mcp_django.protocol.content import ToolResult
from mcp_django.schema.arguments import describe
from mcp_django.schema.serializers import explained
from mcp_django.schema.values import jsonable
from mcp_django.sources.rest.inputs import RestArguments, Values
from mcp_django.sources.rest.request import RestRequest
from mcp_django.sources.site import results
from mcp_django.sources.site.answers import Answer

MAX_DETAIL = 2000


def result(request: RestRequest, answer: Answer) -> ToolResult:
    """The result of a view that did what it was asked.

    Raises:
        ToolError: it leads elsewhere.
    """
    if answer.is_redirect:
        results.check(answer, verb=request.method or "")
    return results.tool_result(answer, is_readable=True)


def refuse(
    request: RestRequest, response: HttpResponseBase, arguments: RestArguments, values: Values
) -> NoReturn:
    """Raise what a status of 400 and above means; of a 400 it is what is wrong with each field.

    Raises:
        Http404: there is nothing there, or nothing for this caller.
        PermissionDenied: the view refused the caller.
        ToolError: anything else; the message says what would work.
    """
    data = _data(request, response)
    status = response.status_code
    detail = _detail(data)
    if status == 404:
        raise Http404(detail or "Not found.")
    if status in {401, 403}:
        raise PermissionDenied(_refusal(detail, is_known=request.is_known))
    if status == 429:
        raise ToolError(_too_soon(response))
    if status == 400 and isinstance(data, dict | list) and not detail:
        raise ToolError(describe([*explained(*arguments.in_terms_of_call(data, values))]))
    told = detail or (_shown(data) if data is not None else "")
    raise ToolError(f"The site answered {status} {response.reason_phrase}. {told}".strip())


def _data(request: RestRequest, response: HttpResponseBase) -> Any:
    """What the view says of the failure; nothing of an error page that it did not make."""
    if isinstance(response, Response) and response is request.returned:
        return response.data
    return None


def _detail(data: Any) -> str:
    """The sentence of REST framework's own exceptions."""
    if isinstance(data, str):
        return str(data)
    if isinstance(data, Mapping) and set(data) <= {"detail", "code"}:
        found = data.get("detail")
        return str(found) if isinstance(found, str) else ""
    return ""


def _refusal(detail: str, *, is_known: bool) -> str:
    if not is_known:
        return "You may not do this without signing in: nobody is known to have made this call."
    return f"You may not do this. {detail}".strip()


def _too_soon(response: HttpResponseBase) -> str:
    wait = response.headers.get("Retry-After", "")
    when = f"in {wait} seconds" if wait.isdecimal() else "later"
    return f"The site limits how often this is done; try again {when}."


def _shown(data: Any) -> str:
    try:
        text = json.dumps(jsonable(data), ensure_ascii=False)
    except (TypeError, ValueError):
        return ""
    return text[:MAX_DETAIL]
