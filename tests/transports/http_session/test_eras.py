"""Both eras on one endpoint: how each request is classified, and that the eras do not interfere."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from mcp_django.protocol import envelope
from mcp_django.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from mcp_django.protocol.revisions import advertised_versions
from tests.kit.drivers import VERSION, Answer, Connection, headers_for, message
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.http_session.handshakes import (
    OPEN,
    VERSIONS,
    B,
    C,
    D,
    Peer,
    code_of,
    encoded,
    initialize,
    notification,
    opened,
    request,
)
from tests.transports.mounts import ask

ALIAS = "DRAFT-2026-v1"
MODERN = [VERSION, ALIAS]
ALL = [VERSION, *VERSIONS]
UNKNOWN = ["2099-01-01", "nonsense", f"{VERSION}, {D}", f"{D}, {B}", D.replace("-", "")]
OLD_METHODS = [
    ("initialize", {"protocolVersion": D, "capabilities": {}, "clientInfo": {"name": "x"}}),
    ("ping", {}),
    ("logging/setLevel", {"level": "info"}),
    ("resources/subscribe", {"uri": "shop://about"}),
    ("resources/unsubscribe", {"uri": "shop://about"}),
]
RESPONSE = {"jsonrpc": "2.0", "id": "ask-1-1", "result": {}}


async def send(mount: str, body: Any, *, header: str | None = None, **changes: Any) -> Answer:
    """Post a message under a version header."""
    given = {"mcp_protocol_version": header, "mcp_method": None, **changes}
    return await ask(mount, OPEN, json.dumps(body).encode(), **given)


def enveloped(method: str = "tools/list", params: Any = None, **changes: Any) -> dict[str, Any]:
    """Return a request with an envelope; `None` removes one of its keys."""
    body = message(method, params)
    envelope = {**body["params"]["_meta"], **changes}
    body["params"]["_meta"] = {key: value for key, value in envelope.items() if value is not None}
    return body


def assert_error(answer: Answer, status: int, code: int) -> Any:
    """Return the data of an error, which must have the request's id and open no session."""
    assert (answer.status, code_of(answer)) == (status, code), answer.body
    assert answer.json()["id"] == 1
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers
    return answer.json()["error"].get("data")


# A request with an envelope -----------------------------------------------------------------------


@spec("VER-1", "VER-2", "HTTP-24", "PNG-3")
async def test_an_envelope_makes_a_method_of_the_handshake_unknown(mount):
    sessions = (None, (await opened(mount)).id)
    for session, version, (method, params) in product(sessions, MODERN, OLD_METHODS):
        body = enveloped(method, params, **{envelope.PROTOCOL_VERSION: version})
        answer = await send(mount, body, header=version, mcp_method=method, mcp_session_id=session)
        assert_error(answer, 404, METHOD_NOT_FOUND)


@spec("VER-1", "HTTP-24", "HDR-2")
async def test_an_envelope_needs_a_header_that_says_the_same(mount):
    sessions = (None, (await opened(mount)).id)
    headers = (None, D, B, ALIAS, f"{VERSION}, {D}", "nonsense", "")
    for session, header in product(sessions, headers):
        answer = await send(
            mount, enveloped(), header=header, mcp_method="tools/list", mcp_session_id=session
        )
        assert_error(answer, 400, HEADER_MISMATCH)


@spec("HDR-1", "VER-1")
async def test_a_version_header_is_trimmed_and_its_name_has_no_case(streaming):
    answer = await send(streaming, enveloped(), header=f" \t{VERSION} ", mcp_method="tools/list")
    assert answer.json()["result"]["resultType"] == "complete"
    for version in (C, D):
        peer = await opened(streaming, version=version)
        odd = {"mcp_protocol_version": None, "MCP-PROTOCOL-Version": f"  {version}\t"}
        assert (await peer.send(request("ping"), **odd)).json()["result"] == {}
        answer = await peer.send(request("ping"), mcp_protocol_version=f"{version[:7]} {version}")
        assert (answer.status, code_of(answer)) == (400, INVALID_PARAMS)


