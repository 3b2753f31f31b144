"""Sessions, streams, event ids and cursors belong to one user with one client, and to no other."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.models import Session
from mcp_django.protocol.errors import INVALID_PARAMS
from tests.kit.drivers import message
from tests.oauth import parties, vault
from tests.spec import spec
from tests.transports import asgi
from tests.transports.conftest import close_asgiref_connections
from tests.transports.http_session.handshakes import C, D, call, code_of, opened, request
from tests.transports.http_session.reading import Reader
from tests.transports.mounts import ask, in_thread

pytestmark = pytest.mark.django_db(transaction=True)
EVERYWHERE = (parties.RESOURCE, parties.OTHER_RESOURCE, f"{parties.ORIGIN}/vault/mcp")
STREAMED = "/vault/mcp"


@pytest.fixture(autouse=True)
def _vault(settings, monkeypatch):
    settings.ROOT_URLCONF = "tests.oauth.vault"
    settings.MCP_DJANGO = {
        **parties.SETTINGS,
        "SCOPES": {**parties.SETTINGS["SCOPES"], "vault": "Look into the vault"},
        "MAX_EVENT_BYTES": 65_536,
    }
    for name, app in vault.MOUNTS.items():
        monkeypatch.setitem(asgi.MOUNTS, name, app)
    close_asgiref_connections()
    yield
    close_asgiref_connections()


@pytest.fixture(params=vault.MOUNTS)
def mount(request):
    """Each mount in turn that has streams."""
    name: str = request.param
    return name


class Cast:
    """The bearers of Ada with her client, and of callers who must not use her session."""

    def __init__(self) -> None:
        self.ada, bob = parties.make_user(), parties.make_user("bob")
        self.app, other = parties.make_app(), parties.make_app(name="Other")
        self.mine, self.refreshed = self.bearer(), self.bearer()
        self.thieves = {
            "another user": self.bearer(user=bob),
            "another client": self.bearer(app=other),
        }

    def bearer(self, *, user: Any = None, app: Any = None) -> str:
        token = parties.make_token(
            user or self.ada,
            app or self.app,
            scope="mcp vault mcp:write",
            resource=EVERYWHERE,
        )
        return f"Bearer {token}"


@pytest.fixture
async def cast(transactional_db):
    return await in_thread(Cast)


@spec("SES-6", "AUT-1")
async def test_threat_07_a_session_is_nobody_elses(mount, cast):
    peer = await opened(mount, "/mcp", version=C, token=cast.mine)
    for name, thief in cast.thieves.items():
        for answer in (
            await peer.send(request("tools/list"), authorization=thief),
            await peer.get(authorization=thief),
            await peer.delete(authorization=thief),
        ):
            assert answer.status == 404, name
    # The session has not ended.
    assert (await peer.result("tools/list"))["tools"]


@spec("SES-6")
async def test_threat_07_a_session_is_of_its_server(mount, cast):
    peer = await opened(mount, "/mcp", version=C, token=cast.mine)
    peer.path = "/billing/mcp"
    for answer in (
        await peer.send(request("tools/list")),
        await peer.get(),
        await peer.delete(),
    ):
        assert answer.status == 404
    assert await Session.objects.filter(server="orders").acount() == 1


@spec("SES-6", "RSM-6")
async def test_threat_07_an_event_id_is_nobody_elses(mount, cast):
    peer = await opened(mount, STREAMED, version=D, token=cast.mine)
    async with peer.stream(call("slowly", progress="p")) as connection:
        reader = Reader(connection)
        assert "result" in await reader.message()
    for name, thief in cast.thieves.items():
        own = await opened(mount, STREAMED, version=D, token=thief)
        stolen = await own.get(last_event_id=reader.ids[0])
        assert stolen.status == 400, name
        stolen = await peer.get(last_event_id=reader.ids[0], authorization=thief)
        assert stolen.status == 404, name
    async with peer.standing(last_event_id=reader.ids[0]) as connection:
        assert "result" in await Reader(connection).message()


@spec("SES-6", "AUT-23")
async def test_a_refreshed_token_goes_on_with_sessions_and_streams(mount, cast):
    peer = await opened(mount, STREAMED, version=D, token=cast.mine)
    async with peer.stream(call("slowly", progress="p")) as connection:
        reader = Reader(connection)
        await reader.message()
    peer.headers["authorization"] = cast.refreshed
    assert (await peer.result("tools/list"))["tools"]
    async with peer.standing(last_event_id=reader.ids[0]) as connection:
        assert "result" in await Reader(connection).message()


async def page(mount: str, bearer: str, cursor: str | None = None, path: str = "/mcp") -> Any:
    params = {} if cursor is None else {"cursor": cursor}
    return await ask(mount, path, message("tools/list", params), authorization=bearer)


@pytest.fixture
def _long_list():
    """A list of tools that is longer than a page."""
    names = ("long", "longer")
    for name in names:
        vault.orders.tool(name, description="x" * 40_000)(lambda: "")
    yield
    for name in names:
        vault.orders.unregister(vault.orders.tools[name])


@pytest.mark.usefixtures("_long_list")
async def test_threat_07_a_cursor_is_nobody_elses(mount, cast):
    first = (await page(mount, cast.mine)).json()["result"]
    for thief in cast.thieves.values():
        assert code_of(await page(mount, thief, first["nextCursor"])) == INVALID_PARAMS
    elsewhere = await page(mount, cast.mine, first["nextCursor"], "/billing/mcp")
    assert code_of(elsewhere) == INVALID_PARAMS
    second = (await page(mount, cast.refreshed, first["nextCursor"])).json()["result"]
    assert second["tools"] != first["tools"]


@spec("SES-6")
async def test_a_long_client_id_fits_the_columns(mount, cast):
    long = await sync_to_async(parties.make_app)(
        name="Long", client_id="https://client.example/" + "x" * 200
    )
    bearer = await in_thread(cast.bearer, app=long)
    peer = await opened(mount, "/mcp", version=C, token=bearer)
    assert (await peer.result("tools/list"))["tools"]
    row = await Session.objects.aget()
    assert len(row.principal) <= Session._meta.get_field("principal").max_length
    assert (await peer.send(request("tools/list"), authorization=cast.mine)).status == 404
