"""Limits of the streams of one caller, and the work that they repeat while nothing changes."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from io import BytesIO
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied

from mcp_django import MCPServer
from mcp_django.auth.permissions import BasePermission
from mcp_django.components.catalog import Catalog
from mcp_django.exceptions import Busy
from mcp_django.execution import threads
from mcp_django.execution.handlers import subscribed_resources as rows
from mcp_django.models import AccessToken
from mcp_django.protocol.errors import BUSY, RATE_LIMITED
from mcp_django.storage.sessions import MAX_SUBSCRIBED_CHARACTERS, MAX_SUBSCRIPTIONS
from mcp_django.transports import stream_access, stream_slots, subscriptions
from mcp_django.transports.stream_slots import LARGEST_STREAM, TOPIC_CHARACTERS
from tests.kit.drivers import connect, headers_for, message, send
from tests.sites.example.mcp import mcp
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.stage import PATIENCE, reached, stage, until
from tests.transports.test_subscriptions import PATH, PROPS, TOOLS, body, listening

pytestmark = pytest.mark.django_db(transaction=True)

SHELF = "stage://shelf/"


class Shelf:
    """The books of a resource template, and the titles for which its function ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.missing: set[str] = set()
        self.passed: set[str] = set()
        self.may_pass = 0
        """The number of titles for which the function does not wait until `opened` is set."""
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.opened.set()
        self.most_at_once = self._at_once = 0
        self._lock = threading.Lock()

    def book(self, title: str) -> str:
        """A book."""
        with self._lock:
            self.ran.append(title)
            if len(self.passed) < self.may_pass:
                self.passed.add(title)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self.entered.set()
        assert title in self.passed or self.opened.wait(PATIENCE)
        with self._lock:
            self._at_once -= 1
        if title in self.missing:
            raise PermissionDenied
        return title


@contextmanager
def shelf_on(server: MCPServer, **options: Any) -> Iterator[Shelf]:
    shelf = Shelf()

    def book(title: str) -> str:
        """A book."""
        return shelf.book(title)

    server.resource(SHELF + "{title}", **options)(book)
    try:
        yield shelf
    finally:
        shelf.opened.set()
        server.unregister(book)


@pytest.fixture
def shelf():
    with shelf_on(stage) as shelf:
        yield shelf


@pytest.fixture
def rechecks(monkeypatch):
    """One element for each time that a stream reauthorized its caller, which it does often."""
    done: list[object] = []
    authorize = stream_access.admit_caller

    def count(*arguments: Any) -> Any:
        admitted = authorize(*arguments)
        done.append(arguments)
        return admitted

    monkeypatch.setattr(stream_access, "admit_caller", count)
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 0.01)
    return done


def books(count: int, *, length: int = 0) -> list[str]:
    return [f"{SHELF}{number:04}".ljust(length, "x") for number in range(count)]


def wanting(uris: list[str]) -> dict[str, Any]:
    return {"resourceSubscriptions": uris}


def honored(connection: Any) -> list[str]:
    uris: list[str] = connection.acknowledged["notifications"].get("resourceSubscriptions", [])
    return uris


# What one stream holds ----------------------------------------------------------------------------


@spec("SUB-8")
async def test_a_stream_carries_as_many_characters_as_a_session(app, shelf):
    long = books(40, length=8000)
    # URIs that do not fit are left out, and a URI that is short enough still fits.
    short = books(1)
    async with listening(app, wanting([*long, *short])) as connection:
        fitting = MAX_SUBSCRIBED_CHARACTERS // 8000
        assert honored(connection) == [*long[:fitting], *short]
        stage.notify_resource_updated(long[fitting])
        stage.notify_resource_updated(short[0])
        assert (await connection.event())["params"]["uri"] == short[0]


@spec("SUB-8")
async def test_a_stream_carries_as_many_resources_as_a_session(app, shelf):
    many = books(MAX_SUBSCRIPTIONS + 1)
    async with listening(app, wanting([many[0], *many])) as connection:
        assert honored(connection) == many[:MAX_SUBSCRIPTIONS]


