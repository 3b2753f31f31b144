"""The fast ASGI handler serves endpoints wherever the URLconf has them, and Django the rest."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from channels.routing import ProtocolTypeRouter
from django.conf.urls.i18n import i18n_patterns
from django.core.handlers.asgi import ASGIRequest
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import include, path

from mcp_django.asgi import (
    PATH_CACHE_MAX_LENGTH,
    Application,
    _resolve_endpoint_cached,
    async_only_middleware,
    find_endpoint,
    get_asgi_application,
)
from mcp_django.transports.asgi_handler import FastASGIHandler
from mcp_django.transports.request_checks import MAX_INLINE_BYTES
from mcp_django.transports.view import EndpointView
from tests.kit.drivers import Connection, headers_for, message, send
from tests.spec import spec
from tests.transports.stage import stage
from tests.transports.test_asgi_handler_raw import where_decoded

CALL = message("tools/call", {"name": "stagger", "arguments": {}})
HERE = "tests.transports.test_asgi_handler"


def other(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ordinary")


urlpatterns = [
    path("plain/mcp", stage.urls),
    path("<slug:tenant>/tenant/mcp", stage.urls),
    path("included/", include([path("deep/mcp/", stage.urls)])),
    path("other", other),
    *i18n_patterns(path("spoken/mcp", stage.urls)),
]


class Spy:
    """An application that counts the requests that it gets."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.used = 0

    async def __call__(self, *args: Any) -> None:
        self.used += 1
        await self.inner(*args)


@pytest.fixture(autouse=True)
def _urls(settings, _stage):
    settings.ROOT_URLCONF = HERE
    settings.LANGUAGES = [("en", "English"), ("de", "German")]
    locale = "django.middleware.locale.LocaleMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, locale]


def spied() -> tuple[Application, Spy, Spy]:
    application = get_asgi_application()
    django, lane = Spy(application._django), Spy(application._handler)
    return Application(django, lane), django, lane


@pytest.mark.parametrize(
    "address",
    [
        "/plain/mcp",
        "/plain/mcp/",
        "/acme/tenant/mcp",
        "/included/deep/mcp/",
        "/en/spoken/mcp",
        "/de/spoken/mcp/",
        "/plain/mcp?x=1",
    ],
)
async def test_an_endpoint_takes_the_lane(address):
    application, django, lane = spied()
    answer = await send(application, address, CALL)
    assert answer.json()["result"]["content"][0]["text"] == "staggered"
    assert (django.used, lane.used) == (0, 1)


@pytest.mark.parametrize("size", [10, MAX_INLINE_BYTES])
async def test_a_body_is_decoded_once_and_a_large_one_in_a_thread(size, monkeypatch):
    application, _, lane = spied()
    threads = where_decoded(monkeypatch)
    call = message("tools/call", {"name": "stagger", "arguments": {"padding": "x" * size}})
    assert "padding" in (await send(application, "/plain/mcp", call)).body.decode()
    assert (lane.used, len(threads)) == (1, 1)
    assert (threading.current_thread().name in threads) == (size < MAX_INLINE_BYTES)


class Translating:
    """Middleware that replaces the body of the request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request._body = request.body.replace(b"faltering", b"stagger")
        return self.get_response(request)


async def test_what_middleware_makes_of_a_body_counts(settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{HERE}.Translating"]
    application, _, lane = spied()
    call = message("tools/call", {"name": "faltering", "arguments": {}})
    answer = await send(application, "/plain/mcp", call, mcp_name="stagger")
    assert answer.json()["result"]["content"][0]["text"] == "staggered"
    assert lane.used == 1


class Relabeling:
    """Middleware that changes the content type to a form's, in the headers of the ASGI scope."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        assert isinstance(request, ASGIRequest)
        headers = request.scope["headers"]
        headers[:] = [pair for pair in headers if pair[0] != b"content-type"]
        headers.append((b"content-type", b"application/x-www-form-urlencoded"))
        return self.get_response(request)


