"""Bodies: what need not be read is not, and one that does not come is not waited for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_django.protocol.errors import INVALID_REQUEST
from mcp_django.transports.callers import MAX_REFUSED_BYTES
from tests.drivers import Answer, Connection, headers_for, message, send
from tests.spec import spec
from tests.transports.asgi import MOUNTS

# Django's own handler reads a body before it asks anything of a view.
READING = ("lane", "raw", "consumer")
OPEN, CLOSED = "/open/mcp", "/mcp"
ADD = message("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})

ADD_BYTES = json.dumps(ADD).encode()

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=READING)
def app(request: pytest.FixtureRequest) -> Any:
    return MOUNTS[request.param]


@asynccontextmanager
async def unfinished(
    app: Any, path: str, parts: Sequence[bytes], *, http: str = "1.1", **headers: str | None
) -> AsyncIterator[Connection]:
    """A request whose client stops after these parts of its body."""
    connection = Connection(app, path, parts, headers_for(ADD, **headers), "POST", complete=False)
    connection.scope["http_version"] = http
    try:
        yield connection
    finally:
        await connection.close()


async def answered(app: Any, path: str, parts: Sequence[bytes], **headers: Any) -> Answer:
    async with unfinished(app, path, parts, **headers) as connection:
        await connection.start()
        return await connection.rest()


@spec("HTTP-2", "HTTP-8", "HTTP-32")
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (OPEN, {"host": "evil.example"}, 400),
        (OPEN, {"origin": "https://evil.example"}, 403),
        (OPEN, {"content_type": "text/plain"}, 415),
        (OPEN, {"accept": "text/html"}, 406),
        (OPEN, {"content_length": "4194305"}, 413),
        (OPEN, {"content_length": "9" * 30}, 413),
        (CLOSED, {"authorization": "Bearer a b"}, 400),
        (CLOSED, {"authorization": "Bearer " + "a" * 5000}, 401),
    ],
)
async def test_a_request_that_its_head_refuses_is_answered_before_its_body(
    app: Any, path: str, headers: dict[str, str], status: int
) -> None:
    early = await answered(app, path, [b'{"jsonrpc"'], **headers)
    assert early.status == status
    assert early.headers.pop("connection") == "close"
    late = await send(app, path, b"{}", **headers)
    assert (late.status, late.headers, late.body) == (status, early.headers, early.body)


@pytest.mark.parametrize("path", [f"{CLOSED}?access_token=x", CLOSED])
async def test_of_a_body_without_the_token_that_is_needed_little_is_read(
    app: Any, path: str
) -> None:
    half = b" " * (MAX_REFUSED_BYTES // 2 + 1)
    early = await answered(app, path, [half, half], authorization=None)
    assert early.status == (400 if "?" in path else 401)
    assert "Bearer" in early.headers["www-authenticate"]
    assert early.headers["connection"] == "close"


async def test_a_form_which_may_hold_a_token_is_read_to_the_same_length(app: Any) -> None:
    form = "application/x-www-form-urlencoded"
    part = b"a=" + b"x" * MAX_REFUSED_BYTES
    assert (await answered(app, OPEN, [part, part], content_type=form)).status == 415
    answer = await send(app, OPEN, b"access_token=x", content_type=form)
    assert answer.status == 400


async def test_a_body_that_does_not_come_is_not_waited_for(app: Any, settings: Any) -> None:
    settings.MCP_DJANGO = {"BODY_SECONDS": 0.02}
    for http, closes in (("1.1", True), ("2", False)):
        answer = await answered(app, OPEN, [b'{"json', b'rpc"'], http=http)
        assert answer.status == 408
        assert answer.json()["error"]["code"] == INVALID_REQUEST
        assert "within 0.02 seconds" in answer.json()["error"]["message"]
        assert ("connection" in answer.headers) is closes


async def test_a_client_that_leaves_in_the_middle_of_its_body_ends_the_request(app: Any) -> None:
    async with unfinished(app, OPEN, [b'{"jsonrpc"', b":"]) as connection:
        connection.disconnect()
    assert connection.sent == []


async def test_a_body_in_many_parts_is_read_whole(app: Any, token: str) -> None:
    parts = [ADD_BYTES[n : n + 1] for n in range(len(ADD_BYTES))]
    headers = headers_for(ADD, authorization=token)
    connection = Connection(app, CLOSED, parts, headers, "POST")
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    assert answer.json()["result"]["content"][0]["text"] == "5"
    assert "connection" not in answer.headers


async def test_a_large_body_of_a_caller_with_a_token_is_read_to_the_limit(
    app: Any, token: str, settings: Any
) -> None:
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 3 * MAX_REFUSED_BYTES}
    spaces = b" " * MAX_REFUSED_BYTES
    connection = Connection(
        app, CLOSED, [spaces, spaces, ADD_BYTES], headers_for(ADD, authorization=token), "POST"
    )
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    assert answer.json()["result"]["content"][0]["text"] == "5"
    refused = await answered(app, CLOSED, [spaces] * 4, authorization=token)
    assert (refused.status, refused.headers["connection"]) == (413, "close")
