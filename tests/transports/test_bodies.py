"""Request bodies: the server reads no more than needed, and not for longer than allowed."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import path as route

from mcp_django import MCPServer
from mcp_django.asgi import get_asgi_application
from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.models import AuthEvent
from mcp_django.protocol.errors import INVALID_REQUEST
from mcp_django.transports.asgi_handler import exchange_of
from mcp_django.transports.bodies import TWO_LENGTHS
from mcp_django.transports.consumer import MCPConsumer
from mcp_django.transports.exchange import MAX_UNVERIFIED_BYTES
from mcp_django.transports.http import BodyReader
from tests.kit.drivers import Answer, Connection, headers_for, message, send
from tests.kit.servers import person
from tests.sites.example.mcp import open_server
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import in_thread

# Django's own handler reads a body before it calls a view.
READING = ("lane", "raw", "consumer")
OPEN, CLOSED, MESSAGES = "/open/mcp", "/mcp", "/mcp/messages"
HERE = "tests.transports.test_bodies"
FORM = "application/x-www-form-urlencoded"
ADD = message("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
ADD_BYTES = json.dumps(ADD).encode()
# A part of a body: one is read from any caller, two only from an authorized caller.
SPACES = b" " * (MAX_UNVERIFIED_BYTES // 2 + 1)

pytestmark = pytest.mark.django_db(transaction=True)


class Whoever(BasePermission):
    """A permission of the site's own."""

    def has_permission(self, principal: Principal) -> bool:
        return not principal.is_authenticated