class Body:
    """A request whose body only the application holds, once it has received it."""

    def __init__(self, content: bytes) -> None:
        self._content = [content]
        self.acknowledged, self.gone = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._content:
            return {"type": "http.request", "body": self._content.pop(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, part: dict[str, Any]) -> None:
        if b"acknowledged" in part.get("body", b""):
            self.acknowledged.set()


@asynccontextmanager
async def silent_stream(app: Any, notifications: Any) -> AsyncIterator[None]:
    """Open a stream without a reference to its request in this test."""
    headers = headers_for(body(TOOLS))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 5000),
        "server": ("testserver", 80),
    }
    sent = Body(json.dumps(body(notifications)).encode())
    task = asyncio.create_task(app(scope, sent.receive, sent.send))
    try:
        async with asyncio.timeout(PATIENCE):
            await sent.acknowledged.wait()
        yield
    finally:
        sent.gone.set()
        with suppress(asyncio.CancelledError):
            await task


def held_by(holder: object) -> Iterator[object]:
    """Yield what an object refers to, also through objects that the garbage collector ignores."""
    for held in gc.get_referents(holder):
        yield held
        if not gc.is_tracked(held):
            yield from held_by(held)
    # Not `isinstance`, which evaluates lazy objects of other tests.
    if type(holder) is BytesIO and not holder.closed:
        yield holder.getvalue()


def holders_of(marker: bytes) -> list[str]:
    """Return the types of the objects that hold large bytes with a marker."""
    gc.collect()
    return [
        type(holder).__name__
        for holder in gc.get_objects()
        for held in held_by(holder)
        if type(held) in (bytes, bytearray) and len(held) > 100_000 and marker in held
    ]


# Django's own handler, on the mount "view", keeps the file into which it has read the body.
@pytest.mark.parametrize("name", ["lane", "raw", "consumer"])
async def test_an_open_stream_does_not_hold_the_body_of_its_request(name):
    unknown = "kilroy" * 50_000
    async with silent_stream(MOUNTS[name], {**TOOLS, "unknown": unknown}):
        assert holders_of(b"kilroykilroy") == []


# What the streams of a caller hold ----------------------------------------------------------------