async def test_what_middleware_makes_of_the_head_counts(settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{HERE}.Relabeling"]
    application, _, lane = spied()
    call = message("tools/call", {"name": "stagger", "arguments": {}})
    answer = await send(application, "/plain/mcp", call)
    assert (answer.status, lane.used) == (415, 1)


@pytest.mark.parametrize("address", ["/other", "/plain/mcpx", "/fr/spoken/mcp", "/", "/pläin"])
async def test_everything_else_goes_to_django(address):
    application, django, lane = spied()
    answer = await send(application, address, b"", verb="GET")
    assert answer.status == (200 if address == "/other" else 404)
    assert (django.used, lane.used) == (1, 0)


def test_a_path_is_looked_up_once():
    _resolve_endpoint_cached.cache_clear()
    for _ in range(3):
        assert find_endpoint("/plain/mcp")
        assert not find_endpoint("/other")
    info = _resolve_endpoint_cached.cache_info()
    assert (info.misses, info.hits, info.currsize) == (2, 4, 2)


def test_a_long_path_is_found_and_not_remembered():
    _resolve_endpoint_cached.cache_clear()
    endpoint = f"/{'a' * PATH_CACHE_MAX_LENGTH}/tenant/mcp"
    assert find_endpoint(endpoint)
    assert not find_endpoint(endpoint + "x")
    assert not find_endpoint("/" + "a" * PATH_CACHE_MAX_LENGTH)
    assert _resolve_endpoint_cached.cache_info().currsize == 0
    assert not find_endpoint("/" + "a" * (PATH_CACHE_MAX_LENGTH - 1))
    assert _resolve_endpoint_cached.cache_info().currsize == 1


async def test_a_root_path_is_taken_off(settings):
    application, _, lane = spied()
    connection = under_root(application, "/site/plain/mcp", "/site")
    assert (await finish(connection)).status == 200
    settings.FORCE_SCRIPT_NAME = "/forced"
    connection = under_root(application, "/forced/plain/mcp", "")
    assert (await finish(connection)).status == 200
    assert lane.used == 2


def under_root(application: Any, address: str, root: str) -> Connection:
    raw = json.dumps(CALL).encode()
    return Connection(application, address, raw, headers_for(CALL), "POST", root_path=root)


async def finish(connection: Connection) -> Any:
    await connection.start()
    answer = await connection.rest()
    await connection.close()
    return answer


async def test_it_is_the_http_part_of_a_protocol_router():
    application, _, lane = spied()
    router = ProtocolTypeRouter({"http": application})
    assert (await send(router, "/plain/mcp", CALL)).status == 200
    assert lane.used == 1


def only_async(get_response: Callable[..., Any]) -> Callable[..., Any]:
    async def middleware(request: HttpRequest) -> Any:
        return await get_response(request)

    return middleware


only_async.sync_capable = False
only_async.async_capable = True


async def test_middleware_that_cannot_run_synchronously_leaves_everything_to_django(settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{HERE}.only_async"]
    assert async_only_middleware() == [f"{HERE}.only_async"]
    application = get_asgi_application()
    assert application._handler is None
    answer = await send(application, "/plain/mcp", CALL)
    assert answer.json()["result"]["content"][0]["text"] == "staggered"


# What middleware does to an answer ----------------------------------------------------------------


def adds_a_header(get_response: Callable[..., Any]) -> Callable[..., Any]:
    def middleware(request: HttpRequest) -> Any:
        response = get_response(request)
        response["X-Added"] = "yes"
        return response

    return middleware


def answers_itself(get_response: Callable[..., Any]) -> Callable[..., Any]:
    return lambda request: HttpResponse("closed for the day", status=418)


def fails(get_response: Callable[..., Any]) -> Callable[..., Any]:
    def middleware(request: HttpRequest) -> Any:
        raise RuntimeError("secret detail")

    return middleware


@spec("HTTP-7")
@pytest.mark.parametrize("tool", ["stagger", "knock"])
async def test_headers_of_middleware_are_kept(tool, settings):
    settings.MIDDLEWARE = [f"{HERE}.adds_a_header", *settings.MIDDLEWARE]
    arguments = {"name": "x"} if tool == "knock" else {}
    body = message("tools/call", {"name": tool, "arguments": arguments}, progressToken=1)
    answer = await send(get_asgi_application(), "/plain/mcp", body)
    assert answer.headers["x-added"] == "yes"
    assert answer.is_stream is (tool == "stagger")


async def test_middleware_may_answer_itself(settings):
    settings.MIDDLEWARE = [f"{HERE}.answers_itself", *settings.MIDDLEWARE]
    answer = await send(get_asgi_application(), "/plain/mcp", CALL)
    assert (answer.status, answer.body) == (418, b"closed for the day")


async def test_every_request_begins_and_finishes_once():
    heard: list[tuple[str, Any]] = []
    signals = {"started": request_started, "finished": request_finished}
    for name, signal in signals.items():
        note = partial(lambda name, sender, **kwargs: heard.append((name, sender)), name)
        signal.connect(note, weak=False, dispatch_uid=HERE)
    try:
        body = message("tools/call", {"name": "open_gate", "arguments": {"name": "x"}})
        await send(partial(FastASGIHandler(), view=EndpointView(stage)), "/plain/mcp", body)
    finally:
        for signal in signals.values():
            signal.disconnect(dispatch_uid=HERE)
    assert heard == [("started", FastASGIHandler), ("finished", FastASGIHandler)]


@spec("ERR-5")
async def test_middleware_that_fails_tells_nothing(settings, caplog):
    settings.MIDDLEWARE = [f"{HERE}.fails", *settings.MIDDLEWARE]
    answer = await send(get_asgi_application(), "/plain/mcp", CALL)
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


async def test_a_path_that_is_no_text_is_refused():
    handler = partial(FastASGIHandler(), view=EndpointView(stage))
    answer = await send(handler, "/plain/mcp", CALL, cookie="é")
    assert answer.status in {200, 400}
