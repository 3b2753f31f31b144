"""A change between two calls takes effect at the second, whatever the first has cached.

Each test calls before a change, after it, and after it is undone: on the mounts that serve a call
in different ways, with and without a session, sync and async functions, read-only and not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.asgi import get_asgi_application as get_django_application
from django.dispatch import Signal
from django.test import override_settings
from django.utils import translation
from django.utils.translation import gettext_lazy

from mcp_django import ToolError
from mcp_django.asgi import get_asgi_application
from mcp_django.auth.permissions import IsAuthenticated
from mcp_django.models import Call
from mcp_django.protocol.envelope import SERVER_INFO
from mcp_django.signals import call_finished, call_started
from tests.kit.drivers import PATIENCE
from tests.transports.asgi import MOUNTS
from tests.transports.caller import REVISIONS, Caller
from tests.transports.stage import stage

LIMITED, UNKNOWN = "-31429", "-32602"
# Django translates them.
YES, REQUIRED = gettext_lazy("Yes"), gettext_lazy("This field is required.")

pytestmark = [pytest.mark.every_mount, pytest.mark.django_db(transaction=True)]


async def later(text: str = "said") -> str:
    """Say something on the event loop."""
    return text


def now(text: str = "said") -> str:
    """Say something in a thread."""
    return text


async def doze(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return "awake"


async def count_later() -> str:
    """Ask the database twice from the event loop."""
    return str([await Group.objects.acount() for _ in range(2)])


def count_now() -> str:
    """Ask the database twice from a thread."""
    return str([Group.objects.count() for _ in range(2)])


async def refuse_later() -> str:
    """Fail with a sentence in the language of the request."""
    raise ToolError(REQUIRED)


def refuse_now() -> str:
    """Fail with a sentence in the language of the request, in a thread."""
    raise ToolError(REQUIRED)


READING = (later, now, doze, count_later, count_now, refuse_later, refuse_now)
WRITING = {"change_later": later, "change_now": now}
# One tool for each way in which a call runs.
TOOLS = ("later", "now", *WRITING)


@pytest.fixture(scope="module", autouse=True)
def _tools():
    """Register these functions as tools of the stage."""
    for function in READING:
        stage.tool(read_only=True, title=YES)(function)
    for name, function in WRITING.items():
        stage.tool(name)(function)
    yield
    for function in READING:
        stage.unregister(function)


@pytest.fixture(params=["raw", "lane", "view"])
def app(request):
    """The mounts that serve a call in different ways."""
    return MOUNTS[request.param]


@pytest.fixture(params=REVISIONS)
async def caller(request, app):
    """A client that has called every tool before."""
    client = Caller(app, "/stage/mcp", request.param)
    await client.open()
    assert await client.texts(*TOOLS) == ["said"] * len(TOOLS)
    return client


# Settings -----------------------------------------------------------------------------------------


async def test_a_rate_of_the_settings(caller):
    with override_settings(MCP_DJANGO={"RATE": "1/h"}):
        assert await caller.texts("later", *TOOLS) == ["said", *[LIMITED] * len(TOOLS)]
    assert await caller.texts(*TOOLS) == ["said"] * len(TOOLS)


async def test_how_a_rate_is_told(caller):
    with override_settings(MCP_DJANGO={"RATE": "1/h"}):
        await caller.call("later")
        errors = [await caller.call(tool) for tool in TOOLS]
    with override_settings(MCP_DJANGO={"RATE": "1/h", "THROTTLE_AS": "result"}):
        results = [await caller.call(tool) for tool in TOOLS]
    with override_settings(MCP_DJANGO={"RATE": "1/h"}):
        again = [await caller.call(tool) for tool in TOOLS]
    assert again == errors
    sentences = {error["message"] for error in errors}
    assert {result["content"][0]["text"] for result in results} == sentences
    assert all(result["isError"] for result in results)


async def test_how_large_a_result_may_be(caller):
    text = "x" * 2000
    assert await caller.texts(*TOOLS, text=text) == [text] * len(TOOLS)
    with override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": 1000}):
        assert text not in await caller.texts(*TOOLS, text=text)
    assert await caller.texts(*TOOLS, text=text) == [text] * len(TOOLS)


async def test_how_much_a_read_only_call_may_ask(caller):
    counting = ("count_later", "count_now")
    assert await caller.texts(*counting) == ["[0, 0]"] * 2
    with override_settings(MCP_DJANGO={"LIMITS": {"statements": 1}}):
        assert all("statement" in text for text in await caller.texts(*counting))
    assert await caller.texts(*counting) == ["[0, 0]"] * 2


async def test_how_long_a_call_may_take(caller):
    assert await caller.texts("doze", seconds=0) == ["awake"]
    with override_settings(MCP_DJANGO={"CALL_TIMEOUT": 0.01}):
        assert await caller.texts("doze", seconds=5) != ["awake"]
    assert await caller.texts("doze", seconds=0.02) == ["awake"]


# The call log -------------------------------------------------------------------------------------


@pytest.fixture
def log(call_log):
    """A function that returns and deletes the records of calls."""

    def take() -> list[Any]:
        assert call_log.flush(PATIENCE)
        rows = list(Call.objects.order_by("component").values_list("component", "arguments"))
        Call.objects.all().delete()
        return rows

    return sync_to_async(take)


async def test_whether_calls_are_logged(log, caller):
    every = [(tool, None) for tool in sorted(TOOLS)]
    assert await log() == every
    with override_settings(MCP_DJANGO={"LOG_CALLS": False}):
        await caller.texts(*TOOLS)
        assert await log() == []
    await caller.texts(*TOOLS)
    assert await log() == every


async def test_whether_arguments_are_logged(log, caller):
    await log()
    with override_settings(MCP_DJANGO={"LOG_ARGUMENTS": True}):
        await caller.texts(*TOOLS, text="spoken")
        assert await log() == [(tool, {"text": "spoken"}) for tool in sorted(TOOLS)]
    await caller.texts(*TOOLS, text="spoken")
    assert await log() == [(tool, None) for tool in sorted(TOOLS)]


@contextmanager
def received(signal: Signal) -> Iterator[list[str]]:
    """Connect a receiver within the block; yield the names of the called components."""
    names: list[str] = []

    def receive(call: Call, **kwargs: Any) -> None:
        names.append(call.component)

    signal.connect(receiver := receive)
    try:
        yield names
    finally:
        signal.disconnect(receiver)


@pytest.mark.parametrize("signal", [call_started, call_finished])
async def test_who_hears_of_calls(log, caller, signal):
    for _ in range(2):
        with received(signal) as names:
            await caller.texts(*TOOLS)
            await log()
        assert sorted(names) == sorted(TOOLS)
        await caller.texts(*TOOLS)
        await log()
        assert sorted(names) == sorted(TOOLS)


async def test_which_level_the_logger_has(log, caller, caplog):
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="mcp_django.calls"):
            await caller.texts(*TOOLS)
            await log()
        lines = [record.message for record in caplog.records if record.name == "mcp_django.calls"]
        assert sorted(lines) == [f"tool {tool}: ok" for tool in sorted(TOOLS)]
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="mcp_django.calls"):
            await caller.texts(*TOOLS)
            await log()
        assert [record for record in caplog.records if record.name == "mcp_django.calls"] == []


# Telemetry ----------------------------------------------------------------------------------------


@cache
def telemetry() -> tuple[Any, Any]:
    """Return a tracer provider, and the exporter that keeps its spans.

    There is one for the whole process, since a tracer of the API keeps the first provider that it
    finds.
    """
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.fixture
def spans(monkeypatch):
    """A function that returns and deletes the names of the finished spans."""
    pytest.importorskip("opentelemetry.sdk")
    _, exporter = telemetry()
    exporter.clear()

    def take() -> list[str]:
        names = [span.name for span in exporter.get_finished_spans()]
        exporter.clear()
        return sorted(names)

    return take


@contextmanager
def traced() -> Iterator[None]:
    """Set a tracer provider within the block, as when the monitoring of a process starts."""
    from opentelemetry import trace

    # The API has a function that sets it, but only once.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", telemetry()[0])
        yield


EVERY_SPAN = [f"tools/call {tool}" for tool in sorted(TOOLS)]


async def test_whether_there_is_a_tracer(spans, caller):
    # The fixture's session may have a span, if another test has set a tracer before.
    spans()
    for _ in range(2):
        with traced():
            await caller.texts(*TOOLS)
        assert spans() == EVERY_SPAN
        await caller.texts(*TOOLS)
        assert spans() == []


async def test_whether_there_is_telemetry(spans, caller):
    spans()
    with traced():
        for _ in range(2):
            await caller.texts(*TOOLS)
            assert spans() == EVERY_SPAN
            with override_settings(MCP_DJANGO={"TELEMETRY": False}):
                await caller.texts(*TOOLS)
            assert spans() == []


# The language -------------------------------------------------------------------------------------


LANGUAGES = [
    ("en", "Yes", "This field is required."),
    ("de", "Ja", "Dieses Feld ist zwingend erforderlich."),
]


async def spoken(caller: Caller) -> set[str]:
    """Return every translated text; all of them should be in one language."""
    errors = await caller.texts("refuse_later", "refuse_now")
    titles = await caller.titles()
    return {*errors, titles["later"], titles["now"], (await caller.open())["title"]}


async def test_which_language_the_site_speaks(caller, monkeypatch):
    monkeypatch.setattr(stage, "title", YES)
    for language, yes, required in 2 * LANGUAGES:
        with override_settings(LANGUAGE_CODE=language):
            assert await spoken(caller) == {yes, f"error: {required}"}


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize("make", [get_django_application, get_asgi_application])
async def test_which_language_a_request_wants(make, version, settings, monkeypatch):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    monkeypatch.setattr(stage, "title", YES)
    caller = Caller(make(), "/stage/mcp", version)
    await caller.open()
    for language, yes, required in 2 * LANGUAGES:
        caller.headers["accept_language"] = language
        assert await caller.texts("refuse_now") == [f"error: {required}"]
        assert (await caller.titles())["now"] == yes
        assert (await caller.open())["title"] == yes


@pytest.mark.parametrize("version", REVISIONS)
async def test_which_language_is_active_on_the_loop(version, monkeypatch):
    """An ASGI middleware of the site may have activated a language."""
    monkeypatch.setattr(stage, "title", YES)
    caller = Caller(MOUNTS["raw"], "/stage/mcp", version)
    await caller.open()
    for language, yes, required in 2 * LANGUAGES:
        with translation.override(language):
            result = await caller.call("refuse_later")
        assert result["content"][0]["text"] == required
        if caller.is_stateless:
            assert result["_meta"][SERVER_INFO]["title"] == yes


# The code -----------------------------------------------------------------------------------------


async def test_whom_the_server_lets_in(caller, monkeypatch):
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(stage, "permission", IsAuthenticated)
            for tool in TOOLS:
                answer = await caller.ask("tools/call", name=tool, arguments={})
                assert answer.status == 401
        assert await caller.texts(*TOOLS) == ["said"] * len(TOOLS)


async def test_what_the_server_says_of_itself(caller, monkeypatch):
    attributes = {"title": "title", "version": "version", "website_url": "websiteUrl"}
    for value in ("https://first.test/", "https://second.test/"):
        for attribute in attributes:
            monkeypatch.setattr(stage, attribute, value)
        identity = await caller.open()
        if caller.is_stateless:
            called = await caller.call("refuse_later")
            assert called["_meta"][SERVER_INFO] == identity
        assert {identity[name] for name in attributes.values()} == {value}


@contextmanager
def registered(function: Callable[..., Any], **options: Any) -> Iterator[None]:
    """Register a function as a tool of the stage within the block."""
    stage.tool(**options)(function)
    try:
        yield
    finally:
        stage.unregister(function)


async def test_which_components_there_are(caller):
    async def added_later() -> str:
        return "later"

    def added_now() -> str:
        return "now"

    def another() -> str:
        return "another"

    names = ("added_later", "added_now")
    for _ in range(2):
        assert await caller.texts(*names) == [UNKNOWN] * 2
        with registered(added_later), registered(added_now):
            assert await caller.texts(*names) == ["later", "now"]
        # Another function of the same name.
        with registered(another, name="added_now"):
            assert await caller.texts(*names) == [UNKNOWN, "another"]
