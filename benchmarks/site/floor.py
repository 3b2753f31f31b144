"""The least that a site could do: views and ASGI applications that send the same answers.

They read the JSON of a request and do the work, without the protocol.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from benchmarks.site.models import Row


def build_answer(text: str) -> dict[str, Any]:
    """Return the JSON-RPC response of a tool that returned a text."""
    return {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}


def sum_of(body: bytes) -> str:
    """Return the sum of the numbers in a request."""
    arguments = json.loads(body)["params"]["arguments"]
    return str(arguments["a"] + arguments["b"])


def first_rows() -> list[dict[str, Any]]:
    """Return the first fifty rows."""
    return list(Row.objects.values(*Row.FIELDS)[:50])


@csrf_exempt
async def add(request: HttpRequest) -> HttpResponse:
    """Add two numbers."""
    return JsonResponse(build_answer(sum_of(request.body)))


@csrf_exempt
def add_sync(request: HttpRequest) -> HttpResponse:
    """Add two numbers in a thread."""
    return JsonResponse(build_answer(sum_of(request.body)))


@csrf_exempt
def rows(request: HttpRequest) -> HttpResponse:
    """Send the first rows of the table."""
    json.loads(request.body)
    return JsonResponse({"jsonrpc": "2.0", "id": 1, "result": first_rows()})


# Without Django's middleware ----------------------------------------------------------------------

BARE_BODY = json.dumps(build_answer("5"), separators=(",", ":")).encode()


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Send the smallest possible response to a POST."""
    await _read(receive)
    await _answer(send, BARE_BODY)


async def bare_rows(scope: Any, receive: Any, send: Any) -> None:
    """Read the rows in a thread, which keeps its connection, and send them."""
    json.loads(await _read(receive))
    row_values = await asyncio.to_thread(first_rows)
    await _answer(send, json.dumps(row_values, default=str).encode())


async def _read(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _answer(send: Any, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
