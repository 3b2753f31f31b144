"""Notifications of changes to a session that lives in its connection (stdio, HTTP+SSE)."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
from typing import Any, NoReturn

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from mcp_django import MCPServer
from mcp_django.auth.principal import Principal, anonymous_principal
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.execution.call import Channel
from mcp_django.protocol.jsonrpc import decode
from mcp_django.storage import versions
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import local_session
from mcp_django.transports.conversation import Conversation
from mcp_django.transports.local_session import LocalSession, SessionTasks, notify_changes
from tests.kit.servers import open_to_all
from tests.spec import spec
from tests.transports.http_session.handshakes import INITIALIZED, initialize
from tests.transports.stage import PATIENCE

BOARD = "local://board"
TOOLS_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def agreed(server: MCPServer) -> LocalSession:
    """Return a session that has been initialized."""
    local = LocalSession(server, channel=Channel())
    body = json.dumps(initialize("2025-11-25")).encode()
    await sync_to_async(local.initialize)(decode(body))
    return local


@spec("SUB-2")
@pytest.mark.parametrize(
    ("changed_before", "written"), [(False, BOARD), (True, BOARD), (True, "LOCAL://board")]
)
@pytest.mark.django_db(transaction=True)
async def test_a_change_right_after_the_subscription_is_told(changed_before, written):
    server = open_to_all()
    server.resource(BOARD)(lambda: "Nothing new.")
    topic = TopicKey(server.name, "resource", BOARD)
    local = await agreed(server)
    session = local.agreed
    assert session is not None
    begun, go_on = threading.Event(), threading.Event()

    def caller() -> Principal:
        # The session looks at a new subscription; a busy process does so late.
        if session.uris:
            begun.set()
            assert go_on.wait(PATIENCE)
        return anonymous_principal()

    if changed_before:
        await sync_to_async(publish)(topic)
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    telling = asyncio.create_task(notify_changes(server, local, caller, queue.put))
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.sleep(0)
            # Once this returns, the client has its answer, and any later change must be notified.
            await sync_to_async(session.subscribe)(written)
            await asyncio.to_thread(begun.wait)
            await sync_to_async(publish)(topic)
            go_on.set()
            hearing = asyncio.create_task(queue.get())
            await asyncio.wait([telling, hearing], return_when=asyncio.FIRST_COMPLETED)
            assert not telling.done(), telling.exception()
    finally:
        go_on.set()
        telling.cancel()
    notice = json.loads(hearing.result())
    assert notice["method"] == "notifications/resources/updated"
    assert notice["params"] == {"uri": written}


class LateDesk:
    """Authorizes the caller of a session, and after the first time only once `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self._looked = 0

    def principal(self) -> Principal:
        self._looked += 1
        if self._looked > 1:
            assert self.go_on.wait(PATIENCE)
        return anonymous_principal()


@spec("SUB-3", "VER-16")
@pytest.mark.parametrize("is_database_away", [False, True])
@pytest.mark.django_db(transaction=True)
async def test_a_change_right_after_the_session_has_begun_is_told(is_database_away, monkeypatch):
    server, desk = open_to_all(), LateDesk()
    server.tool(name="here")(lambda: "here")
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    conversation = Conversation(server, desk, channel=Channel(transport="stdio"), send=queue.put)

    def away(wanted: object) -> NoReturn:
        raise OperationalError("away")

    if is_database_away:
        monkeypatch.setattr(versions, "read_versions", away)
        monkeypatch.setattr(versions, "read_changes", away)
    try:
        async with asyncio.timeout(PATIENCE):
            await conversation.process_line(json.dumps(initialize("2025-11-25")).encode())
            assert "result" in json.loads(await queue.get())
            await conversation.process_line(json.dumps(INITIALIZED).encode())
            # Let the session begin to listen: a next line would be processed only after that, too.
            await asyncio.sleep(0)
            await sync_to_async(publish)(
                TopicKey(server.name, "tools"), TopicKey(server.name, "prompts")
            )
            desk.go_on.set()
            # The server has no prompts, so no notification is sent for those.
            assert json.loads(await queue.get()) == TOOLS_CHANGED
    finally:
        desk.go_on.set()
        conversation.cancel_all()
    assert queue.empty()


class Admission:
    """Authorizes the caller once, and fails at later checks until `failures` is exhausted."""

    def __init__(self, failure: Exception) -> None:
        self.failures = itertools.repeat(failure)
        self.looked = 0

    def __call__(self) -> Principal:
        self.looked += 1
        if self.looked > 1 and (failure := next(self.failures, None)) is not None:
            raise failure
        return anonymous_principal()


async def standing(caller: Admission, server: MCPServer) -> tuple[SessionTasks, asyncio.Queue[Any]]:
    """Return the tasks of a session, and a queue of what they write and of their end."""
    local = await agreed(server)
    queue: asyncio.Queue[Any] = asyncio.Queue()
    return SessionTasks(
        server, local, caller, write=queue.put, end=lambda: queue.put_nowait("end")
    ), queue


@spec("SUB-4", "SES-7")
@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (
            AuthenticationRequired("The token is revoked.", error="invalid_token"),
            "lost its authorization",
        ),
        (RuntimeError("a bug of the site"), "pinging its client failed"),
    ],
)
@pytest.mark.django_db(transaction=True)
async def test_a_session_that_cannot_be_told_any_more_is_ended(failure, message, caplog):
    with caplog.at_level(logging.INFO, logger="mcp_django"):
        tasks, queue = await standing(Admission(failure), open_to_all())
        async with asyncio.timeout(PATIENCE):
            assert await queue.get() == "end"
        tasks.end()
    assert message in caplog.text


@spec("SUB-4", "SUB-3")
@pytest.mark.django_db(transaction=True)
async def test_a_session_outlives_a_database_that_was_away(monkeypatch):
    monkeypatch.setattr(local_session, "RETRY_SECONDS", 0.01)
    server, caller = open_to_all(), Admission(OperationalError("away"))
    caller.failures = itertools.repeat(OperationalError("away"), 2)
    server.tool(name="here")(lambda: "here")
    tasks, queue = await standing(caller, server)
    try:
        async with asyncio.timeout(PATIENCE):
            while caller.looked < 4:
                await sync_to_async(publish)(TopicKey(server.name, "tools"))
            notice = json.loads(await queue.get())
    finally:
        tasks.end()
    assert notice == TOOLS_CHANGED
