"""Calls that wait after they were authorized are authorized again before they begin."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission
from django.db import OperationalError
from django.utils import timezone

from mcp_django import Context, MCPServer
from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.permissions import BasePermission, IsStaff
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.execution import invoke, threads
from mcp_django.models import AccessToken, Call, Session
from mcp_django.protocol.errors import (
    BUSY,
    FORBIDDEN,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    UNAUTHORIZED,
)
from mcp_django.protocol.headers import EVENT_STREAM
from mcp_django.transports import client_requests, stream_access
from tests.kit.confirming import _clock, _database  # noqa: F401 - fixtures
from tests.kit.drivers import Answer, Connection, connect, message, send
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.http_session import legacy
from tests.transports.http_session.asking import accept, asking, ready
from tests.transports.http_session.handshakes import STAGE, B, Peer, call, initialize, opened
from tests.transports.mounts import in_thread
from tests.transports.stage import PATIENCE, gates, reached, until

DOCUMENT = "application/json"


def deactivate(token: AccessToken) -> None:
    token.user.is_active = False
    token.user.save()


def revoke_by_sql(token: AccessToken) -> None:
    """Revoke a token without a signal, so that no stream is notified."""
    AccessToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())


def expire(token: AccessToken) -> None:
    """Let a token expire."""
    AccessToken.objects.filter(pk=token.pk).update(expires_at=timezone.now())


WAYS: dict[str, Callable[[AccessToken], Any]] = {
    "revoked": lambda token: token.revoke(),
    "revoked by SQL": revoke_by_sql,
    "user deactivated": deactivate,
    "expired": expire,
}


@pytest.fixture(params=WAYS)
def leave(request):
    """Each way in which a caller loses its access, as an async function."""
    return sync_to_async(WAYS[request.param])


@pytest.fixture(autouse=True)
def _one_thread_for_each_caller(settings, monkeypatch):
    settings.MCP_DJANGO = {"THREADS": 2, "QUEUE_SECONDS": PATIENCE}
    # No stream rechecks its caller: a call that ends here was itself authorized again.
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 3600)


async def issued() -> tuple[AccessToken, str]:
    """Return a new token, and its Authorization header."""
    token, plaintext = await sync_to_async(lambda: token_for(person()))()
    return token, f"Bearer {plaintext}"


def entries(answer: Answer) -> dict[Any, Any]:
    """Return the responses of a batch by id."""
    responses = answer.messages() if answer.is_stream else answer.json()
    return {response["id"]: response for response in responses}


def code(response: Any) -> Any:
    return response.get("error", {}).get("code")


# Batches ------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(
    peer: Peer, gate: str, accept: str | None, *, tool: str = "stay"
) -> AsyncIterator[asyncio.Task[Answer]]:
    """Send a batch of two calls; run the block while the first call runs."""
    batch = [call(tool, id=n, gate=name) for n, name in enumerate(both(gate))]
    sending = asyncio.create_task(peer.send(batch, accept=accept))
    await reached(gates[gate].entered)
    yield sending
    for name in both(gate):
        gates[name].opened.set()


def began(gate: str) -> list[bool]:
    """Return which of the two calls have begun."""
    return [gates.pop(name).entered.is_set() for name in both(gate)]


def both(gate: str) -> list[str]:
    return [gate, f"{gate} of the second"]


@spec("AUT-1", "BAT-4")
@pytest.mark.parametrize("accept", [DOCUMENT, None], ids=["document", "stream"])
async def test_threat_17_a_member_of_a_batch_that_has_not_begun_never_does(
    accept, mount, leave, gate
):
    token, bearer = await issued()
    peer = await opened(mount, STAGE, version=B, token=bearer)
    async with running(peer, gate, accept) as sending:
        await leave(token)
    answer = await sending
    responses = entries(answer)
    assert answer.status == 200
    assert responses[0]["result"]["content"][0]["text"] == "opened"
    assert code(responses[1]) == UNAUTHORIZED
    assert began(gate) == [True, False]


@spec("AUT-1", "BAT-4")
async def test_threat_17_an_async_member_that_has_not_begun_never_does(mount, leave, gate):
    token, bearer = await issued()
    peer = await opened(mount, STAGE, version=B, token=bearer)
    async with running(peer, gate, DOCUMENT, tool="stay_later") as sending:
        await leave(token)
    responses = entries(await sending)
    assert [code(responses[0]), code(responses[1])] == [None, UNAUTHORIZED]
    assert began(gate) == [True, False]


@spec("AUT-1", "BAT-4", "SSE-6")
async def test_threat_17_a_member_on_http_sse_that_has_not_begun_never_does(app, gate):
    token, bearer = await issued()
    async with legacy.opened(app, "/stage/mcp/sse", authorization=bearer) as stream:
        await stream.ask(initialize(B))
        batch = [call("stay", id=n, gate=name) for n, name in enumerate(both(gate))]
        assert (await stream.post(batch)).status == 202
        # The calls run side by side, in one thread.
        async with asyncio.timeout(PATIENCE):
            while not any(gates[name].entered.is_set() for name in both(gate)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await until(lambda: threads.get_pool("tool").is_crowded)
        await sync_to_async(revoke_by_sql)(token)
        for name in both(gate):
            gates[name].opened.set()
        responses = await stream.said()
    assert sorted((code(response) for response in responses), key=str) == [UNAUTHORIZED, None]
    assert sum(began(gate)) == 1


@pytest.mark.parametrize("accept", [DOCUMENT, None], ids=["document", "stream"])
async def test_a_member_that_waits_longer_than_a_call_may_run_never_begins(
    accept, mount, gate, monkeypatch
):
    peer = await opened(mount, STAGE, version=B, token=(await issued())[1])
    async with running(peer, gate, accept) as sending:
        monkeypatch.setattr(invoke, "monotonic", lambda: time.monotonic() + 301)
    responses = entries(await sending)
    assert [code(responses[0]), code(responses[1])] == [None, BUSY]
    assert "longer than 300 seconds" in responses[1]["error"]["message"]
    assert began(gate) == [True, False]


@pytest.mark.usefixtures("transactional_db", "_stage")
async def test_a_member_that_never_began_is_in_the_call_log(gate, call_log):
    token, bearer = await issued()
    peer = await opened("raw", STAGE, version=B, token=bearer)
    async with running(peer, gate, DOCUMENT) as sending:
        await sync_to_async(token.revoke)()
    await sending
    await in_thread(call_log.flush)
    rows = [row async for row in Call.objects.values_list("outcome", "code", "user_name")]
    assert sorted(rows) == [("ok", None, "ada"), ("refused", UNAUTHORIZED, "ada")]


# What else may have changed -----------------------------------------------------------------------


late = MCPServer("late", auth=["tokens"])


@late.tool
def hold(gate: str) -> str:
    """Stay until the gate opens."""
    gates[gate].entered.set()
    assert gates[gate].opened.wait(PATIENCE)
    return "opened"


@late.tool(scopes=["secret"])
def scoped() -> str:
    """Work with a scope."""
    return "scoped"


# The permission is checked before the call waits; the user then caches all of its permissions.
@late.tool(permission="auth.view_user")
def look(ctx: Context) -> str:
    """Say what the user of the call and of its request may."""
    users = (ctx.user, ctx.request.user)
    return " ".join(str(user.has_perm("auth.change_user")) for user in users)


@late.tool(permission="auth.change_user")
def edit() -> str:
    """Change somebody."""
    return "edited"


def _permission(codename: str) -> Permission:
    return Permission.objects.get(codename=codename)


@pytest.fixture
def user(transactional_db, _stage):
    user = person()
    user.user_permissions.add(_permission("change_user"))
    return user


async def edited_after(
    user: Any,
    gate: str,
    change: Callable[[], Any],
    *,
    tool: str = "edit",
    server: MCPServer = late,
    bearer: str = "",
) -> Any:
    """Return the second entry of a batch, after a change while the first member ran."""
    plain: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    bearer = bearer or (await in_thread(token_for, user))[1]
    plain["authorization"] = f"Bearer {bearer}"
    begun = await send(server.asgi, "/mcp", json.dumps(initialize(B)).encode(), **plain)
    plain["mcp_session_id"] = begun.headers["mcp-session-id"]
    batch = json.dumps([call("hold", id=0, gate=gate), call(tool, id=1)]).encode()
    sending = asyncio.create_task(send(server.asgi, "/mcp", batch, accept=DOCUMENT, **plain))
    await reached(gates[gate].entered)
    await in_thread(change)
    gates[gate].opened.set()
    return entries(await sending)[1]


@spec("AUT-1")
@pytest.mark.parametrize(("scopes", "expected"), [(["secret"], None), ([], FORBIDDEN)])
async def test_a_member_has_the_scopes_that_its_token_has_now(user, gate, scopes, expected):
    token, bearer = await in_thread(token_for, user, "secret")

    def narrow() -> None:
        token.scopes = scopes
        token.save()

    response = await edited_after(user, gate, narrow, tool="scoped", bearer=bearer)
    assert code(response) == expected


async def test_a_member_sees_the_user_of_its_request_as_it_is_now(user, gate):
    permissions = [await in_thread(_permission, name) for name in ("view_user", "change_user")]
    await in_thread(user.user_permissions.add, permissions[0])
    lose = partial(user.user_permissions.remove, permissions[1])
    response = await edited_after(user, gate, lose, tool="look")
    assert response["result"]["content"][0]["text"] == "False False"


class Keys(BaseBackend):
    """A backend of a site, whose keys are in no table of this package."""

    known: ClassVar[dict[str, Any]] = {}

    def authenticate(self, credentials: Credentials) -> Principal | None:
        user = self.known.get(credentials.bearer or "")
        return principal_for(user, backend=f"{__name__}.Keys") if user is not None else None


keyed = MCPServer("keyed", auth=[f"{__name__}.Keys"])
keyed.tool(hold)


@keyed.tool
def work() -> str:
    """Work."""
    return "worked"


@spec("AUT-1")
@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_member_asks_the_backend_of_a_site_again(user, gate, is_lost):
    Keys.known["key"] = user
    change = Keys.known.clear if is_lost else lambda: None
    response = await edited_after(user, gate, change, tool="work", server=keyed, bearer="key")
    assert code(response) == (UNAUTHORIZED if is_lost else None)


async def test_a_member_begins_if_nothing_has_changed(user, gate):
    response = await edited_after(user, gate, lambda: None)
    assert response["result"]["content"][0]["text"] == "edited"


@spec("AUT-11")
async def test_a_member_whose_tool_was_taken_from_its_caller_is_unknown(user, gate):
    response = await edited_after(user, gate, user.user_permissions.clear)
    assert response["error"] == {
        "code": INVALID_PARAMS,
        "message": "No tool named 'edit' on server 'late'; see tools/list.",
    }


async def test_a_member_does_not_begin_on_a_server_that_was_closed_to_its_caller(
    user, gate, monkeypatch
):
    response = await edited_after(
        user, gate, lambda: monkeypatch.setattr(late, "permission", IsStaff)
    )
    assert response["error"] == {"code": FORBIDDEN, "message": "You may not use this server."}


async def test_a_member_whose_tool_is_gone_is_unknown(user, gate):
    tool = late.catalog.find_tool("edit")
    assert tool is not None
    try:
        response = await edited_after(user, gate, lambda: late.unregister(edit))
    finally:
        late.tool(permission="auth.change_user")(edit)
    assert code(response) == INVALID_PARAMS


@pytest.mark.parametrize(
    ("error", "expected", "logged"),
    [
        (ValueError("secret"), INTERNAL_ERROR, "Authorizing a call again failed."),
        (OperationalError("secret"), BUSY, "A call could not be authorized again (secret)."),
    ],
)
async def test_a_member_that_cannot_be_authorized_again_does_not_begin(
    error, expected, logged, user, gate, monkeypatch, caplog
):
    class Rule(BasePermission):
        def has_permission(self, principal: Principal) -> bool:
            raise error

    response = await edited_after(user, gate, lambda: monkeypatch.setattr(late, "permission", Rule))
    assert "secret" not in json.dumps(response)
    assert code(response) == expected
    assert logged in caplog.text


# Calls that wait for a thread or for their answer -------------------------------------------------


@asynccontextmanager
async def stopped(app: Any, body: Any, **headers: str | None) -> AsyncIterator[Connection]:
    """Open a stream that is authorized, and whose first bytes are not read yet.

    The stream begins immediately, since the client accepts nothing else.
    """
    async with connect(app, STAGE, body, **headers) as connection:
        connection.stall()
        await until(connection._parts.full)
        yield connection


async def rest_of(connection: Connection) -> Any:
    """Return the last message of a stream."""
    await connection.start()
    return (await connection.rest()).response()


@pytest.fixture
def busy():
    """An event: threads that `fill` keeps busy are busy until it is set."""
    go, pool = threading.Event(), threads.get_pool("tool")
    yield go
    go.set()
    pool.close(seconds=PATIENCE)
    threads._pools.pop("tool")


def fill(go: threading.Event) -> None:
    for _ in range(2):
        threads.get_pool("tool").submit(lambda: go.wait(PATIENCE))


@spec("AUT-1")
async def test_threat_17_a_call_behind_a_stream_that_waits_for_a_thread_never_begins(
    app, leave, gate, busy
):
    token, bearer = await issued()
    body = message("tools/call", {"name": "walk", "arguments": {"gate": gate}})
    body["params"]["_meta"]["progressToken"] = "p"
    gates[gate].opened.set()
    async with stopped(app, body, authorization=bearer, accept=EVENT_STREAM) as connection:
        fill(busy)
        reading = asyncio.create_task(rest_of(connection))
        await until(lambda: threads.get_pool("tool").is_crowded)
        await leave(token)
        busy.set()
        assert code(await reading) == UNAUTHORIZED
    assert not gates[gate].entered.is_set()


@pytest.mark.parametrize(("queue", "seconds"), [(8, 0.01), (0, PATIENCE)])
@pytest.mark.usefixtures("transactional_db", "_stage")
async def test_a_call_that_gets_no_thread_from_the_view_is_told(
    queue, seconds, gate, settings, busy
):
    settings.MCP_DJANGO = {"THREADS": 2, "QUEUE": queue, "QUEUE_SECONDS": seconds}
    peer = await opened("view", STAGE)
    fill(busy)
    answer = await peer.send(call("stay_later", gate=gate))
    assert (answer.status, answer.json()["error"]["code"]) == (503, BUSY)
    assert gate not in gates


@spec("AUT-1")
async def test_threat_17_what_began_late_for_another_reason_never_begins(app, gate, monkeypatch):
    # Every call counts as late.
    monkeypatch.setattr(invoke, "LATE_SECONDS", -1)
    token, bearer = await issued()
    body = message("tools/call", {"name": "walk_later", "arguments": {"gate": gate}})
    body["params"]["_meta"]["progressToken"] = "p"
    gates[gate].opened.set()
    async with stopped(app, body, authorization=bearer, accept=EVENT_STREAM) as connection:
        await sync_to_async(revoke_by_sql)(token)
        assert code(await rest_of(connection)) == UNAUTHORIZED
    assert not gates[gate].entered.is_set()


@spec("AUT-1", "ASK-4")
@pytest.mark.parametrize("tool", ["name", "name_later"])
async def test_threat_17_a_call_does_not_go_on_with_the_answer_of_another_credential(
    tool, streaming
):
    token, bearer = await issued()
    peer = await ready(streaming, token=bearer)
    async with asking(peer, call(tool)) as reader:
        question = await reader.message()
        await sync_to_async(revoke_by_sql)(token)
        session = await Session.objects.aget()
        number = client_requests.stream_of_request_id(question["id"])
        assert number is not None
        # The answer comes as from another credential of the same client, such as a new sign-in.
        arguments = (session.pk, number, question["id"], accept("Ada"))
        await in_thread(client_requests.deliver_answer, *arguments)
        (response,) = await reader.rest()
    assert code(response) == UNAUTHORIZED


@spec("ASK-4")
async def test_a_call_that_began_in_time_goes_on_after_its_credential_expired(streaming):
    token, bearer = await issued()
    token.expires_at = timezone.now() + timedelta(hours=1)
    await token.asave()
    peer = await ready(streaming, token=bearer)
    async with asking(peer, call("name")) as reader:
        question = await reader.message()
        session = await Session.objects.aget()
        number = client_requests.stream_of_request_id(question["id"])
        assert number is not None
        arguments = (session.pk, number, question["id"], accept("Ada"))
        hour_later = timezone.now() + timedelta(hours=2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(invoke.timezone, "now", lambda: hour_later)
            await in_thread(client_requests.deliver_answer, *arguments)
            (response,) = await reader.rest()
    assert response["result"]["content"][0]["text"] == "Hello Ada."


# What it costs ------------------------------------------------------------------------------------


quick = MCPServer("quick", auth=["tokens"])


@quick.tool(read_only=True)
async def word() -> str:
    """Return a word."""
    return "done"


@pytest.mark.usefixtures("transactional_db", "_stage", "clock")
async def test_members_of_a_known_caller_need_no_statement(database, clock):
    plaintext = (await in_thread(lambda: token_for(person())))[1]
    plain: dict[str, str | None] = {"mcp_protocol_version": None, "mcp_method": None}
    plain["authorization"] = f"Bearer {plaintext}"
    begun = await send(quick.asgi, "/mcp", json.dumps(initialize(B)).encode(), **plain)
    plain["mcp_session_id"] = begun.headers["mcp-session-id"]
    batch = json.dumps([call("word", id=n) for n in range(3)]).encode()
    for _ in range(2):
        database.statements.clear()
        answer = await send(quick.asgi, "/mcp", batch, accept=DOCUMENT, **plain)
        texts = [response["result"]["content"][0]["text"] for response in answer.json()]
        assert texts == ["done"] * 3
    assert database.statements == []