@spec("SUB-15")
async def test_the_streams_of_a_caller_hold_only_so_many_uris_together(app, settings, shelf):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": 4}
    uris = books(MAX_SUBSCRIPTIONS, length=24)
    async with listening(app, wanting(uris)):
        answer = await send(app, PATH, body(wanting(uris), id="x"))
        assert answer.status == 429
        assert answer.headers["retry-after"] == "1"
        error = answer.json()["error"]
        assert error["code"] == RATE_LIMITED
        assert f"{LARGEST_STREAM} characters" in error["message"]
        assert "subscribe to fewer resources" in error["message"]
        # A stream that still fits is served.
        room = LARGEST_STREAM - MAX_SUBSCRIPTIONS * (24 + TOPIC_CHARACTERS)
        fitting = uris[: room // (24 + TOPIC_CHARACTERS)]
        async with listening(app, wanting(fitting)), listening(app, TOOLS):
            refused = await send(app, PATH, body(wanting(uris[-1:]), id="y"))
            assert refused.status == 429
    async with listening(app, wanting(uris)):
        pass
    await until(lambda: not stream_slots._usage)


async def test_more_streams_may_hold_more_together(app, settings, shelf):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": 100}
    uris = books(MAX_SUBSCRIPTIONS, length=24)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(listening(app, wanting(uris)))
        assert (await send(app, PATH, body(wanting(uris)))).status == 429


async def test_a_user_holds_only_so_many_uris_with_all_tokens(app, settings):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": 4, "STREAMS_PER_USER": 4}
    user = await User.objects.acreate(username="alice", is_staff=True)
    issue = sync_to_async(AccessToken.objects.issue)
    tokens = [f"Bearer {(await issue(user, name=name))[1]}" for name in ("a", "b")]
    other = await User.objects.acreate(username="bob", is_staff=True)
    stranger = f"Bearer {(await issue(other, name='c'))[1]}"
    uris = books(MAX_SUBSCRIPTIONS)
    with shelf_on(mcp):
        async with listening(app, wanting(uris), path="/mcp", authorization=tokens[0]):
            refused = await send(app, "/mcp", body(wanting(uris)), authorization=tokens[1])
            assert refused.status == 429
            async with listening(app, wanting(uris), path="/mcp", authorization=stranger):
                pass


async def test_callers_without_credentials_share_a_limit_of_their_own(app, settings, shelf):
    settings.MCP_DJANGO = {"STREAMS_PER_PRINCIPAL": 1, "ANONYMOUS_FACTOR": 2, "PROXIES": 1}
    uris = books(MAX_SUBSCRIPTIONS)
    async with listening(app, wanting(uris), x_forwarded_for="203.0.113.1"):
        refused = await send(app, PATH, body(wanting(uris)), x_forwarded_for="203.0.113.2")
        assert refused.status == 429
        assert "without credentials" in refused.json()["error"]["message"]


# What is repeated while nothing changes -----------------------------------------------------------


@spec("SUB-16")
async def test_a_stream_that_is_idle_repeats_nothing_for_each_resource(
    app, shelf, rechecks, monkeypatch
):
    uris = books(5)
    async with listening(app, wanting([PROPS, *uris])):
        assert len(shelf.ran) == 5
        resolved: list[str] = []
        find = Catalog.find_resource

        def note(self: Catalog, uri: str) -> Any:
            resolved.append(uri)
            return find(self, uri)

        monkeypatch.setattr(Catalog, "find_resource", note)
        before = len(rechecks)
        # An anonymous caller is rechecked, too; the first recheck is its first check by the stream.
        await until(lambda: len(rechecks) > before + 3)
        assert (len(shelf.ran), resolved) == (5, [])


class Counted(BasePermission):
    """A permission that allows every caller, and counts its checks."""

    def __init__(self) -> None:
        self.asked = 0

    def has_permission(self, principal: Any) -> bool:
        self.asked += 1
        return True


async def test_a_stream_without_a_scope_is_not_notified_of_what_needs_it(app):
    def secret() -> str:
        """A resource that a caller may know of and not read."""
        return ""

    stage.resource("stage://secret", subscribe=True, scopes=["secret"])(secret)
    try:
        with shelf_on(stage, scopes=["secret"]):
            async with listening(app, wanting([*books(1), "stage://secret"])) as connection:
                assert honored(connection) == []
    finally:
        stage.unregister(secret)


async def test_a_permission_is_checked_once_for_all_resources_of_a_template(app, rechecks):
    counted = Counted()
    with shelf_on(stage, permission=counted):
        async with listening(app, wanting(books(200))) as connection:
            assert len(honored(connection)) == 200
            # For the request, when the stream begins, and for each batch of functions that run.
            assert counted.asked <= 2 + 200 / subscriptions.ROWS_AT_ONCE
            checks, before = counted.asked, len(rechecks)
            await until(lambda: len(rechecks) > before + 3)
            assert counted.asked - checks <= len(rechecks) - before + 1


@spec("SUB-16")
async def test_a_row_is_checked_before_the_first_notification_after_each_check_of_the_caller(
    app, shelf, monkeypatch
):
    uri = books(1)[0]
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 3600)
    async with listening(app, wanting([uri])) as connection:
        for _ in range(2):
            stage.notify_resource_updated(uri)
            assert (await connection.event())["params"]["uri"] == uri
        # The check when the stream began is still recent.
        assert shelf.ran == ["0000"]


@spec("SUB-16")
async def test_a_row_that_may_be_read_again_is_notified_again(app, shelf, rechecks):
    uri = books(1)[0]
    async with listening(app, wanting([uri, PROPS])) as connection:
        shelf.missing.add("0000")
        before = len(rechecks)
        await until(lambda: len(rechecks) > before)
        stage.notify_resource_updated(uri)
        stage.notify_resource_updated(PROPS)
        assert (await connection.event())["params"]["uri"] == PROPS
        shelf.missing.clear()
        before = len(rechecks)
        await until(lambda: len(rechecks) > before)
        stage.notify_resource_updated(uri)
        assert (await connection.event())["params"]["uri"] == uri


@spec("SUB-16")
async def test_a_resource_that_the_code_takes_away_is_not_notified_any_more(app, rechecks):
    def lamp() -> str:
        """A lamp."""
        return "on"

    uri, row = "stage://lamp", books(1)[0]
    with ExitStack() as code:
        code.enter_context(shelf_on(stage))
        stage.resource(uri)(lamp)
        code.callback(stage.unregister, lamp)
        async with listening(app, wanting([uri, row, PROPS])) as connection:
            for changed in (uri, row):
                stage.notify_resource_updated(changed)
                assert (await connection.event())["params"]["uri"] == changed
            code.close()
            before = len(rechecks)
            await until(lambda: len(rechecks) > before)
            for changed in (uri, row, PROPS):
                stage.notify_resource_updated(changed)
            assert (await connection.event())["params"]["uri"] == PROPS