@spec("VER-3", "VER-4")
async def test_an_incomplete_envelope_is_told_so_before_anything_else(mount):
    lacks: list[dict[str, Any]] = [
        {envelope.PROTOCOL_VERSION: None},
        {envelope.PROTOCOL_VERSION: 5},
        {envelope.CLIENT_CAPABILITIES: None},
        {envelope.CLIENT_CAPABILITIES: []},
        {
            envelope.PROTOCOL_VERSION: None,
            envelope.CLIENT_CAPABILITIES: None,
            envelope.CLIENT_INFO: {},
        },
    ]
    methods, headers = ("tools/list", "initialize", "ping"), (None, VERSION, D, "nonsense")
    for changes, method, header in product(lacks, methods, headers):
        answer = await send(mount, enveloped(method, **changes), header=header, mcp_method=method)
        assert_error(answer, 400, INVALID_PARAMS)


@spec("VER-6", "VER-9")
async def test_an_unknown_version_in_an_envelope_names_all_versions(mount):
    for version in ("2099-01-01", "", "x" * 1000):
        body = enveloped(**{envelope.PROTOCOL_VERSION: version})
        answer = await send(mount, body, header=version, mcp_method="tools/list")
        data = assert_error(answer, 400, UNSUPPORTED_VERSION)
        assert data == {"supported": ALL, "requested": version}


@spec("VER-9")
async def test_a_handshake_version_in_an_envelope_names_the_modern_ones(mount):
    for version, method in product(VERSIONS, ("tools/list", "initialize")):
        body = enveloped(method, **{envelope.PROTOCOL_VERSION: version})
        answer = await send(mount, body, header=version, mcp_method=method)
        data = assert_error(answer, 400, UNSUPPORTED_VERSION)
        assert data == {"supported": [VERSION], "requested": version}


# A request without one ----------------------------------------------------------------------------


@spec("VER-1", "VER-4")
async def test_a_modern_header_without_an_envelope_is_a_malformed_request(mount):
    lacking: list[Any] = [
        None,
        {"_meta": None},
        {"_meta": []},
        {"_meta": {"progressToken": 1}},
        {"meta": message("tools/list")["params"]["_meta"]},
    ]
    sessions = (None, (await opened(mount)).id)
    for session, params, header in product(sessions, lacking, MODERN):
        answer = await send(
            mount, request("tools/list", params), header=header, mcp_session_id=session
        )
        assert_error(answer, 400, INVALID_PARAMS)


@spec("VER-12", "VER-1")
async def test_initialize_without_an_envelope_ignores_the_header(mount):
    for header in (None, VERSION, ALIAS, *VERSIONS, *UNKNOWN):
        answer = await send(mount, initialize(C), header=header, mcp_method="initialize")
        assert answer.status == 200, answer.body
        assert answer.json()["result"]["protocolVersion"] == C
        assert answer.headers["mcp-session-id"]


@spec("VER-1", "SES-3", "HTTP-19")
async def test_anything_else_belongs_to_a_session(mount):
    peer = await opened(mount)
    plain: list[Any] = [None, {}, {"_meta": None}, {"meta": message("x")["params"]["_meta"]}]
    for params, header in product(plain, (None, *VERSIONS)):
        body = request("tools/list", params)
        assert_error(await send(mount, body, header=header), 400, INVALID_REQUEST)
        answer = await send(mount, body, header=header, mcp_session_id=peer.id)
        assert answer.status == 200
        assert {"tools"} == {*answer.json()["result"]}


