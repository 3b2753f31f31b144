"""Streams of `subscriptions/listen`: what they carry, what they do not, and how they end."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.utils import timezone

from mcp_django import MCPServer, mcp
from mcp_django.exceptions import Busy
from mcp_django.models import AccessToken
from mcp_django.protocol import envelope
from mcp_django.protocol.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RATE_LIMITED,
)
from mcp_django.storage import pubsub as store
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey
from mcp_django.transports import drain, stream_access, stream_slots, subscriptions
from tests.kit.drivers import Connection, connect, headers_for, message, send
from tests.sites.example.mcp import open_server
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import in_thread, wsgi
from tests.transports.stage import PATIENCE, stage, until

# Every stream queries the database for how often its topics have changed.
pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/stage/mcp"
PROPS = "stage://props"
TOOLS = {"toolsListChanged": True}


def body(notifications: Any, *, id: Any = 1, **extra: Any) -> dict[str, Any]:
    return message("subscriptions/listen", {"notifications": notifications}, id=id, **extra)


@asynccontextmanager
async def listening(
    app: Any, notifications: Any, *, path: str = PATH, id: Any = 1, **changes: Any
) -> AsyncIterator[Connection]:
    """Open a stream and read its acknowledgement."""
    async with connect(app, path, body(notifications, id=id), **changes) as connection:
        answer = await connection.start()
        assert answer.status == 200, (await connection.rest()).body
        assert answer.is_stream
        acknowledged = await connection.event()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        connection.acknowledged = acknowledged["params"]
        yield connection


async def nothing_more(connection: Connection, server: MCPServer = stage) -> None:
    """Publish a change, and check that its notification comes next."""
    server.notify_list_changed("tools")
    notice = await connection.event()
    assert notice["method"] == "notifications/tools/list_changed"


# The acknowledgement ------------------------------------------------------------------------------


@spec("SUB-8", "SUB-9", "RPC-2")
@pytest.mark.parametrize("given", [0, 1, "1", "", -7, 2**60])
async def test_the_acknowledgement_comes_first_under_the_id_of_the_request(given, app):
    async with listening(app, TOOLS, id=given) as connection:
        assert connection.acknowledged == {
            "notifications": TOOLS,
            "_meta": {envelope.SUBSCRIPTION_ID: given},
        }
        assert type(connection.acknowledged["_meta"][envelope.SUBSCRIPTION_ID]) is type(given)


@spec("SUB-7", "SUB-8")
@pytest.mark.parametrize(
    ("wanted", "honored"),
    [
        ({}, {}),
        ({"toolsListChanged": False}, {}),
        ({"promptsListChanged": True, **TOOLS}, {"promptsListChanged": True, **TOOLS}),
        ({"resourceSubscriptions": []}, {}),
        (
            {"resourceSubscriptions": [PROPS, PROPS, "bad uri", "stage://nothing"]},
            {"resourceSubscriptions": [PROPS]},
        ),
        ({"somethingNew": True, **TOOLS}, TOOLS),
    ],
)
async def test_only_what_will_be_honored_is_acknowledged(wanted, honored, app):
    async with listening(app, wanted) as connection:
        assert connection.acknowledged["notifications"] == honored


@spec("SUB-8", "RSC-6")
@pytest.mark.django_db(transaction=True)
async def test_a_resource_that_its_function_keeps_from_the_caller_is_left_out(app):
    wanted = {"resourceSubscriptions": ["stage://rooms/ada", "stage://rooms/bob", PROPS]}
    async with listening(app, wanted) as connection:
        assert connection.acknowledged["notifications"] == {
            "resourceSubscriptions": ["stage://rooms/ada", PROPS]
        }
        stage.notify_resource_updated("stage://rooms/bob")
        stage.notify_resource_updated("stage://rooms/ada")
        notice = await connection.event()
        assert notice["params"]["uri"] == "stage://rooms/ada"


@spec("SUB-8")
async def test_a_scheme_in_capitals_is_subscribed_to_and_told_as_it_was_written(app):
    wanted = {"resourceSubscriptions": ["Stage://rooms/ada", "STAGE://props", "stage://PROPS"]}
    async with listening(app, wanted) as connection:
        honored = {"resourceSubscriptions": ["Stage://rooms/ada", "STAGE://props"]}
        assert connection.acknowledged["notifications"] == honored
        for uri, spelling in (
            ("stage://rooms/ada", "Stage://rooms/ada"),
            (PROPS, "STAGE://props"),
            ("StaGe://props", "STAGE://props"),
        ):
            stage.notify_resource_updated(uri)
            assert (await connection.event())["params"]["uri"] == spelling


@spec("SUB-16")
@pytest.mark.django_db(transaction=True)
async def test_a_resource_taken_from_the_caller_is_not_heard_of_any_more(app, monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.01)
    monkeypatch.setattr("tests.transports.stage.open_rooms", {"ada", "bob"})
    authorize, looks = stream_access.admit_caller, []

    def look(*arguments: Any) -> Any:
        admitted = authorize(*arguments)
        looks.append(arguments)
        return admitted

    wanted = {"resourceSubscriptions": ["stage://rooms/bob", PROPS]}
    async with listening(app, wanted) as connection:
        stage.notify_resource_updated("stage://rooms/bob")
        assert (await connection.event())["params"]["uri"] == "stage://rooms/bob"
        monkeypatch.setattr("tests.transports.stage.open_rooms", {"ada"})
        monkeypatch.setattr(stream_access, "admit_caller", look)
        await until(lambda: looks)
        stage.notify_resource_updated("stage://rooms/bob")
        stage.notify_resource_updated(PROPS)
        assert (await connection.event())["params"]["uri"] == PROPS


@spec("SUB-17", "HTTP-31", "HTTP-24", "EXT-2", "ALS-2")
async def test_task_ids_need_the_tasks_extension(app):
    answer = await send(app, PATH, body({"taskIds": ["1"]}))
    assert answer.status == 400
    assert answer.json()["error"]["code"] == MISSING_CAPABILITY
    tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert answer.json()["error"]["data"] == {"requiredCapabilities": tasks}
    alias = body({"taskIds": ["1"]}, **{envelope.PROTOCOL_VERSION: "DRAFT-2026-v1"})
    answer = await send(app, PATH, alias)
    assert (answer.status, answer.json()["error"]["code"]) == (400, -32003)
    declared = body({"taskIds": ["1"]}, **{envelope.CLIENT_CAPABILITIES: tasks})
    async with connect(app, PATH, declared) as connection:
        assert (await connection.start()).status == 200
        assert (await connection.event())["params"]["notifications"] == {}


@spec("SUB-6", "SUB-8")
async def test_kinds_that_the_server_does_not_have_are_left_out(app):
    wanted = {"promptsListChanged": True, "resourcesListChanged": True, **TOOLS}
    async with listening(app, wanted, path="/open/mcp") as connection:
        assert connection.acknowledged["notifications"] == TOOLS
        open_server.notify_list_changed("prompts")
        open_server.notify_list_changed("resources")
        await nothing_more(connection, open_server)


@spec("SUB-7")
@pytest.mark.parametrize(
    "wanted",
    [
        None,
        [],
        "tools",
        {"toolsListChanged": "yes"},
        {"toolsListChanged": 1},
        {"resourceSubscriptions": PROPS},
        {"resourceSubscriptions": [1]},
        {"resourceSubscriptions": {}},
    ],
)
async def test_wrong_types_are_refused(wanted, app):
    answer = await send(app, PATH, body(wanted))
    assert answer.status == 200
    assert answer.json()["error"]["code"] == INVALID_PARAMS
    assert answer.json()["id"] == 1


@spec("SUB-7")
async def test_the_filter_has_to_be_there(app):
    answer = await send(app, PATH, message("subscriptions/listen"))
    assert answer.json()["error"]["code"] == INVALID_PARAMS


async def test_a_thousand_addresses_are_no_burden(app):
    many = [f"stage://nothing/{n}" for n in range(1500)]
    async with listening(app, {"resourceSubscriptions": [PROPS, *many]}) as connection:
        assert connection.acknowledged["notifications"] == {"resourceSubscriptions": [PROPS]}


@spec("HTTP-8", "ERR-3")
async def test_who_takes_no_events_cannot_listen(app):
    answer = await send(app, PATH, body(TOOLS, id="x"), accept="application/json")
    assert (answer.status, answer.json()["id"]) == (406, "x")


@spec("SUB-16", "VER-8")
async def test_without_a_stream_there_is_nothing_to_listen_for():
    answer = await in_thread(wsgi, PATH, body(TOOLS))
    assert answer.status == 404
    assert answer.json()["error"]["code"] == METHOD_NOT_FOUND


@spec("ALS-2", "SUB-9")
async def test_the_draft_writes_subscription_ids_as_strings(app):
    alias = {envelope.PROTOCOL_VERSION: "DRAFT-2026-v1"}
    async with connect(app, PATH, body(TOOLS, **alias)) as connection:
        acknowledged = await connection.event()
        assert acknowledged["params"]["_meta"] == {envelope.SUBSCRIPTION_ID: "1"}
        stage.notify_list_changed("tools")
        notice = await connection.event()
        assert notice["params"]["_meta"] == {envelope.SUBSCRIPTION_ID: "1"}


# Notices ------------------------------------------------------------------------------------------


@spec("SUB-9", "SUB-10", "SUB-11")
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_changed_list_reaches_every_stream_that_asked(kind, app):
    wanted = {f"{kind}ListChanged": True}
    async with (
        listening(app, wanted, id=1) as first,
        listening(app, wanted, id="1") as second,
        listening(app, wanted, id=1) as third,
    ):
        stage.notify_list_changed(kind)
        for connection, given in ((first, 1), (second, "1"), (third, 1)):
            assert await connection.event() == {
                "jsonrpc": "2.0",
                "method": f"notifications/{kind}/list_changed",
                "params": {"_meta": {envelope.SUBSCRIPTION_ID: given}},
            }


@spec("SUB-9", "SUB-11")
async def test_a_changed_resource_reaches_its_subscribers(app):
    async with listening(app, {"resourceSubscriptions": [PROPS]}) as connection:
        stage.notify_resource_updated(PROPS)
        assert await connection.event() == {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": PROPS, "_meta": {envelope.SUBSCRIPTION_ID: 1}},
        }


@spec("SUB-10")
async def test_nothing_else_reaches_a_stream(app):
    async with listening(app, TOOLS) as connection:
        stage.notify_list_changed("prompts")
        stage.notify_list_changed("resources")
        stage.notify_resource_updated(PROPS)
        stage.notify_resource_updated("stage://nothing")
        open_server.notify_list_changed("tools")
        mcp.notify_list_changed("tools")
        call = {"name": "stagger", "arguments": {}}
        extra = {envelope.PROGRESS_TOKEN: 1, envelope.LOG_LEVEL: "debug"}
        await send(app, PATH, message("tools/call", call, **extra))
        await nothing_more(connection)


@spec("SUB-15", "RSM-10")
async def test_several_changes_at_once_are_one_notice(app):
    async with listening(app, TOOLS) as connection:
        for _ in range(20):
            stage.notify_list_changed("tools")
        await connection.event()
        await nothing_more(connection)
    raw = b"".join(part.get("body", b"") for part in connection.sent)
    assert raw.count(b"tools/list_changed") == 2
    assert b"\nid:" not in raw


@spec("SUB-11", "SUB-15")
async def test_many_changes_at_once_are_all_told(app):
    uris = [f"stage://seats/{n}" for n in range(600)]
    for uri in uris:
        stage.resource(uri)(seat)
    try:
        async with listening(app, {"resourceSubscriptions": uris}) as connection:
            for uri in uris:
                stage.notify_resource_updated(uri)
            updated_uris = {(await connection.event())["params"]["uri"] for _ in uris}
    finally:
        stage.unregister(seat)
    assert updated_uris == {*uris}


def seat() -> str:
    """A seat in the house."""
    return "free"


@spec("SUB-15")
async def test_a_change_right_after_the_request_is_not_lost(app):
    async with connect(app, PATH, body(TOOLS)) as connection:
        await until(lambda: store.get_hub()._listeners)
        stage.notify_list_changed("tools")
        assert "acknowledged" in (await connection.event())["method"]
        assert (await connection.event())["method"] == "notifications/tools/list_changed"


async def test_a_change_may_be_told_from_any_thread(app):
    async with listening(app, TOOLS) as connection:
        await in_thread(stage.notify_list_changed, "tools")
        assert (await connection.event())["method"] == "notifications/tools/list_changed"


@pytest.mark.django_db(transaction=True)
async def test_a_change_is_told_after_the_commit(app):
    def change(*, keep: bool) -> None:
        with transaction.atomic():
            stage.notify_resource_updated(PROPS)
            transaction.set_rollback(not keep)

    wanted = {"resourceSubscriptions": [PROPS], **TOOLS}
    async with listening(app, wanted) as connection:
        await sync_to_async(change)(keep=False)
        await nothing_more(connection)
        await sync_to_async(change)(keep=True)
        assert (await connection.event())["method"] == "notifications/resources/updated"


async def test_a_listener_that_fails_does_not_silence_the_others(caplog):
    heard = asyncio.Event()
    topic = TopicKey("stage", "tools")

    def fail(_: TopicKey) -> None:
        raise RuntimeError("deaf")

    stops = [
        store.get_hub().subscribe([topic], fail),
        store.get_hub().subscribe([topic], lambda _: heard.set()),
    ]
    publish(topic)
    async with asyncio.timeout(PATIENCE):
        await heard.wait()
    for stop in stops:
        stop()
    publish(topic)
    await until(lambda: "deaf" in caplog.text)
    assert not store.get_hub()._listeners


@spec("HTTP-7", "SUB-15")
async def test_an_idle_stream_is_kept_alive_by_comments(app, settings):
    settings.MCP_DJANGO = {"KEEPALIVE_SECONDS": 0.01}
    async with listening(app, {}) as connection:
        for _ in range(3):
            assert (await connection.part())["body"].startswith(b":")


# The end ------------------------------------------------------------------------------------------


def closing(given: Any) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "_meta": {envelope.SUBSCRIPTION_ID: given, envelope.SERVER_INFO: stage.identity()},
    }


@pytest.fixture
def draining():
    yield
    drain._drain.draining = False


@spec("SUB-12", "SUB-13")
@pytest.mark.usefixtures("draining")
async def test_a_stopping_server_ends_its_streams_with_a_result(app):
    async with listening(app, TOOLS, id="x") as connection:
        drain.begin_drain()
        response = await connection.event()
        assert response == {"jsonrpc": "2.0", "id": "x", "result": closing("x")}
        with pytest.raises(EOFError):
            await connection.event()


@spec("SUB-15")
async def test_a_stream_does_not_live_for_ever(app, monkeypatch):
    monkeypatch.setattr(subscriptions, "MAX_AGE_SECONDS", 0.02)
    async with listening(app, TOOLS) as connection:
        assert (await connection.event())["result"] == closing(1)


@spec("SUB-16")
async def test_a_revoked_token_ends_its_streams(app, token, monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.02)
    async with listening(app, TOOLS, path="/mcp", authorization=token) as connection:
        # The stream outlives several rechecks while the token is valid.
        await connection.part()
        await connection.part()
        await AccessToken.objects.aupdate(revoked_at=timezone.now())
        response = await connection.event()
    assert response["result"]["_meta"][envelope.SUBSCRIPTION_ID] == 1


@spec("SUB-16")
async def test_a_full_pool_keeps_a_stream_until_somebody_has_the_time_to_look(
    app, token, monkeypatch
):
    looks: list[str] = []

    async def refuse(*args: Any, **kwargs: Any) -> None:
        looks.append("busy")
        raise Busy("All workers are busy.")

    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.01)
    monkeypatch.setattr(subscriptions, "BUSY_SECONDS", 0.01)
    async with listening(app, TOOLS, path="/mcp", authorization=token) as connection:
        with monkeypatch.context() as full:
            full.setattr(subscriptions, "get_pool", lambda name: SimpleNamespace(run=refuse))
            # One recheck may have begun before.
            await until(lambda: len(looks) > 1)
            await AccessToken.objects.aupdate(revoked_at=timezone.now())
            await until(lambda: len(looks) > 4)
            mcp.notify_list_changed("tools")
            notice = await connection.event()
            assert notice["method"] == "notifications/tools/list_changed"
        response = await connection.event()
    assert response["result"]["_meta"][envelope.SUBSCRIPTION_ID] == 1


@spec("SUB-16")
@pytest.mark.django_db(transaction=True)
async def test_a_token_that_expires_ends_its_streams(app, monkeypatch):
    user = await User.objects.acreate(username="eve")
    in_an_hour = timezone.now() + timedelta(hours=1)
    issue = sync_to_async(AccessToken.objects.issue)
    bearer = f"Bearer {(await issue(user, name='short', expires=in_an_hour))[1]}"
    almost = in_an_hour - timedelta(seconds=0.02)
    monkeypatch.setattr(stream_access, "timezone", SimpleNamespace(now=lambda: almost))
    async with listening(app, TOOLS, path="/mcp", authorization=bearer) as connection:
        response = await connection.event()
    assert response["result"]["_meta"][envelope.SUBSCRIPTION_ID] == 1


@spec("SUB-15")
async def test_a_caller_may_hold_only_so_many_streams(app, settings):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": 2}
    async with listening(app, TOOLS), listening(app, TOOLS):
        answer = await send(app, PATH, body(TOOLS, id="x"))
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["id"] == "x"
        assert answer.json()["error"]["code"] == RATE_LIMITED
    # Both places are free again.
    async with listening(app, TOOLS), listening(app, TOOLS):
        pass


@spec("SUB-14")
async def test_leaving_frees_everything(app):
    gc.disable()
    try:
        async with listening(app, {"resourceSubscriptions": [PROPS], **TOOLS}):
            assert len(store.get_hub()._listeners) == 2
            assert stream_slots._usage["anonymous"].streams == 1
        await until(lambda: not store.get_hub()._listeners)
        await until(lambda: not stream_slots._usage)
        await until(lambda: not drain._drain._wakers)
    finally:
        gc.enable()
    stage.notify_list_changed("tools")


# Many of them -------------------------------------------------------------------------------------


def open_connections() -> int:
    """Return the number of this process's connections: SQLite has a WAL file open for each."""
    journal = Path(connections["default"].settings_dict["NAME"]).name + "-wal"
    links = list(Path("/proc/self/fd").iterdir())
    return sum(link.readlink().name == journal for link in links if link.is_symlink())


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


