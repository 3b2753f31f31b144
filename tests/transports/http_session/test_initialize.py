"""`initialize`: which revision is agreed on, what the answer holds, and when it comes too late."""

from itertools import product

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from mcp_django import Icon, MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Session
from mcp_django.protocol.errors import INVALID_PARAMS, INVALID_REQUEST
from mcp_django.storage import sessions
from mcp_django.test import MCPClient
from tests.sites.example.mcp import open_server
from tests.spec import spec
from tests.transports.http_session.handshakes import (
    CLIENT,
    INITIALIZED,
    VERSIONS,
    A,
    B,
    C,
    D,
    Peer,
    code_of,
    initialize,
    opened,
    request,
)
from tests.transports.mounts import in_thread

SUPPORTED = {"supported": VERSIONS}


@spec("VER-12", "VER-13", "SES-1")
async def test_a_version_of_ours_is_echoed(mount):
    for version in VERSIONS:
        answer = await Peer(mount).send(initialize(version, id=f"one-{version}"))
        assert answer.status == 200
        assert answer.json()["id"] == f"one-{version}"
        assert answer.json()["result"]["protocolVersion"] == version
        assert answer.headers["content-type"] == "application/json"


@spec("VER-13", "VER-15")
async def test_any_other_version_is_answered_with_the_newest_of_the_handshake(mount):
    strange = ["2026-07-28", "DRAFT-2026-v1", "1.0.0", "", "2099-01-01", f" {B}", "x" * 10_000]
    for version in strange:
        answer = await Peer(mount).send(initialize(version))
        assert answer.status == 200
        assert answer.json()["result"]["protocolVersion"] == D


@spec("VER-15", "HTTP-21")
async def test_no_version_at_all_is_an_error_that_opens_nothing(mount):
    for version in (None, 5, 1.5, True, [D], {"version": D}):
        answer = await Peer(mount).send(initialize(version))
        assert (answer.status, code_of(answer)) == (200, INVALID_PARAMS)
        assert answer.json()["error"]["data"] == {**SUPPORTED, "requested": version}
        assert "mcp-session-id" not in answer.headers
    assert not await Session.objects.aexists()


@spec("VER-12", "RPC-10", "RPC-12")
async def test_parameters_of_a_wrong_kind_open_nothing(mount):
    for changes in ({"capabilities": [1]}, {"capabilities": 5}, {"clientInfo": "me"}):
        answer = await Peer(mount).send(initialize(D, **changes))
        assert (answer.status, code_of(answer)) == (200, INVALID_PARAMS)
    for params in ([1], 5, "x"):
        answer = await Peer(mount).send(request("initialize", params))
        assert (answer.status, code_of(answer)) == (400, INVALID_PARAMS)
    assert not await Session.objects.aexists()


@spec("VER-12")
async def test_what_a_client_leaves_out_of_itself_is_no_mistake(mount):
    answer = await Peer(mount).send(initialize(B, capabilities=None, clientInfo=None))
    assert answer.json()["result"]["protocolVersion"] == B


@spec("VER-12", "SES-8", "ERR-5")
async def test_a_client_may_say_odd_things_of_itself(mount):
    odd = {"name": "a\x00b\u2028\U0001f388 ' \" \\", "version": 5, "deep": [[[{}]]] * 3}
    peer = Peer(mount)
    answer = await peer.send(initialize(D, clientInfo=odd, capabilities={"roots": 5, "x\x00": []}))
    assert answer.status == 200, answer.body
    answer = await peer.send(request("ping"), mcp_session_id=answer.headers["mcp-session-id"])
    assert answer.json()["result"] == {}


@spec("VER-12")
async def test_initialize_without_an_id_asks_for_nothing(mount):
    body = initialize(D)
    del body["id"]
    answer = await Peer(mount).send(body)
    assert answer.status == 400
    assert "mcp-session-id" not in answer.headers
    assert not await Session.objects.aexists()


@spec("VER-14", "VER-17", "LOG-1", "CMP-1")
async def test_the_answer_holds_what_the_revision_defines(settings, mount):
    settings.MCP_DJANGO = {
        "TITLE": "The shop",
        "INSTRUCTIONS": "Be kind.",
        "ICONS": [{"src": "https://x.test/i.png"}],
        "AUTH": ["tests.transports.http_session.callers.Anybody"],
    }
    await User.objects.acreate(username="ada")
    streams = mount != "wsgi"
    changes = {"listChanged": True} if streams else {}
    for version in VERSIONS:
        peer = Peer(mount, "/mcp", version=version)
        result = (await peer.send(initialize(version))).json()["result"]
        assert {*result} == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
        assert result["instructions"] == "Be kind."
        extra = {A: (), B: (), C: ("title",), D: ("title", "icons")}[version]
        assert {*result["serverInfo"]} == {"name", "version", *extra}
        subscribe = {"subscribe": True} if streams else {}
        assert result["capabilities"] == {
            "tools": changes,
            "prompts": changes,
            "resources": changes | subscribe,
            **({"completions": {}} if version != A else {}),
            **({"logging": {}} if streams else {}),
        }


