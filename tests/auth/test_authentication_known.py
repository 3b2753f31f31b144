"""Callers that are authenticated on the event loop: their calls use no thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.utils import timezone

from mcp_django import Context, MCPServer
from mcp_django.auth import authentication, limits
from mcp_django.auth.authentication import caller_cache
from mcp_django.auth.permissions import BasePermission, InGroups
from mcp_django.auth.principal import Principal
from mcp_django.execution import threads as pools
from mcp_django.execution.threads import BoundedPool
from mcp_django.models import AccessToken, AuthEvent, Call
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.storage import cache
from mcp_django.storage.databases import is_on_loop
from mcp_django.transports import asgi_handler
from mcp_django.transports.http import IncomingHTTPRequest
from mcp_django.transports.outcome import Outcome
from tests.kit.confirming import _clock, _database, _serving  # noqa: F401 - fixtures
from tests.kit.drivers import PATIENCE, Answer, message, send
from tests.kit.servers import changed_catalog, person, token_for
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.conftest import close_asgiref_connections
from tests.transports.mounts import in_thread
from tests.transports.stage import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

known = MCPServer("known", auth=["tokens"], scopes=[])
users: list[Any] = []


@known.tool(read_only=True)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@known.tool(read_only=True, permission="auth.change_user")
async def edit() -> str:
    """Return a word to those who may change users."""
    return "done"


@known.tool(read_only=True, scopes=["mcp:more"])
async def more() -> str:
    """Return a word to those with the scope."""
    return "done"


@known.tool(read_only=True)
async def who(ctx: Context) -> str:
    """Keep the user, and change what the tool got."""
    users.append(ctx.user)
    ctx.user.first_name += "x"
    # Like a field with a mutable value.
    ctx.user.__dict__.setdefault("notes", []).append("x")
    return f"{ctx.user.first_name} {len(ctx.user.notes)}"


@pytest.fixture(autouse=True)
def _apart():
    assert known.catalog
    authentication.unknown_callers.clear()
    users.clear()
    asked_on_loop.clear()
    close_asgiref_connections()
    yield
    close_asgiref_connections()


class Threads:
    """Records the requests that used a thread."""

    def __init__(self) -> None:
        self.taken: list[IncomingHTTPRequest] = []
        self._serve = asgi_handler._serve_in_thread

    async def serve(self, request: IncomingHTTPRequest, serve: Callable[[], Outcome]) -> Outcome:
        """Serve a request in a thread."""
        self.taken.append(request)
        return await self._serve(request, serve)


@pytest.fixture
def threads(monkeypatch):
    fake_threads = Threads()
    monkeypatch.setattr(asgi_handler, "_serve_in_thread", fake_threads.serve)
    return fake_threads


async def ask(
    plaintext: str, tool: str = "add", server: MCPServer = known, **changes: str | None
) -> Answer:
    arguments = {"a": 2, "b": 40} if tool == "add" else {}
    body = message("tools/call", {"name": tool, "arguments": arguments})
    return await send(server.asgi, "/mcp", body, authorization=f"Bearer {plaintext}", **changes)


def text_of(answer: Answer) -> str:
    text: str = answer.json()["result"]["content"][0]["text"]
    return text


async def caller(name: str = "ada", **details: Any) -> tuple[User, str]:
    """Return a user with a token that has been used."""
    user, plaintext = await in_thread(issue, name, **details)
    assert text_of(await ask(plaintext)) == "42"
    return user, plaintext


def issue(name: str, *scopes: str, **details: Any) -> tuple[User, str]:
    user = person(name, **details)
    return user, token_for(user, *scopes)[1]


async def test_a_call_of_a_known_caller_takes_neither_thread_nor_statement(
    threads, database, clock
):
    _, plaintext = await caller()
    threads.taken.clear()
    for _ in range(3):
        clock.move(0.4)
        assert await in_thread(caller_cache.confirm) == 1 or clock.monotonic < 1000.5
        with database.quiet():
            assert text_of(await ask(plaintext)) == "42"
    assert threads.taken == []


@spec("AUT-1")
async def test_a_caller_whose_token_is_revoked_is_refused_at_once(database):
    _, plaintext = await caller()
    token = await AccessToken.objects.aget()
    await in_thread(token.revoke)
    answer = await ask(plaintext)
    assert answer.status == 401
    assert "invalid_token" in answer.headers["www-authenticate"]


@spec("AUT-11")
async def test_permissions_are_decided_by_what_is_known(threads, database):
    user, plaintext = await caller()
    assert (await ask(plaintext, "edit")).json()["error"]["code"] == INVALID_PARAMS
    permission = await Permission.objects.aget(codename="change_user")
    await in_thread(user.user_permissions.add, permission)
    await ask(plaintext)
    threads.taken.clear()
    with database.quiet():
        assert text_of(await ask(plaintext, "edit")) == "done"
    assert threads.taken == []
    await in_thread(user.user_permissions.remove, permission)
    assert (await ask(plaintext, "edit")).json()["error"]["code"] == INVALID_PARAMS


@spec("AUT-6")
async def test_a_rejection_is_decided_once_and_recorded_once(database, settings, call_log):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1, "SCOPES": {"mcp": "Use", "mcp:more": "More"}}
    _, plaintext = await in_thread(issue, "ada", "mcp")
    assert text_of(await ask(plaintext)) == "42"
    answer = await ask(plaintext, "more")
    assert answer.status == 403
    assert "insufficient_scope" in answer.headers["www-authenticate"]
    assert await AuthEvent.objects.filter(kind="step_up").acount() == 1
    await in_thread(call_log.flush)
    outcomes = [row async for row in Call.objects.order_by("pk").values_list("outcome", flat=True)]
    assert outcomes == ["ok", "refused"]


async def test_each_call_has_a_user_of_its_own(database):
    _, plaintext = await caller()
    [cached] = caller_cache._entries.values()
    vars(cached.confirmed.value.user)["notes"] = []
    with database.quiet():
        assert text_of(await ask(plaintext, "who")) == "x 1"
        assert text_of(await ask(plaintext, "who")) == "x 1"
    assert users[0] is not users[1]
    assert users[0] == users[1]


# What needs a thread ------------------------------------------------------------------------------


class OwnRule(BasePermission):
    """A rule of the site, which may query anything."""

    def has_permission(self, principal: Principal) -> bool:
        """Allow everyone, and record whether this runs on the event loop."""
        asked_on_loop.append(is_on_loop())
        return True


asked_on_loop: list[bool] = []


ruled = MCPServer("known-ruled", auth=["tokens"], permission=OwnRule)
guarded = MCPServer("known-guarded", auth=["tokens"])
grouped = MCPServer("known-grouped", auth=["tokens"], permission=InGroups(["team"]))
for made in (ruled, guarded, grouped):
    made.tool(name="add", read_only=True, permission=OwnRule if made is guarded else None)(add)
threaded = MCPServer("known-threaded", auth=["tokens"])


@threaded.tool
def write() -> str:
    """Return a word from a thread."""
    return "done"


async def test_rules_of_the_site_are_asked_in_a_thread(threads):
    _, plaintext = await in_thread(issue, "ada")
    for server in (ruled, guarded):
        assert server.catalog
        for _ in range(2):
            assert text_of(await ask(plaintext, server=server)) == "42"
    assert len(threads.taken) == 4
    assert asked_on_loop
    assert not any(asked_on_loop)


@spec("AUT-1")
async def test_threat_17_a_known_caller_that_waits_for_a_thread_is_asked_for_again(
    threads, monkeypatch
):
    _, plaintext = await in_thread(issue, "ada")
    assert threaded.catalog
    for _ in range(2):
        assert text_of(await ask(plaintext, "write", threaded)) == "done"
    pool, go = BoundedPool("tool", threads=1, queue=1, queue_seconds=PATIENCE), threading.Event()
    monkeypatch.setitem(pools._pools, "tool", pool)
    pool.submit(lambda: go.wait(PATIENCE))
    asking = asyncio.create_task(ask(plaintext, "write", threaded))
    await until(lambda: pool.is_crowded)
    # The event loop has prepared the call of a cached caller.
    assert threads.taken[-1].call is not None
    await in_thread((await AccessToken.objects.aget()).revoke)
    go.set()
    assert (await asking).status == 401
    assert pool.close(seconds=PATIENCE)


async def test_who_may_not_connect_is_refused(threads):
    user, plaintext = await in_thread(issue, "ada")
    for _ in range(2):
        assert (await ask(plaintext, server=grouped)).status == 403
    await in_thread(lambda: user.groups.create(name="team"))
    assert text_of(await ask(plaintext, server=grouped)) == "42"
    threads.taken.clear()
    assert text_of(await ask(plaintext, server=grouped)) == "42"
    assert threads.taken == []


@spec("AUT-11")
async def test_who_may_connect_is_decided_again_when_something_changed(
    threads, database, clock, monkeypatch
):
    user, plaintext = await in_thread(issue, "ada")
    team = await in_thread(lambda: user.groups.create(name="team"))

    async def status() -> int:
        return (await ask(plaintext, server=grouped)).status

    async def is_known() -> None:
        assert [await status(), await status()] == [200, 200]
        threads.taken.clear()
        with database.quiet():
            assert await status() == 200
        assert threads.taken == []

    await is_known()
    await in_thread(user.groups.remove, team)
    assert await status() == 403
    await in_thread(user.groups.add, team)
    await is_known()
    # With SQL, which sends no signal.
    await in_thread(lambda: user.groups.through.objects.filter(user=user).delete())
    clock.move(0.9)
    await in_thread(caller_cache.confirm)
    assert await status() == 403
    await in_thread(user.groups.add, team)
    await is_known()
    # The requirements of the server, in code and in the admin.
    monkeypatch.setattr(grouped, "scopes", ("more",))
    assert await status() == 200
    monkeypatch.setattr(grouped, "permission", InGroups(["others"]))
    assert await status() == 403
    monkeypatch.undo()
    disabled = changed_catalog(grouped.catalog, is_enabled=False)
    monkeypatch.setattr(grouped, "fresh_catalog", lambda **kwargs: disabled)
    monkeypatch.setattr(type(grouped), "catalog", disabled)
    assert await status() == 403


@pytest.mark.parametrize(
    "changes",
    [{"authorization": "Bearer"}, {"authorization": "Bearer a b"}, {"authorization": "Basic eA=="}],
)
async def test_malformed_credentials_are_refused(changes):
    body = message("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert (await send(known.asgi, "/mcp", body, **changes)).status in (400, 401)


# Callers that are not known -----------------------------------------------------------------------


def issue_many(count: int) -> list[str]:
    users = User.objects.bulk_create(User(username=f"user {n}") for n in range(count))
    with transaction.atomic():
        return [token_for(user)[1] for user in users]


@pytest.mark.usefixtures("serving")
async def test_many_callers_that_come_back_at_once_share_few_statements(
    threads, database, monkeypatch
):
    # The last use of a token is stored later.
    monkeypatch.setattr("mcp_django.auth.backends.site_tokens.note_use", lambda token: None)
    tokens = await in_thread(issue_many, 1000)
    database.statements.clear()
    answers = await asyncio.gather(*map(ask, tokens))
    assert [answer.status for answer in answers] == [200] * 1000
    assert threads.taken == []
    assert len(database.statements) <= 36, len(database.statements)


@pytest.mark.usefixtures("serving")
async def test_a_process_that_may_keep_nothing_asks_once_for_each_request(
    threads, database, monkeypatch
):
    monkeypatch.setattr("mcp_django.auth.backends.site_tokens.note_use", lambda token: None)
    monkeypatch.setattr(cache, "is_registered", lambda: False)
    _, plaintext = await in_thread(issue, "ada")
    for _ in range(3):
        database.statements.clear()
        assert text_of(await ask(plaintext)) == "42"
        assert len(database.statements) == 4
    assert threads.taken == []


@pytest.mark.usefixtures("serving")
async def test_a_thread_that_does_not_respond_costs_time_only(threads, monkeypatch):
    monkeypatch.setattr(cache, "ASK_SECONDS", 0.01)
    _, plaintext = await in_thread(issue, "ada")
    may_go_on = threading.Event()

    def hang(*args: Any) -> None:
        assert may_go_on.wait(PATIENCE)

    monkeypatch.setattr(cache._thread, "_answer", hang)
    assert text_of(await ask(plaintext)) == "42"
    assert len(threads.taken) == 1
    may_go_on.set()


@pytest.mark.usefixtures("serving")
async def test_callers_that_wait_for_a_thread_are_asked_for_meanwhile(
    database, monkeypatch, settings
):
    settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1, "QUEUE": 1000}
    monkeypatch.setattr("mcp_django.auth.backends.site_tokens.note_use", lambda token: None)
    tokens = await in_thread(issue_many, 200)
    body = message("tools/call", {"name": "whoami", "arguments": {}})
    database.statements.clear()
    answers = await asyncio.gather(
        *(
            send(MOUNTS["lane"], "/mcp", body, authorization=f"Bearer {plaintext}")
            for plaintext in tokens
        )
    )
    assert [answer.status for answer in answers] == [200] * 200
    table = AccessToken._meta.db_table
    assert sum(f'FROM "{table}"' in sql for sql in database.statements) <= 12


@pytest.mark.usefixtures("serving")
async def test_attempts_are_counted_though_they_are_asked_for_together(
    threads, database, monkeypatch
):
    monkeypatch.setattr(authentication.unknown_callers, "total", 3)
    for _ in range(5):
        assert (await ask("mcp_unknown")).status == 401
    assert len(threads.taken) == 5
    # The loop queries no further unknown token; in threads, each address has its own count.
    assert not authentication.unknown_callers.has_room()
    _, plaintext = await in_thread(issue, "ada")
    database.statements.clear()
    assert text_of(await ask(plaintext)) == "42"
    assert len(threads.taken) == 6
    # A caller that was accepted before is queried on the loop again.
    cache.clear_caches()
    assert text_of(await ask(plaintext)) == "42"
    assert len(threads.taken) == 6


@pytest.mark.usefixtures("serving")
async def test_over_the_limit_of_an_address_nothing_is_asked(database, monkeypatch):
    monkeypatch.setattr(limits, "MAX_ATTEMPTS", 2)
    monkeypatch.setattr(authentication.unknown_callers, "total", 0)
    for status in (401, 401, 429):
        assert (await ask("mcp_unknown")).status == status
    database.statements.clear()
    assert (await ask("mcp_other")).status == 429
    table = AccessToken._meta.db_table
    assert not any(table in sql for sql in database.statements)


@pytest.mark.usefixtures("serving")
async def test_without_a_database_the_answer_is_503(database, clock):
    _, plaintext = await caller()
    database.is_away = True
    clock.move(1)
    answer = await ask(plaintext)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    database.is_away = False
    assert text_of(await ask(plaintext)) == "42"


async def test_a_token_that_ends_is_refused_on_the_loop(database, monkeypatch):
    _, plaintext = await caller()
    ended = timezone.now() + timedelta(hours=1)
    await AccessToken.objects.aupdate(expires_at=ended)
    assert text_of(await ask(plaintext)) == "42"
    await in_thread(caller_cache.confirm)
    with database.quiet():
        assert text_of(await ask(plaintext)) == "42"
    now = SimpleNamespace(now=lambda: ended)
    monkeypatch.setattr(authentication, "timezone", now)
    monkeypatch.setattr("mcp_django.models.tokens.timezone", now)
    assert (await ask(plaintext)).status == 401
