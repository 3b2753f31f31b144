"""Without an SDK the trace context is passed on; without the API there are no spans at all."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from django.test import override_settings

from mcp_django.execution import telemetry
from mcp_django.execution.otel import Instruments
from mcp_django.models import Call
from mcp_django.test import MCPClient
from tests.execution.telemetry.site import CLIENT, TRACE_ID, call, traced
from tests.kit.processes import REPOSITORY
from tests.spec import spec

pytestmark = pytest.mark.django_db


def seen() -> list[str]:
    """Return the ids of the spans in which a tool runs, when called with a trace context."""
    return list(answer("here")["structuredContent"]["spans"])


def answer(tool: str) -> Any:
    body = call(tool)
    client = MCPClient(server=traced, raise_exceptions=False)
    return client.request(body["method"], body["params"])


@spec("MET-4")
@pytest.mark.usefixtures("call_log")
def test_without_an_sdk_the_trace_of_the_client_goes_on(monkeypatch):
    instruments = Instruments()
    monkeypatch.setattr(telemetry, "load_instruments", lambda: instruments)
    assert seen() == [CLIENT]
    assert Call.objects.get().trace_id == TRACE_ID
    assert answer("fail")["isError"]


@pytest.mark.usefixtures("call_log")
def test_without_the_api_nothing_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "mcp_django.execution.otel")
    assert telemetry.load_instruments.__wrapped__() is None
    monkeypatch.setattr(telemetry, "load_instruments", telemetry.load_instruments.__wrapped__)
    assert seen() == ["0" * 16]
    # The call log has the trace id even without the API.
    assert Call.objects.get().trace_id == TRACE_ID


def test_an_api_that_is_broken_is_told_of(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp_django.execution.otel", None)
    with pytest.raises(ModuleNotFoundError, match="otel"):
        telemetry.load_instruments.__wrapped__()


def test_what_is_switched_off_is_not_even_looked_for(monkeypatch):
    monkeypatch.setattr(telemetry, "load_instruments", lambda: pytest.fail("looked for"))
    with override_settings(MCP_DJANGO={"TELEMETRY": False}):
        assert telemetry.get_instruments() is None


@pytest.mark.outside
def test_nothing_is_imported_at_the_start_of_a_site():
    code = (
        "import sys, tests.sites.example.asgi, mcp_django.transports.stdio;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_without_an_sdk_and_a_trace_there_is_nothing_to_do(monkeypatch):
    instruments = Instruments()
    monkeypatch.setattr(telemetry, "load_instruments", lambda: instruments)
    monkeypatch.setattr(instruments, "start_span", lambda *args, **kwargs: pytest.fail("begun"))
    client = MCPClient(server=traced, raise_exceptions=False)
    assert client.call_tool("here").structured["spans"] == ["0" * 16]
