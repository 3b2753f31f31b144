"""What must not end more than itself: a tool, a long path, a large body, a busy moment."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_django import Context, MCPServer, asgi
from mcp_django.auth.permissions import AllowAny, IsStaff
from mcp_django.exceptions import Busy, ResourceNotFound
from mcp_django.transports import listen
from mcp_django.transports.raw import MAX_INLINE_BYTES
from tests.drivers import connect, message, send
from tests.servers import real_client
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask
from tests.transports.stage import stage

PATH = "/stage/mcp"


async def hello(text: str = "hello") -> str:
    """Say hello."""
    return text[:5]


def leave() -> str:
    """End the process, as argparse would."""
    sys.exit(3)


async def leave_later() -> str:
    """End the process from the loop."""
    sys.exit(3)


async def give_up() -> str:
    """Wait for something that somebody cancelled."""
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task
    return "never"


FUNCTIONS = (hello, leave, leave_later, give_up)


@pytest.fixture
def tools() -> Iterator[None]:
    for function in FUNCTIONS:
        stage.tool(function)
    yield
    for function in FUNCTIONS:
        stage.unregister(function)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments})


@spec("ERR-5", "TOOL-10")
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("tool", ["leave", "leave_later", "give_up"])
async def test_a_tool_that_would_end_the_process_ends_its_call(
    tool: str, mount: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask(mount, PATH, call(tool))
    assert answer.status == 200
    assert answer.json()["result"]["isError"] is True
    assert "no fault of the request" in answer.json()["result"]["content"][0]["text"]
    assert f"tool '{tool}' failed" in caplog.text
    assert (await ask(mount, PATH, call("hello"))).json()["result"]["content"][0]["text"] == "hello"


def test_long_paths_are_looked_up_and_not_remembered() -> None:
    asgi._remembered.cache_clear()
    assert asgi.is_endpoint(PATH)
    assert asgi._remembered.cache_info().currsize == 1
    assert not asgi.is_endpoint("/" + "a" * 60_000)
    assert asgi._remembered.cache_info().currsize == 1


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(("size", "on_the_loop"), [(10, True), (MAX_INLINE_BYTES, False)])
async def test_the_raw_mount_reads_a_large_body_in_a_thread(
    size: int, on_the_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def note(server: Any, principal: Any) -> None:
        seen.append(threading.current_thread() is threading.main_thread())

    monkeypatch.setattr("mcp_django.transports.http.admit_connection", note)
    server = MCPServer("noting", permission=AllowAny)
    server.tool(hello)
    assert (await send(server.asgi, "/", call("hello", text="a" * size))).status == 200
    assert seen == [on_the_loop]


@spec("AUT-2", "AUT-3")
@pytest.mark.django_db(transaction=True)
async def test_only_spaces_and_tabs_are_around_a_token(mount: str, token: str) -> None:
    body = message("tools/list")
    assert (await ask(mount, "/mcp", body, authorization=f"{token} \t")).status == 200
    assert (await ask(mount, "/mcp", body, authorization=f"{token}\xa0")).status == 401


@spec("AUT-11", "RSC-6")
def test_a_tool_cannot_tell_its_anonymous_caller_what_is_hidden() -> None:
    server = MCPServer("hiding", permission=AllowAny)

    @server.resource("x://hidden", permission=IsStaff)
    def hidden() -> str:
        """Hide."""
        raise AssertionError

    @server.tool
    def read(ctx: Context, uri: str) -> str:
        """Read."""
        with pytest.raises(ResourceNotFound) as caught:
            ctx.read_resource(uri)
        return caught.value.message

    client = real_client(server=server)
    hidden_text, unknown_text = (
        client.call_tool("read", {"uri": uri}).text for uri in ("x://hidden", "x://unknown")
    )
    assert hidden_text == unknown_text
    assert "not found" in hidden_text


@spec("SUB-16")
async def test_a_desk_without_time_ends_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    class Full:
        async def run(self, *args: Any) -> None:
            looked.set()
            raise Busy("All workers are busy.")

    monkeypatch.setattr(listen, "RECHECK_SECONDS", 0.01)
    monkeypatch.setattr(listen, "pool", lambda name: Full())
    wanted = {"notifications": {"toolsListChanged": True}}
    async with connect(MOUNTS["raw"], PATH, message("subscriptions/listen", wanted)) as connection:
        await connection.start()
        await connection.event()
        async with asyncio.timeout(5):
            await looked.wait()
        stage.notify_list_changed("tools")
        notice = await connection.event()
        assert notice["method"] == "notifications/tools/list_changed"