@spec("VER-14", "UIX-1")
async def test_a_server_describes_itself_in_the_words_of_the_revision():
    described = MCPServer(
        "described",
        permission=AllowAny,
        title="Desk",
        description="What it does.",
        website_url="https://x.test/",
        icons=[Icon("https://x.test/i.png")],
    )
    details = {"description", "icons", "websiteUrl"}
    members = {A: set(), B: set(), C: {"title"}, D: {"title", *details}}
    for version, more in members.items():
        connection = MCPClient(server=described, protocol_version=version)._client
        result = connection.send(initialize(version))["result"]
        assert {*result["serverInfo"]} == {"name", "version", *more}
        assert result["capabilities"] == {}
        assert "instructions" not in result


@spec("VER-19")
async def test_a_live_session_is_not_initialized_again(mount):
    for version in VERSIONS:
        peer = await opened(mount, version=version)
        answer = await peer.send(initialize(D, id="again"))
        assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
        assert answer.json()["id"] == "again"
        assert "mcp-session-id" not in answer.headers
        answer = await peer.send(request("tools/list"))
        assert answer.json()["result"]["tools"]
    assert await Session.objects.acount() == len(VERSIONS)


@spec("VER-19", "SES-4")
async def test_initialize_under_a_dead_session_opens_a_new_one(mount):
    peer = await opened(mount)
    await peer.delete()
    for dead in (peer.id, "x" * 43, "a b", ""):
        answer = await peer.send(initialize(C), mcp_session_id=dead)
        assert answer.json()["result"]["protocolVersion"] == C
        fresh = answer.headers["mcp-session-id"]
        assert fresh != dead
        answer = await peer.send(request("ping"), mcp_session_id=fresh, mcp_protocol_version=C)
        assert answer.json()["result"] == {}


@spec("VER-19")
async def test_every_initialize_opens_a_session_of_its_own(mount):
    peers = [await opened(mount) for _ in range(3)]
    assert len({peer.id for peer in peers}) == 3
    await peers[0].delete()
    assert (await peers[1].send(request("ping"))).status == 200


@spec("VER-16")
async def test_a_session_is_served_before_it_says_that_it_is_initialized(mount):
    for version in VERSIONS:
        peer = Peer(mount, version=version)
        answer = await peer.send(initialize(version))
        peer.headers["mcp_session_id"] = answer.headers["mcp-session-id"]
        assert await peer.result("ping") == {}
        assert (await peer.result("tools/list"))["tools"]


@spec("VER-16", "SUB-3")
async def test_nothing_is_announced_before_the_client_is_initialized(streaming):
    for version in (B, C, D):
        peer = Peer(streaming, version=version)
        answer = await peer.send(initialize(version))
        peer.headers["mcp_session_id"] = answer.headers["mcp-session-id"]
        witness = await opened(streaming, version=version)
        async with peer.standing() as stream, witness.standing() as heard:
            for connection in (stream, heard):
                await connection.start()
                await connection.part()
            await sync_to_async(open_server.notify_list_changed)("tools")
            assert (await heard.event())["method"] == "notifications/tools/list_changed"
            # The same notification woke both streams, so a request served now comes after it.
            assert await peer.result("ping") == {}
            assert not [part for part in stream.sent if b"list_changed" in part.get("body", b"")]
            assert (await peer.send(INITIALIZED)).status == 202
            assert (await stream.event())["method"] == "notifications/tools/list_changed"


@spec("VER-17", "HTTP-20", "HTTP-19", "HDR-1")
async def test_the_session_knows_the_revision_better_than_the_header(settings, mount):
    settings.MCP_DJANGO = {"AUTH": ["tests.transports.http_session.callers.Anybody"]}
    await User.objects.acreate(username="ada")
    for version, header in product(VERSIONS, (None, *VERSIONS)):
        peer = await opened(mount, "/mcp", version=version)
        answer = await peer.send(request("tools/list"), mcp_protocol_version=header)
        listed = {tool["name"]: tool for tool in answer.json()["result"]["tools"]}
        # Structured output came with C, batches came and went with B.
        assert ("outputSchema" in listed["takings"]) is (version in (C, D))
        answer = await peer.send([request("ping")], mcp_protocol_version=header)
        assert answer.status == (200 if version == B else 400)


@spec("SES-8", "VER-17")
async def test_a_session_remembers_what_the_client_said(mount):
    peer = Peer(mount, version=C)
    await peer.open(elicitation={}, roots={"listChanged": True})
    row = await Session.objects.aget()
    assert (row.protocol_version, row.client_info) == (C, CLIENT)
    assert row.capabilities == {"elicitation": {}, "roots": {"listChanged": True}}
    assert (row.server, row.principal, row.is_initialized) == ("open", "anonymous", True)
    record = await in_thread(
        lambda: sessions.find_session(peer.id, server="open", principal="anonymous")
    )
    assert record is not None
    session = sessions.StoredSession(record)
    assert session.revision.version == C