@spec("HTTP-19", "VER-6")
async def test_an_unknown_version_header_names_all_versions(mount):
    # In a session, even one that has ended, the error has the code of the handshake revisions.
    codes = {None: UNSUPPORTED_VERSION, "x" * 43: INVALID_PARAMS}
    codes |= {(await opened(mount, version=version)).id: INVALID_PARAMS for version in VERSIONS}
    for (session, code), header in product(codes.items(), UNKNOWN):
        answer = await send(mount, request("ping"), header=header, mcp_session_id=session)
        data = assert_error(answer, 400, code)
        assert data == {"supported": ALL, "requested": header}


@spec("HTTP-19")
async def test_a_version_header_that_comes_twice_is_one_if_it_is_the_same(mount):
    peer = await opened(mount)
    ping = request("ping")
    twice = {"mcp_protocol_version": f"{D}, {D}"}
    assert (await peer.send(ping, **twice)).json()["result"] == {}
    answer = await peer.send(ping, mcp_protocol_version=f"{D},{B}")
    assert answer.json()["error"]["message"].startswith(
        f"Protocol version '{D}, {B}' is not supported; send MCP-Protocol-Version once, with one of"
    )
    assert (await peer.delete(**twice)).status in (200, 204)


@spec("HTTP-19")
async def test_two_lines_with_the_same_version_are_one(app):
    name = next(name for name, other in MOUNTS.items() if other is app)
    peer = await opened(name)
    headers = headers_for({}, **{**peer.headers, "mcp_protocol_version": D})
    for second, status in ((D, 200), (B, 400)):
        connection = Connection(app, peer.path, encoded(request("ping")), headers, "POST")
        connection.scope["headers"].append((b"mcp-protocol-version", second.encode()))
        await connection.start()
        answer = await connection.rest()
        assert answer.status == status
        if status == 400:
            assert f"'{D}, {B}'" in answer.json()["error"]["message"]
        await connection.close()


# Notifications, responses and the other verbs -----------------------------------------------------


@spec("VER-1", "HTTP-4")
async def test_a_modern_notification_is_dropped(mount):
    bodies = (notification("notifications/initialized"), notification("notifications/x"))
    for header, body in product(MODERN, bodies):
        answer = await send(mount, body, header=header)
        assert (answer.status, answer.body) == (202, b"")


@spec("VER-1", "HTTP-4")
async def test_a_notification_with_an_envelope_is_dropped(mount):
    body = notification("notifications/x", _meta=message("x")["params"]["_meta"])
    for header in (None, D, "nonsense"):
        answer = await send(mount, body, header=header)
        assert (answer.status, answer.body) == (202, b"")


@spec("SES-11", "SES-3", "SES-4", "HTTP-4")
async def test_any_other_message_needs_its_session(mount):
    bodies = (
        notification("notifications/initialized"),
        notification("notifications/cancelled", requestId=1),
        notification("notifications/unknown"),
        RESPONSE,
        {"jsonrpc": "2.0", "id": "ask-1-1", "error": {"code": -1, "message": "no"}},
    )
    sessions = ((None, 400), ("x" * 43, 404), ((await opened(mount)).id, 202))
    for body, header, (session, status) in product(bodies, (None, *VERSIONS), sessions):
        answer = await send(mount, body, header=header, mcp_session_id=session)
        assert answer.status == status
        assert answer.json()["error"]["code"] if status > 202 else not answer.body


@spec("HTTP-23", "VER-1")
async def test_a_response_with_a_modern_header_is_refused(mount):
    for session in (None, (await opened(mount)).id):
        answer = await send(mount, RESPONSE, header=VERSION, mcp_session_id=session)
        assert (answer.status, code_of(answer)) == (400, INVALID_REQUEST)
        assert "id" not in answer.json()


@spec("HTTP-19")
async def test_an_unknown_header_is_refused_with_every_message(mount):
    peer = await opened(mount)
    for body, header in product((notification("notifications/x"), RESPONSE), UNKNOWN):
        answer = await send(mount, body, header=header, mcp_session_id=peer.id)
        assert (answer.status, code_of(answer)) == (400, INVALID_PARAMS)


