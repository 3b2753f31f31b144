"""A call is one row of the call log, whatever its mount, revision and transport."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django import MCPServer, mcp
from mcp_django.auth.permissions import IsStaff
from mcp_django.exceptions import AccessRefused, Busy, MCPError
from mcp_django.execution.threads import BoundedPool
from mcp_django.models import Call
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.storage.call_rows import CallLog
from mcp_django.test import MCPClient
from tests.kit.drivers import PATIENCE, message
from tests.kit.servers import token_for
from tests.transports.http_session.asking import accept, answer, asking, ready
from tests.transports.http_session.handshakes import (
    STAGE,
    B,
    D,
    call,
    notification,
    opened,
    request,
)
from tests.transports.mounts import ask
from tests.transports.stage import gates, reached

Line = tuple[Any, ...]
OUTCOME = ("outcome",)


@pytest.fixture(autouse=True)
def log(call_log):
    """The call log, switched on."""
    return call_log


@pytest.fixture
def token(transactional_db):
    """The Authorization header of a user."""
    return f"Bearer {token_for(User.objects.create_user('eve'))[1]}"


def _read(log: CallLog, columns: tuple[str, ...]) -> list[Line]:
    assert log.flush()
    return list(Call.objects.order_by("component", "id").values_list(*columns))


async def lines(log: CallLog, count: int, *columns: str) -> list[Line]:
    """Wait until this many calls are in the log, which must not have more; return their rows."""
    read = sync_to_async(_read)
    async with asyncio.timeout(PATIENCE):
        # Nothing signals that a thread has written its row.
        while len(seen := await read(log, OUTCOME)) < count or ("started",) in seen:
            pass
    rows = await read(log, columns)
    assert len(rows) == count, rows
    return rows


async def test_every_mount_writes_one_line_for_a_request(mount, token, log):
    for name, arguments in {
        "add": {"a": 2, "b": 3},
        "add_later": {"a": 2, "b": 3},
        "nothing": {},
        "fail": {"kind": "bug"},
    }.items():
        body = message("tools/call", {"name": name, "arguments": arguments})
        await ask(mount, "/mcp", body, authorization=token)
    rows = await lines(log, 4, "component", "outcome", "transport", "revision")
    rest = ("http", "2026-07-28")
    assert rows == [
        ("add", "ok", *rest),
        ("add_later", "ok", *rest),
        ("fail", "failed", *rest),
        ("nothing", "unknown", *rest),
    ]


@pytest.mark.parametrize("version", [B, D])
async def test_a_call_of_a_session_names_it(version, mount, log):
    peer = await opened(mount, version=version)
    await peer.send(call("echo", text="a"))
    ((session, revision, transport),) = await lines(log, 1, "session", "revision", "transport")
    assert len(session) == 64
    assert (revision, transport) == (version, "http")


async def test_each_member_of_a_batch_is_a_line(mount, log):
    peer = await opened(mount, version=B)
    await peer.send([call("echo", id=n, text="a") for n in range(3)] + [request("ping", id=9)])
    assert await lines(log, 3, "outcome") == [("ok",)] * 3


async def test_a_call_that_asks_on_its_stream_is_one_line(streaming, log):
    peer = await ready(streaming)
    async with asking(peer, call("name")) as reader:
        await answer(peer, await reader.message(), accept("Ada"))
        await reader.rest()
    assert await lines(log, 1, "component", "outcome") == [("name", "ok")]


@pytest.mark.parametrize("tool", ["stay", "stay_later"])
async def test_a_call_that_is_called_off_is_a_line(tool, streaming, gate, log):
    peer = await opened(streaming, STAGE)
    calling = asyncio.create_task(peer.send(call(tool, gate=gate)))
    await reached(gates[gate].entered)
    await peer.send(notification("notifications/cancelled", requestId=1))
    await calling
    gates[gate].opened.set()
    ((outcome, reason),) = await lines(log, 1, "outcome", "reason")
    # A function that runs to its end in spite of the cancellation keeps its outcome.
    expected = {"stay": ("ok", "the client cancelled the call"), "stay_later": ("cancelled", "")}
    assert (outcome, reason) == expected[tool]


@pytest.mark.parametrize("tool", ["late", "late_later"])
async def test_a_call_that_is_late_is_a_line(tool, streaming, gate, log):
    if (streaming, tool) == ("view", "late"):
        pytest.skip("The view runs it in its own thread, which nobody interrupts.")
    peer = await opened(streaming, STAGE)
    await peer.send(call(tool, gate=gate))
    gates[gate].opened.set()
    assert await lines(log, 1, "outcome") == [("timeout",)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("transport", "version"),
    [
        *(
            (transport, version)
            for transport in ("memory", "http", "stdio")
            for version in REVISIONS
        ),
        ("sse", "2024-11-05"),
    ],
)
@pytest.mark.usefixtures("_stage")
def test_every_transport_and_revision_writes_one_line(transport, version, log):
    user = User.objects.create_user("ada")
    with MCPClient(server=mcp, user=user, transport=transport, protocol_version=version) as client:
        client.call_tool("add", {"a": 2, "b": 3})
    assert log.flush()
    line = Call.objects.get()
    assert (line.component, line.outcome, line.user_name) == ("add", "ok", "ada")
    assert line.transport == transport
    assert line.revision == REVISIONS[version].version


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_stage")
async def test_a_closed_door_is_a_line(mount, log):
    from mcp_django.execution import call_log

    call_log.anonymous_limiter.clear()
    await ask(mount, "/mcp", message("tools/call", {"name": "add", "arguments": {}}))
    rows = await lines(log, 1, "component", "outcome", "code", "user_key")
    assert rows == [("add", "refused", -31401, "anonymous")]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("transport", ["memory", "http", "stdio"])
def test_the_line_of_a_caller_who_may_no_longer_connect_names_it(transport, log):
    staff = MCPServer(f"staff-{transport}", permission=IsStaff)

    @staff.tool(read_only=True)
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    user = User.objects.create_user("ada", is_staff=True)
    with MCPClient(server=staff, user=user, transport=transport) as client:
        client.call_tool("add", {"a": 2, "b": 3})
        user.is_staff = False
        user.save()
        with pytest.raises((MCPError, AccessRefused)):
            client.call_tool("add", {"a": 2, "b": 3})
    assert log.flush()
    seen = Call.objects.order_by("id").values_list("component", "outcome", "user_name")
    assert [*seen] == [("add", "ok", "ada"), ("add", "refused", "ada")]


@pytest.mark.django_db(transaction=True)
def test_the_line_of_a_local_client_names_it_before_it_is_admitted(log, monkeypatch):
    user = User.objects.create_user("ada")

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Busy("The overrides cannot be read.")

    with MCPClient(server=mcp, user=user, transport="memory") as client:
        monkeypatch.setattr(MCPServer, "refresh", refuse)
        with pytest.raises(Busy):
            client.call_tool("add", {"a": 2, "b": 3})
    assert log.flush()
    assert [*Call.objects.values_list("outcome", "user_name")] == [("refused", "ada")]


@pytest.mark.parametrize("mount", ["raw", "lane"], indirect=True)
async def test_a_server_that_is_busy_says_so_in_the_log(mount, token, log, monkeypatch):
    from mcp_django.execution import call_log

    call_log.anonymous_limiter.clear()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Busy("All workers are busy.", data={"retryAfter": 1})

    monkeypatch.setattr(BoundedPool, "begin", refuse)
    body = message("tools/call", {"name": "add", "arguments": {}})
    assert (await ask(mount, "/mcp", body, authorization=token)).status == 503
    assert await lines(log, 1, "component", "outcome", "code") == [("add", "refused", -31503)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_stage")
@pytest.mark.parametrize(
    ("changes", "code"), [({"mcp_name": "other"}, -32020), ({"mcp_protocol_version": B}, -32020)]
)
async def test_a_request_that_contradicts_itself_is_a_line(changes, code, mount, token, log):
    body = message("tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    answer = await ask(mount, "/mcp", body, authorization=token, **changes)
    assert answer.status == 400
    rows = await lines(log, 1, "component", "outcome", "code", "user_name")
    assert rows == [("add", "invalid", code, "eve")]