# The threads of streams ---------------------------------------------------------------------------


async def test_the_rows_of_one_caller_are_checked_in_one_thread_and_no_call_waits_for_it(
    app, token, gate, shelf
):
    uris = books(2)
    shelf.opened.clear()
    async with AsyncExitStack() as stack:
        for number in range(6):
            await stack.enter_async_context(connect(app, PATH, body(wanting(uris), id=number)))
        await reached(shelf.entered)
        # An authenticated caller has a thread of its own for its rows.
        with shelf_on(mcp) as theirs:
            async with listening(app, wanting(uris), path="/mcp", authorization=token):
                assert len(theirs.ran) == 2
        # A call of the anonymous caller waits for none of the checks either.
        call = {"name": "open_gate", "arguments": {"name": gate}}
        assert (await send(app, PATH, message("tools/call", call))).status == 200
        shelf.opened.set()
        await until(lambda: len(shelf.ran) == 12)
    assert shelf.most_at_once == 1


@spec("SUB-15")
async def test_a_change_is_notified_although_the_check_of_its_row_takes_longer_than_checks_last(
    app, shelf, rechecks, monkeypatch
):
    uri = books(1)[0]
    async with listening(app, wanting([uri])) as connection:
        before = len(rechecks)
        await until(lambda: len(rechecks) > before)
        # No check stays recent, so rows have to be checked again as soon as one was checked.
        monkeypatch.setattr(subscriptions, "seconds_until_recheck", lambda: 0)
        stage.notify_resource_updated(uri)
        assert (await connection.event())["params"]["uri"] == uri


@spec("SUB-15")
@pytest.mark.parametrize("limit", [(subscriptions, "ROWS_AT_ONCE", 1), (rows, "ROWS_SECONDS", 0)])
async def test_a_change_is_notified_before_the_rows_of_all_others_are_checked(
    app, shelf, rechecks, monkeypatch, limit
):
    monkeypatch.setattr(*limit)
    uris = books(3)
    async with listening(app, wanting(uris)) as connection:
        before = len(rechecks)
        await until(lambda: len(rechecks) > before)
        shelf.may_pass = 2
        shelf.opened.clear()
        for uri in uris:
            stage.notify_resource_updated(uri)
        # These arrive while the function for the third resource waits.
        updated_uris = [(await connection.event())["params"]["uri"] for _ in range(2)]
        shelf.opened.set()
        updated_uris.append((await connection.event())["params"]["uri"])
        assert sorted(updated_uris) == uris


async def test_a_stream_waits_with_what_cannot_be_checked_and_says_the_rest(
    app, shelf, rechecks, monkeypatch
):
    monkeypatch.setattr(subscriptions, "BUSY_SECONDS", 0.01)
    uri = books(1)[0]
    tried: list[str] = []
    check = subscriptions.ListenSubscription.check_first_rows

    async def refuse(self: Any, uris: Any) -> None:
        tried.append("busy")
        raise Busy("All workers are busy.")

    async with listening(app, wanting([uri, PROPS])) as connection:
        monkeypatch.setattr(subscriptions.ListenSubscription, "check_first_rows", refuse)
        before = len(rechecks)
        await until(lambda: len(rechecks) > before)
        stage.notify_resource_updated(uri)
        await until(lambda: len(tried) > 2)
        stage.notify_resource_updated(PROPS)
        assert (await connection.event())["params"]["uri"] == PROPS
        monkeypatch.setattr(subscriptions.ListenSubscription, "check_first_rows", check)
        assert (await connection.event())["params"]["uri"] == uri


async def test_a_stream_whose_rows_cannot_be_checked_is_refused(app, shelf, monkeypatch):
    monkeypatch.setattr(threads, "STREAM_QUEUE", 0)
    monkeypatch.setattr(threads, "STREAM_THREADS", 1)
    monkeypatch.setattr(threads, "_pools", {})
    shelf.opened.clear()
    uris = wanting(books(1))
    async with AsyncExitStack() as stack:
        for number in range(2):
            await stack.enter_async_context(connect(app, PATH, body(uris, id=number)))
        await reached(shelf.entered)
        async with connect(app, PATH, body(uris, id=3)) as connection:
            await connection.start()
            refused = await connection.event()
            assert (refused["id"], refused["error"]["code"]) == (3, BUSY)
        shelf.opened.set()