class SignedBackend(BaseBackend):
    """Accepts a signature of the body, which cannot be checked before the body is read."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        signed = credentials.headers.get("x-length")
        if signed is None or int(signed) != len(credentials.request().body):
            return None
        return principal_for(person("signed"), backend=f"{HERE}.SignedBackend")


whoever = MCPServer("whoever", permission=Whoever)
signed = MCPServer("signed", auth=[f"{HERE}.SignedBackend"])
for server in (whoever, signed):
    server.tool("add")(lambda a, b: str(a + b))
urlpatterns = [route("whoever/mcp", whoever.urls), route("signed/mcp", signed.urls)]


@pytest.fixture(params=READING)
def app(request):
    return MOUNTS[request.param]


@pytest.fixture(params=READING)
def mounted(request, settings):
    """A function that returns the mount of a server of this file, at ``/NAME/mcp``."""
    settings.ROOT_URLCONF = HERE
    makers: dict[str, Callable[[MCPServer], Any]] = {
        "lane": lambda server: MOUNTS["lane"],
        "raw": lambda server: server.asgi,
        "consumer": lambda server: MCPConsumer.as_asgi(server=server),
    }
    return makers[request.param]


def adds_a_header(get_response: Callable[..., Any]) -> Callable[..., Any]:
    def middleware(request: HttpRequest) -> Any:
        response = get_response(request)
        response["X-Added"] = f"{len(request.body)}"
        return response

    return middleware


@asynccontextmanager
async def unfinished(
    app: Any, path: str, parts: Sequence[bytes], *, http: str = "1.1", **headers: str | None
) -> AsyncIterator[Connection]:
    """Send a request whose client stops after these parts of its body."""
    connection = Connection(app, path, parts, headers_for(ADD, **headers), "POST", complete=False)
    connection.scope["http_version"] = http
    try:
        yield connection
    finally:
        await connection.close()


async def answered(app: Any, path: str, parts: Sequence[bytes], **headers: Any) -> Answer:
    """Send no more than these parts; return the answer, read up to its Content-Length."""
    async with unfinished(app, path, parts, **headers) as connection:
        answer = await connection.start()
        while len(answer.body) < int(answer.headers["content-length"]):
            answer.body += (await connection.part())["body"]
        return answer


async def posted(app: Any, path: str, parts: Sequence[bytes], **headers: str | None) -> Answer:
    """Send all of these parts, and return the answer."""
    connection = Connection(app, path, parts, headers_for(ADD, **headers), "POST")
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    return answer


def sum_in(answer: Answer) -> str:
    text: str = answer.json()["result"]["content"][0]["text"]
    return text


# By the head --------------------------------------------------------------------------------------


@spec("HTTP-2", "HTTP-8", "HTTP-32")
@pytest.mark.parametrize("parts", [[], [b'{"jsonrpc"']], ids=["nothing", "a part"])
@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (OPEN, {"host": "evil.example"}, 400),
        (OPEN, {"origin": "https://evil.example"}, 403),
        (OPEN, {"content_type": "text/plain"}, 415),
        (OPEN, {"accept": "text/html"}, 406),
        (OPEN, {"content_length": "4194305"}, 413),
        (OPEN, {"content_length": "9" * 30}, 413),
        (OPEN, {"content_length": "9" * 5000}, 413),
        (OPEN, {"content_length": "5", "transfer_encoding": "chunked"}, 400),
        (MESSAGES, {"origin": "https://evil.example"}, 403),
        (f"{OPEN}/sse", {}, 405),
        (CLOSED, {"authorization": "Bearer a b"}, 400),
        (CLOSED, {"authorization": "Bearer " + "a" * 5000}, 401),
        (f"{CLOSED}?access_token=x", {}, 400),
    ],
)
async def test_a_request_that_its_head_refuses_is_answered_before_its_body(
    app, path, parts, headers, status
):
    early = await answered(app, path, parts, **headers)
    assert early.status == status
    late = await send(app, path, b"{}", **headers)
    assert (late.status, late.headers, late.body) == (status, early.headers, early.body)


@pytest.mark.parametrize("length", [None, "4100000"])
async def test_a_credential_that_is_needed_and_missing_is_asked_for_before_much_is_read(
    app, length
):
    parts = [] if length else [SPACES, SPACES]
    for path in (CLOSED, MESSAGES):
        early = await answered(app, path, parts, content_length=length)
        late = await send(app, path, ADD)
        assert (early.status, early.headers, early.body) == (401, late.headers, late.body)
        assert "Bearer" in early.headers["www-authenticate"]


@pytest.mark.parametrize("length", [None, "4100000"])
async def test_of_a_credential_that_does_not_hold_no_more_is_read(app, length):
    for path in (OPEN, CLOSED):
        bearer = f"Bearer mcp_{'Z' * 43}"
        parts = [] if length else [SPACES, SPACES]
        early = await answered(app, path, parts, authorization=bearer, content_length=length)
        assert early.status == 401
        assert early.json()["error"] == "invalid_token"
    # Each credential was checked once.
    assert await AuthEvent.objects.acount() == 2


async def test_a_request_with_two_lengths_ends_its_connection(app):
    both = {"content_length": str(len(ADD_BYTES)), "transfer_encoding": "chunked"}
    refused = await send(app, OPEN, ADD_BYTES, **both)
    assert (refused.status, refused.headers["connection"]) == (400, "close")
    assert refused.json()["error"]["message"] == TWO_LENGTHS


async def test_a_form_which_may_hold_a_token_is_read_to_the_same_length(app):
    assert (await answered(app, OPEN, [SPACES, SPACES], content_type=FORM)).status == 415
    hidden = [b"access_token=x&" + SPACES, SPACES]
    assert (await answered(app, OPEN, hidden, content_type=FORM)).status == 400
    assert (await send(app, OPEN, b"access_token=x", content_type=FORM)).status == 400


async def test_what_a_refused_client_still_sends_is_dropped(app):
    connection = Connection(
        app, OPEN, [b"x"] * 20, headers_for(ADD, origin="https://evil.example"), "POST"
    )
    await connection.start()
    assert (await connection.rest()).status == 403
    # A server resets a connection that it closes with the body unread.
    assert not connection._body
    await connection.close()


async def test_middleware_sees_a_request_that_its_head_refuses(settings):
    settings.MIDDLEWARE = [f"{HERE}.adds_a_header", *settings.MIDDLEWARE]
    lane = get_asgi_application()
    for headers, status in (({"origin": "https://evil.example"}, 403), ({"host": "other"}, 400)):
        answer = await answered(lane, OPEN, [b"x"], **headers)
        assert (answer.status, answer.headers["x-added"]) == (status, "0")
    settings.MCP_DJANGO = {"BODY_SECONDS": 0.02}
    answer = await answered(lane, OPEN, [b"x"])
    assert (answer.status, answer.headers["x-added"]) == (408, "0")


# Large ones that are read -------------------------------------------------------------------------


async def test_a_large_body_of_a_caller_with_a_token_is_read_to_the_limit(app, token, settings):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 3 * MAX_UNVERIFIED_BYTES}
    for _ in range(2):
        answer = await posted(app, CLOSED, [*[SPACES] * 4, ADD_BYTES], authorization=token)
        assert sum_in(answer) == "5"
    assert (await answered(app, CLOSED, [SPACES] * 7, authorization=token)).status == 413


async def test_a_large_body_is_read_where_everybody_may_come(app):
    body = message("tools/call", {"name": "echo", "arguments": {"text": "5"}})
    parts = [*[SPACES] * 4, json.dumps(body).encode()]
    assert sum_in(await posted(app, OPEN, parts, mcp_name="echo")) == "5"


async def test_a_permission_of_the_site_decides_who_may_send_much(mounted):
    answer = await posted(mounted(whoever), "/whoever/mcp", [SPACES, SPACES, ADD_BYTES])
    assert sum_in(answer) == "5"


async def test_a_backend_of_the_site_gets_the_whole_body(mounted):
    parts = [SPACES, SPACES, ADD_BYTES]
    length = str(sum(map(len, parts)))
    answer = await posted(mounted(signed), "/signed/mcp", parts, x_length=length)
    assert sum_in(answer) == "5"


async def test_a_body_in_many_parts_is_read_whole(app, token):
    parts = [ADD_BYTES[n : n + 1] for n in range(len(ADD_BYTES))]
    assert sum_in(await posted(app, CLOSED, parts, authorization=token)) == "5"


async def test_a_large_body_in_very_many_parts_costs_no_more_than_they_do():
    """Parts are joined once, at the end: joining them with each new part takes quadratic time."""
    parts = 2_000

    async def cost(first: bytes) -> float:
        pieces = iter([first, *[b" "] * parts])
        left = parts + 1

        async def receive() -> dict[str, Any]:
            nonlocal left
            left -= 1
            return {"type": "http.request", "body": next(pieces), "more_body": left > 0}

        connection = Connection(idle, OPEN, ADD_BYTES, headers_for(ADD), "POST")
        exchange = exchange_of(connection.scope)
        await connection.close()
        began = time.process_time()
        assert await BodyReader(open_server, connection.scope, exchange, receive).read() is None
        took = time.process_time() - began
        assert len(exchange.body) == len(first) + parts
        return took

    small, large = await cost(b" "), await cost(b" " * 3_000_000)
    # To join them with each part would copy six gigabytes: a hundred times as much.
    assert large < 20 * small + 0.1


async def idle(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers nothing."""