@spec("HTTP-29", "HTTP-12", "SES-4", "SES-3")
async def test_a_modern_header_knows_no_other_verb(mount):
    peer = await opened(mount)
    for verb, header in product(("GET", "DELETE"), MODERN):
        answer = await peer.send(
            b"", verb=verb, accept="text/event-stream", mcp_protocol_version=header
        )
        assert answer.status == 405
        assert {"POST", "OPTIONS"} == {*answer.headers["allow"].split(", ")}
    assert (await peer.send(request("ping"))).json()["result"] == {}


@spec("HTTP-19")
async def test_an_unknown_header_is_refused_with_every_verb(streaming):
    peer = await opened(streaming)
    for verb, header in product(("GET", "DELETE"), UNKNOWN):
        answer = await peer.send(
            b"", verb=verb, accept="text/event-stream", mcp_protocol_version=header
        )
        assert (answer.status, code_of(answer)) == (400, INVALID_PARAMS)
        assert answer.json()["error"]["data"] == {"supported": ALL, "requested": header}
    assert (await peer.send(request("ping"))).json()["result"] == {}


# Side by side -------------------------------------------------------------------------------------


@spec("VER-1", "VER-2", "VER-20", "SES-9", "HTTP-29", "VER-17")
async def test_the_eras_interleave_and_know_nothing_of_each_other(mount):
    peers = [await opened(mount, version=version) for version in VERSIONS]
    modern = enveloped("tools/list")
    for peer in peers:
        answer = await send(
            mount, modern, header=VERSION, mcp_method="tools/list", mcp_session_id=peer.id
        )
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers
        assert answer.json()["result"]["resultType"] == "complete"
        tools = (await peer.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == [
            tool["name"] for tool in answer.json()["result"]["tools"]
        ]


@spec("HTTP-29", "SES-9")
async def test_an_enveloped_request_ignores_every_session_header(mount):
    for session in ("x" * 43, "a b", "", "\x7f"):
        body = message("tools/list")
        answer = await ask(mount, OPEN, body, mcp_session_id=session, last_event_id="nonsense")
        assert answer.json()["result"]["resultType"] == "complete"


@spec("VER-2", "VER-17")
async def test_a_session_lends_an_enveloped_request_nothing(streaming):
    peer = Peer(streaming, "/stage/mcp")
    await peer.open(elicitation={})
    await peer.result("logging/setLevel", {"level": "debug"})
    body = message("tools/call", {"name": "stagger", "arguments": {}})
    answer = await ask(streaming, "/stage/mcp", body, mcp_session_id=peer.id)
    # The request has neither the session's log level nor a stream for log messages.
    assert not answer.is_stream
    assert answer.json()["result"]["content"][0]["text"] == "staggered"


@spec("HDR-19")
async def test_routing_headers_mean_nothing_in_a_session(mount):
    for version in VERSIONS:
        peer = await opened(mount, version=version)
        echo = request("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        answer = await peer.send(
            echo, mcp_method="TOOLS/DANCE", mcp_name="other", mcp_param_region="wrong"
        )
        assert answer.json()["result"]["content"] == [{"type": "text", "text": "x"}]


@spec("VER-11", "VER-21")
async def test_with_one_revision_enabled_the_others_are_unknown(settings, mount):
    settings.MCP_DJANGO = {"PROTOCOL_VERSIONS": [B]}
    peer = await opened(mount, version=B)
    answer = await peer.send(request("ping"), mcp_protocol_version=D)
    assert (answer.status, code_of(answer)) == (400, INVALID_PARAMS)
    assert answer.json()["error"]["data"] == {"supported": [B], "requested": D}
    answer = await ask(mount, OPEN, message("tools/list"))
    assert (answer.status, code_of(answer)) == (400, UNSUPPORTED_VERSION)
    assert answer.json()["error"]["data"]["supported"] == advertised_versions([B])
    answer = await send(mount, initialize(D))
    assert answer.json()["result"]["protocolVersion"] == B
