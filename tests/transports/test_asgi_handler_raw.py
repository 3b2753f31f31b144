"""The raw mount and the consumer do only short work on the event loop, the rest in threads."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django import forms

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.protocol import jsonrpc
from mcp_django.transports.answer import InFlight
from mcp_django.transports.consumer import MCPConsumer
from mcp_django.transports.exchange import Exchange
from mcp_django.transports.http import IncomingOnLoop
from mcp_django.transports.request_checks import MAX_INLINE_BYTES
from tests.kit.drivers import Connection, headers_for, message, send
from tests.kit.servers import open_to_all
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.handshakes import OPEN, call, opened
from tests.transports.stage import until

seen: list[str] = []


class WatchedForm(forms.Form):
    """A form that notes in which thread it is read."""

    text = forms.CharField()

    def clean(self) -> None:
        seen.append(threading.current_thread().name)


class Watched(BasePermission):
    """A permission that records the thread in which it is checked."""

    def has_permission(self, principal: Principal) -> bool:
        seen.append(threading.current_thread().name)
        return True


async def echo(form: WatchedForm) -> str:
    """Say how much came."""
    return str(len(form.cleaned_data["text"]))


@pytest.fixture(
    params=[lambda server: server.asgi, lambda server: MCPConsumer.as_asgi(server=server)]
)
def mounted(request):
    """A server and a mount of it, without Django's handler around it."""
    server = open_to_all()
    server.tool(form=WatchedForm)(echo)
    mount: Callable[[Any], Any] = request.param
    return server, mount(server)


def where_decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the names of the threads in which bodies are decoded."""
    threads: list[str] = []
    decode = jsonrpc.decode

    def noted(raw: bytes) -> Any:
        threads.append(threading.current_thread().name)
        return decode(raw)

    monkeypatch.setattr(jsonrpc, "decode", noted)
    return threads


async def thread_of(app: Any, size: int) -> str:
    """Call a tool and return the name of the thread that read the arguments."""
    seen.clear()
    body = message("tools/call", {"name": "echo", "arguments": {"text": "x" * size}})
    answer = await send(app, "/", body)
    assert answer.json()["result"]["content"][0]["text"] == str(size)
    (name, *_) = seen
    return name


async def test_a_large_body_is_read_in_a_thread(mounted):
    _, app = mounted
    here = threading.current_thread().name
    # The first request of a process builds the catalog, in a thread.
    assert (await thread_of(app, 10)).startswith("mcp-tool")
    # The message around the text is less than a thousand bytes.
    assert await thread_of(app, 10) == here
    assert await thread_of(app, MAX_INLINE_BYTES - 1000) == here
    assert (await thread_of(app, MAX_INLINE_BYTES)).startswith("mcp-tool")
    assert await thread_of(app, 10) == here


async def test_a_body_is_decoded_once_and_a_large_one_in_a_thread(mounted, monkeypatch):
    _, app = mounted
    threads = where_decoded(monkeypatch)
    here = threading.current_thread().name
    await thread_of(app, MAX_INLINE_BYTES - 1000)
    assert threads == [here]
    threads.clear()
    await thread_of(app, MAX_INLINE_BYTES)
    assert len(threads) == 1
    assert here not in threads


async def test_what_has_come_of_a_large_body_is_not_decoded(mounted, monkeypatch):
    _, app = mounted
    threads = where_decoded(monkeypatch)
    # After each part, the server checks whether the type is a form's; this only looks like one.
    like_a_form = "application/json; a=application/x-www-form-urlencoded"
    call = message("tools/call", {"name": "echo", "arguments": {"text": "x" * 200_000}})
    body = json.dumps(call).encode()
    parts = [body[start : start + 50_000] for start in range(0, len(body), 50_000)]
    connection = Connection(app, "/", parts, headers_for(call, content_type=like_a_form), "POST")
    await connection.start()
    answer = await connection.rest()
    assert answer.json()["result"]["content"][0]["text"] == "200000"
    await connection.close()
    assert len(threads) == 1


async def test_a_permission_of_the_site_is_asked_in_a_thread(mounted):
    server, app = mounted
    server.tool("other", permission=Watched)(lambda: "other")
    assert (await thread_of(app, 10)).startswith("mcp-tool")
    await send(app, "/", message("tools/list"))
    assert seen[-1].startswith("mcp-short")


# Objects that belong to a request, and hold its body and its caller.
HELD = (Exchange, IncomingOnLoop, InFlight)


@pytest.fixture
def left_over():
    """A function that returns such objects of this test; the garbage collector is off."""
    gc.collect()
    gc.disable()
    # Not by `isinstance`, which evaluates the lazy objects of other tests.
    before = [held for held in gc.get_objects() if issubclass(type(held), HELD)]
    known = {*map(id, before)}
    yield lambda: [
        held for held in gc.get_objects() if issubclass(type(held), HELD) and id(held) not in known
    ]
    gc.enable()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tool", ["echo", "echo_sync"])
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_request_is_freed_without_the_garbage_collector(tool, revision, left_over):
    if revision == "2026-07-28":
        posted = message("tools/call", {"name": tool, "arguments": {"text": "x"}})
        answer = await send(MOUNTS["raw"], OPEN, posted)
    else:
        peer = await opened("raw", version=revision)
        answer = await peer.send(call(tool, text="x"))
    assert answer.status == 200
    # The thread still holds the request for a moment.
    await until(lambda: not left_over())