# Those that do not come ---------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [[], [b'{"json', b'rpc"']], ids=["nothing", "parts"])
async def test_a_body_that_does_not_come_is_not_waited_for(app, parts, settings):
    settings.MCP_DJANGO = {"BODY_SECONDS": 0.02}
    for http, closes in (("1.1", True), ("2", False)):
        async with unfinished(app, OPEN, parts, http=http) as connection:
            answer = await connection.start()
            await connection.rest()
        assert answer.status == 408
        assert answer.json()["error"]["code"] == INVALID_REQUEST
        assert "within 0.02 seconds" in answer.json()["error"]["message"]
        assert ("connection" in answer.headers) is closes


async def test_a_refused_client_that_does_not_go_on_is_not_waited_for(app, settings):
    settings.MCP_DJANGO = {"BODY_SECONDS": 0.02}
    async with unfinished(app, OPEN, [b"x"], origin="https://evil.example") as connection:
        await connection.start()
        assert (await connection.rest()).status == 403


async def test_a_client_that_leaves_in_the_middle_of_its_body_ends_the_request(app):
    async with unfinished(app, OPEN, [b'{"jsonrpc"', b":"]) as connection:
        connection.disconnect()
    assert connection.sent == []


# Under WSGI ---------------------------------------------------------------------------------------


class Untouchable:
    """A request body that must not be read."""

    def read(self, *args: Any) -> bytes:
        raise AssertionError("The body was read.")

    readline = read


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (OPEN, {"host": "evil.example"}, 400),
        (OPEN, {"origin": "https://evil.example"}, 403),
        (OPEN, {"content_type": "text/plain"}, 415),
        (OPEN, {"content_length": "4194305"}, 413),
        (CLOSED, {"authorization": "Bearer a b"}, 400),
        (CLOSED, {"content_length": "4100000"}, 401),
        (CLOSED, {"content_length": "4100000", "authorization": "Bearer mcp_x"}, 401),
    ],
)
async def test_under_wsgi_no_body_is_read_of_what_the_head_refuses(path, headers, status):
    named = headers_for(ADD, **headers)
    environ = {
        "wsgi.input": Untouchable(),
        "CONTENT_TYPE": named.pop("content-type"),
        "CONTENT_LENGTH": named.pop("content-length", "10"),
    }

    def ask() -> int:
        client = Client()
        response = client.generic("POST", path, b"", headers=named, **environ)
        return response.status_code

    assert await in_thread(ask) == status
