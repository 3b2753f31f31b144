"""Views that the tools are compared with, and a minimal ASGI application."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404

from benchmarks.site.models import Row

BARE_BODY = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}'


async def view(request: HttpRequest) -> JsonResponse:
    """Run the query of ``list_rows`` in an async view."""
    limit = int(request.GET.get("limit", "10"))
    return JsonResponse({"rows": [row async for row in Row.objects.values(*Row.FIELDS)[:limit]]})


def rows(request: HttpRequest) -> JsonResponse:
    """Return the rows of the generated ``list_rows``."""
    limit = int(request.GET.get("limit", "50"))
    # Fetch one more row to find out whether there is another page.
    found = list(Row.objects.order_by("pk").values(*Row.FIELDS)[: limit + 1])
    return JsonResponse({"items": found[:limit], "more": len(found) > limit})


def row(request: HttpRequest, pk: int) -> JsonResponse:
    """Return the row of the generated ``get_row``."""
    return JsonResponse(get_object_or_404(Row.objects.values(*Row.FIELDS), pk=pk))


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Send the smallest possible response to a POST."""
    while (await receive()).get("more_body", False):
        pass
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(BARE_BODY)),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BARE_BODY})