# Far more streams than there are threads or connections.
@pytest.mark.parametrize("streams_open", [100, pytest.param(500, marks=pytest.mark.outside)])
@pytest.mark.parametrize("name", ["lane", "raw"])
async def test_open_streams_hold_no_thread_and_no_connection(name, streams_open, token, settings):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": streams_open}
    app = MOUNTS[name]
    for _ in range(20):
        # After this, the pools have all the threads and connections that they need.
        await send(app, "/mcp", message("tools/list"), authorization=token)
    threads, held = names_of_threads(), open_connections()
    streams = [Connection(app, "/mcp", *_raw(TOOLS, token), "POST") for _ in range(streams_open)]
    for connection in streams:
        assert (await connection.start()).status == 200, (await connection.rest()).body
        assert "acknowledged" in (await connection.event())["method"]
    assert names_of_threads() <= threads | {"mcp-short_0", "mcp-short_1", "mcp-database_0"}
    # The last thread may still be closing the connection with which it looked up the token.
    await until(lambda: open_connections() <= held)
    mcp.notify_list_changed("tools")
    for connection in streams:
        assert (await connection.event())["method"] == "notifications/tools/list_changed"
    await asyncio.gather(*(connection.close() for connection in streams))
    await until(lambda: not store.get_hub()._listeners)


def _raw(notifications: Any, token: str) -> tuple[bytes, dict[str, str]]:
    content = body(notifications)
    return json.dumps(content).encode(), headers_for(content, authorization=token)
