"""Which era a request belongs to, its headers, and everything odd that a client may post."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mcp_django.protocol.envelope import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
)
from mcp_django.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from tests.kit.drivers import VERSION, Answer, Connection, headers_for, message
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask

PATH = "/open/mcp"
ALIAS = "DRAFT-2026-v1"
ECHO = message("tools/call", {"name": "echo_sync", "arguments": {"text": "still here"}})
LIST = message("tools/list")


def without_envelope(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def with_envelope(**changes: Any) -> dict[str, Any]:
    """`tools/list` with a changed envelope; `None` removes a key."""
    keys = {
        "version": PROTOCOL_VERSION,
        "capabilities": CLIENT_CAPABILITIES,
        "info": CLIENT_INFO,
        "level": LOG_LEVEL,
        "token": PROGRESS_TOKEN,
    }
    envelope = dict(LIST["params"]["_meta"])
    for name, value in changes.items():
        envelope[keys[name]] = value
    kept = {key: value for key, value in envelope.items() if value is not None}
    return {**LIST, "params": {"_meta": kept}}


def assert_error(answer: Answer, status: int, code: int, *, id: Any = 1) -> dict[str, Any]:
    """Check what every error must have, and return the error."""
    body = answer.json()
    assert (answer.status, body["error"]["code"]) == (status, code)
    assert body.get("id") == id
    assert answer.headers["content-type"] == "application/json"
    text = json.dumps(body)
    assert "Traceback" not in text
    assert "/mcp_django/" not in text
    error: dict[str, Any] = body["error"]
    assert error["message"]
    return error


@pytest.fixture(autouse=True)
def _stateless_only(settings):
    """Enable one era only; tests/transports/http_session tests both eras on one endpoint."""
    settings.MCP_DJANGO = {"PROTOCOL_VERSIONS": [VERSION, ALIAS]}


async def assert_serving(mount: str) -> None:
    answer = await ask(mount, PATH, ECHO)
    assert answer.json()["result"]["content"] == [{"type": "text", "text": "still here"}]


# The era of a request (protocol of 2026-07-28, with no handshake revision enabled) ----------------


@spec("VER-11", "VER-6")
@pytest.mark.parametrize(
    "version", ["2025-11-25", "2024-11-05", "1.0.0", "", VERSION, ALIAS, 5, None]
)
async def test_initialize_is_told_what_is_supported(version, mount):
    params = {"capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    body = without_envelope("initialize", protocolVersion=version, **params)
    modern = [ALIAS, VERSION] if version == ALIAS else [VERSION]
    named = version if isinstance(version, str) else ""
    for header in (None, VERSION, "2025-06-18", "nonsense"):
        answer = await ask(mount, PATH, body, mcp_protocol_version=header, mcp_method=None)
        error = assert_error(answer, 400, UNSUPPORTED_VERSION)
        assert error["data"] == {"supported": modern, "requested": named}
        assert VERSION in error["message"]


@spec("VER-8", "PNG-3", "LOG-6", "HTTP-24", "VER-21")
@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tools/dance"]
)
async def test_an_envelope_makes_an_old_method_unknown(method, mount):
    assert_error(await ask(mount, PATH, message(method)), 404, METHOD_NOT_FOUND)


@spec("VER-8", "HTTP-24")
async def test_what_is_not_advertised_is_not_found(mount):
    assert_error(await ask(mount, PATH, message("prompts/list")), 404, METHOD_NOT_FOUND)


ENVELOPES: list[tuple[dict[str, Any], dict[str, str | None], int]] = [
    (with_envelope(), {"mcp_protocol_version": "2025-11-25"}, HEADER_MISMATCH),
    (with_envelope(), {"mcp_protocol_version": None}, HEADER_MISMATCH),
    (with_envelope(), {"mcp_protocol_version": f"{VERSION}, 2025-11-25"}, HEADER_MISMATCH),
    (with_envelope(version=None), {"mcp_protocol_version": VERSION}, INVALID_PARAMS),
    (with_envelope(version=5), {"mcp_protocol_version": VERSION}, INVALID_PARAMS),
    (with_envelope(capabilities=None), {}, INVALID_PARAMS),
    (with_envelope(capabilities=[]), {}, INVALID_PARAMS),
    (with_envelope(info="me"), {}, INVALID_PARAMS),
    (with_envelope(version="2099-01-01"), {}, UNSUPPORTED_VERSION),
    (with_envelope(version="2025-11-25"), {}, UNSUPPORTED_VERSION),
    (with_envelope(version=""), {}, UNSUPPORTED_VERSION),
    (without_envelope("tools/list"), {"mcp_protocol_version": VERSION}, INVALID_PARAMS),
    (without_envelope("tools/list"), {"mcp_protocol_version": ALIAS}, INVALID_PARAMS),
    (without_envelope("tools/list"), {"mcp_protocol_version": None}, INVALID_PARAMS),
    (without_envelope("tools/list"), {"mcp_protocol_version": "nonsense"}, UNSUPPORTED_VERSION),
    ({**LIST, "params": {"_meta": None}}, {"mcp_protocol_version": VERSION}, INVALID_PARAMS),
    ({**LIST, "params": {"_meta": []}}, {"mcp_protocol_version": VERSION}, INVALID_PARAMS),
    (
        {**LIST, "params": {"meta": LIST["params"]["_meta"]}},
        {"mcp_protocol_version": VERSION},
        INVALID_PARAMS,
    ),
]


@spec("VER-3", "VER-4", "HTTP-24", "HDR-2", "ERR-3")
@pytest.mark.parametrize("number", range(len(ENVELOPES)))
async def test_an_incomplete_envelope_is_refused_before_anything_runs(number, mount):
    body, changes, code = ENVELOPES[number]
    assert_error(await ask(mount, PATH, body, **changes), 400, code)
    await assert_serving(mount)


TWO_FAULTS: list[tuple[dict[str, Any], dict[str, str | None], int, int]] = [
    (with_envelope(capabilities=None), {"mcp_method": "wrong"}, 400, INVALID_PARAMS),
    (with_envelope(version="2099-01-01"), {"mcp_method": "wrong"}, 400, HEADER_MISMATCH),
    (message("tools/dance"), {"mcp_method": "wrong"}, 400, HEADER_MISMATCH),
    (
        {**with_envelope(version="2099-01-01"), "method": "tools/dance"},
        {},
        400,
        UNSUPPORTED_VERSION,
    ),
    (message("prompts/get", {}), {}, 404, METHOD_NOT_FOUND),
    (
        message(
            "subscriptions/listen", {"notifications": {"taskIds": ["1"], "toolsListChanged": 5}}
        ),
        {},
        200,
        INVALID_PARAMS,
    ),
]


@spec("VER-4")
@pytest.mark.parametrize("number", range(len(TWO_FAULTS)))
async def test_of_two_faults_the_earlier_check_is_told(number, mount):
    body, changes, status, code = TWO_FAULTS[number]
    assert_error(await ask(mount, PATH, body, **changes), status, code)


@spec("VER-6", "VER-9", "ALS-4")
async def test_an_unknown_version_is_told_the_supported_ones(mount):
    for version in ("2099-01-01", "2025-11-25"):
        answer = await ask(mount, PATH, with_envelope(version=version))
        error = assert_error(answer, 400, UNSUPPORTED_VERSION)
        assert error["data"] == {"supported": [VERSION], "requested": version}


@spec("VER-3")
@pytest.mark.parametrize("info", [None, {}, {"name": "x"}, {"name": "x", "version": "1", "z": 1}])
async def test_a_client_need_not_say_who_it_is(info, mount):
    assert (await ask(mount, PATH, with_envelope(info=info))).status == 200


@spec("LOG-5", "PRG-1", "HTTP-25")
@pytest.mark.parametrize(
    "changes", [{"level": "loud"}, {"level": 3}, {"token": 1.5}, {"token": True}, {"token": []}]
)
async def test_a_wrong_wish_is_a_wrong_parameter(changes, mount):
    answer = await ask(mount, PATH, with_envelope(**changes))
    assert_error(answer, 200, INVALID_PARAMS)


@spec("HTTP-29", "VER-2", "SES-9", "RSM-10")
async def test_a_session_means_nothing(mount):
    answer = await ask(mount, PATH, LIST, mcp_session_id="abc", last_event_id="1-1")
    assert answer.status == 200
    assert "mcp-session-id" not in answer.headers


@spec("ALS-1", "ALS-2", "ALS-4")
async def test_the_draft_is_served_under_its_own_name(mount):
    body = message("server/discover", **{PROTOCOL_VERSION: ALIAS})
    result = (await ask(mount, PATH, body)).json()["result"]
    assert result["supportedVersions"] == [ALIAS, VERSION]
    assert result["serverInfo"]["name"] == "open"
    wrong = await ask(mount, PATH, body, mcp_method="tools/list")
    assert wrong.status == 400
    assert wrong.json()["error"]["code"] == -32001


# Other messages than requests ---------------------------------------------------------------------


@spec("RPC-8", "HTTP-4", "HDR-10", "ALS-3")
@pytest.mark.parametrize("header", [VERSION, ALIAS, None, "2025-11-25", "nonsense"])
@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/progress"])
async def test_a_notification_is_dropped(method, header, mount):
    body = {"jsonrpc": "2.0", "method": method}
    answer = await ask(mount, PATH, body, mcp_protocol_version=header, mcp_method=None)
    assert (answer.status, answer.body) == (202, b"")
    assert "content-type" not in answer.headers


@spec("HTTP-23", "ALS-3")
async def test_a_posted_response_is_refused(mount):
    body = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (await ask(mount, PATH, body)).status == 400
    assert (await ask(mount, PATH, body, mcp_protocol_version=ALIAS)).status == 202


@spec("HTTP-23", "BAT-5", "BAT-9")
@pytest.mark.parametrize("members", [[], [LIST], [LIST, LIST], [1], [[LIST]], [{}]])
async def test_an_array_is_refused(members, mount):
    answer = await ask(mount, PATH, json.dumps(members).encode())
    assert (answer.status, answer.json()["error"]["code"]) == (400, INVALID_REQUEST)
    assert isinstance(answer.json(), dict)
    await assert_serving(mount)


BODIES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", PARSE_ERROR),
    "no JSON": (b"{", PARSE_ERROR),
    "two documents": (b"{}{}", PARSE_ERROR),
    "bytes": (b"\xff\xfe\x00", PARSE_ERROR),
    "gzip": (b"\x1f\x8b\x08\x00", PARSE_ERROR),
    "two byte order marks": (b"\xef\xbb\xbf\xef\xbb\xbf{}", PARSE_ERROR),
    "bad UTF-8 inside": (json.dumps(LIST).encode().replace(b"tools", b"to\xffls"), PARSE_ERROR),
    "deep nesting": (b"[" * 100_000, PARSE_ERROR),
    "deep parameters": (
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":' + b"[" * 50_000,
        PARSE_ERROR,
    ),
    "a string": (b'""', INVALID_REQUEST),
    "null": (b"null", INVALID_REQUEST),
    "a number": (b"1", INVALID_REQUEST),
    "an empty object": (b"{}", INVALID_REQUEST),
    "no version": (b'{"id":1,"method":"tools/list"}', INVALID_REQUEST),
    "another version": (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', INVALID_REQUEST),
    "no method": (b'{"jsonrpc":"2.0","id":1}', INVALID_REQUEST),
    "a numeric method": (b'{"jsonrpc":"2.0","id":1,"method":1}', INVALID_REQUEST),
    "a null id": (b'{"jsonrpc":"2.0","id":null,"method":"x"}', INVALID_REQUEST),
    "a boolean id": (b'{"jsonrpc":"2.0","id":true,"method":"x"}', INVALID_REQUEST),
    "a fraction as id": (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', INVALID_REQUEST),
    "an object as id": (b'{"jsonrpc":"2.0","id":{},"method":"x"}', INVALID_REQUEST),
    "a result and an error": (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', INVALID_REQUEST),
}


@spec("RPC-1", "RPC-9", "RPC-11", "RPC-12", "HTTP-25", "ERR-5")
@pytest.mark.parametrize("name", BODIES)
async def test_a_body_that_is_no_message_is_refused(name, mount):
    raw, code = BODIES[name]
    answer = await ask(mount, PATH, raw)
    body = answer.json()
    assert (answer.status, body["error"]["code"]) == (400, code)
    # If the message could not be read, the error has no id at all, not a null.
    assert body.get("id", 1) == 1
    assert "Traceback" not in answer.body.decode()
    await assert_serving(mount)


@spec("RPC-16", "RPC-1")
async def test_a_byte_order_mark_is_ignored(mount):
    raw = b"\xef\xbb\xbf" + json.dumps(ECHO).encode()
    answer = await ask(mount, PATH, raw, mcp_method="tools/call", mcp_name="echo_sync")
    assert answer.response()["result"]["content"][0]["text"] == "still here"


@spec("HTTP-34")
@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "GZip"])
async def test_a_compressed_body_is_refused_with_the_way_out(coding, mount):
    packed = gzip.compress(json.dumps(LIST).encode())
    answer = await ask(mount, PATH, packed, content_encoding=coding, mcp_method="tools/list")
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
    assert answer.json()["error"]["code"] == INVALID_REQUEST
    says = f"Send the body uncompressed; Content-Encoding says {coding!r}."
    assert answer.json()["error"]["message"] == says
    await assert_serving(mount)


async def test_a_body_that_says_it_is_not_compressed_is_served(mount):
    for coding in ("identity", "Identity", ""):
        assert (await ask(mount, PATH, LIST, content_encoding=coding)).status == 200


@spec("HDR-9")
@pytest.mark.parametrize("name", MOUNTS)
async def test_a_version_that_is_said_twice_is_said(name):
    headers = headers_for(LIST)
    connection = Connection(MOUNTS[name], PATH, json.dumps(LIST).encode(), headers, "POST")
    connection.scope["headers"].append((b"mcp-protocol-version", VERSION.encode()))
    await connection.start()
    assert (await connection.rest()).status == 200
    await connection.close()


@spec("RPC-12")
@pytest.mark.parametrize("params", [[], [1], "x", 1, True])
async def test_parameters_that_are_no_object_are_refused(params, mount):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    answer = await ask(mount, PATH, json.dumps(body).encode(), mcp_method="tools/list")
    assert answer.json()["error"]["code"] == INVALID_PARAMS
    assert answer.json()["id"] == 1


@spec("RPC-2", "ERR-3")
@pytest.mark.parametrize("given", [0, "", "0", 1, "1", -5, 2**63, 2**70, "☃" * 10, "x" * 5000])
async def test_an_id_comes_back_as_it_was(given, mount):
    for body in (message("tools/list", id=given), message("nothing", id=given)):
        answer = await ask(mount, PATH, body)
        assert answer.json()["id"] == given
        assert type(answer.json()["id"]) is type(given)


@spec("RPC-2")
async def test_a_whole_number_with_a_point_is_an_integer(mount):
    raw = json.dumps(LIST).encode().replace(b'"id": 1,', b'"id": 1.0,')
    answer = await ask(mount, PATH, raw, mcp_method="tools/list")
    assert answer.status == 200
    assert answer.json()["id"] == 1


async def test_odd_but_valid_bodies_are_served(mount):
    extra = {**LIST, "unknown": {"a": [1]}}
    assert (await ask(mount, PATH, extra)).status == 200
    twice = json.dumps(LIST).encode().replace(b'"id": 1', b'"id": 5, "id": 1')
    answer = await ask(mount, PATH, twice, mcp_method="tools/list")
    assert (answer.status, answer.json()["id"]) == (200, 1)
    surrogate = json.dumps(ECHO).encode().replace(b"still here", b"\\ud800")
    answer = await ask(mount, PATH, surrogate, mcp_method="tools/call", mcp_name="echo_sync")
    assert answer.status in {200, 400}
    await assert_serving(mount)


@spec("RPC-13")
async def test_a_very_long_method_is_not_repeated(mount):
    answer = await ask(mount, PATH, message("x" * 10_000))
    error = assert_error(answer, 404, METHOD_NOT_FOUND)
    assert len(error["message"]) < 300


# Headers ------------------------------------------------------------------------------------------

ROUTE = message("tools/call", {"name": "route", "arguments": {"region": "eu", "count": 2}})
PARAMS = {"mcp_param_region": "eu", "mcp_param_count": "2"}

HEADERS: list[tuple[dict[str, Any], dict[str, str | None]]] = [
    (LIST, {"mcp_method": None}),
    (LIST, {"mcp_method": "TOOLS/LIST"}),
    (LIST, {"mcp_method": "tools/call"}),
    (LIST, {"mcp_method": "tools/list\x7f"}),
    (LIST, {"mcp_method": "tools/lïst"}),
    (ECHO, {"mcp_name": None}),
    (ECHO, {"mcp_name": "ECHO_SYNC"}),
    (ECHO, {"mcp_name": "echo"}),
    (ECHO, {"mcp_name": "=?base64?ZWNobw==?="}),
    (ECHO, {"mcp_name": "=?base64?!!!?="}),
    (ECHO, {"mcp_name": "=?base64?/w==?="}),
    (ECHO, {"mcp_name": "=?BASE64?ZWNob19zeW5j?="}),
    (ECHO, {"mcp_protocol_version": "2026-07-2"}),
    (message("prompts/get", {"name": "cue"}), {"mcp_name": None}),
    (message("prompts/get", {"name": "cue"}), {"mcp_name": "queue"}),
    (message("resources/read", {"uri": "x://é"}), {"mcp_name": "x://e"}),
    (message("resources/read", {"uri": "x://a", "name": "b"}), {"mcp_name": "b"}),
]


@spec("HDR-2", "HDR-3", "HDR-4", "HDR-5", "HDR-6", "HDR-7", "HDR-8", "HTTP-24", "VER-21")
@pytest.mark.parametrize("number", range(len(HEADERS)))
async def test_a_header_that_differs_is_refused(number, mount):
    body, changes = HEADERS[number]
    assert_error(await ask(mount, PATH, body, **changes), 400, HEADER_MISMATCH)
    await assert_serving(mount)


@spec("HDR-6", "HDR-7")
@pytest.mark.parametrize(
    "changes",
    [
        {"mcp_name": "  echo_sync \t"},
        {"mcp_name": "=?base64?ZWNob19zeW5j?="},
        {"mcp_protocol_version": f" {VERSION} "},
        {"mcp_param_unknown": "x"},
    ],
)
async def test_a_header_that_says_the_same_is_accepted(changes, mount):
    assert (await ask(mount, PATH, ECHO, **changes)).status == 200


@spec("HDR-18", "HDR-5")
async def test_a_header_opens_no_door(mount):
    members = message("tools/call", {"name": "members_tool", "arguments": {}})
    assert_error(await ask(mount, PATH, members, mcp_name="echo_sync"), 400, HEADER_MISMATCH)
    assert (await ask(mount, PATH, members)).status == 401


@spec("HDR-11")
async def test_a_call_without_a_name_is_a_wrong_parameter(mount):
    answer = await ask(mount, PATH, message("tools/call", {"arguments": {}}), mcp_name="x")
    assert_error(answer, 200, INVALID_PARAMS)


@spec("HDR-15", "HDR-16", "HDR-17")
@pytest.mark.parametrize(
    ("arguments", "changes", "accepted"),
    [
        ({"region": "eu", "count": 2}, PARAMS, True),
        ({"region": "eu", "count": 2}, {**PARAMS, "mcp_param_count": "2.0"}, True),
        ({"region": "eu"}, {"mcp_param_region": "eu"}, True),
        ({"region": ""}, {"mcp_param_region": ""}, True),
        ({"region": "dänisch"}, {"mcp_param_region": "=?base64?ZMOkbmlzY2g=?="}, True),
        ({"region": "eu"}, {}, False),
        ({"region": "eu"}, {"mcp_param_region": "EU"}, False),
        ({"region": "eu"}, PARAMS, False),
        ({"region": "eu", "count": 2}, {**PARAMS, "mcp_param_count": "3"}, False),
        ({"region": "eu", "count": 2}, {**PARAMS, "mcp_param_count": "two"}, False),
    ],
)
async def test_mirrored_arguments_have_to_match(arguments, changes, accepted, mount, token):
    body = message("tools/call", {"name": "route", "arguments": arguments})
    answer = await ask(mount, "/mcp", body, authorization=token, **changes)
    if accepted:
        count = arguments.get("count", 1)
        assert answer.json()["result"]["content"][0]["text"] == f"{arguments['region']}:{count}"
    else:
        assert_error(answer, 400, HEADER_MISMATCH)


@spec("HDR-9")
@pytest.mark.parametrize("name", MOUNTS)
async def test_a_repeated_or_misspelled_header_is_refused(name):
    raw = json.dumps(LIST).encode()
    spoofs = [
        (headers_for(LIST), [(b"mcp-method", b"tools/list")]),
        (headers_for(LIST), [(b"mcp-protocol-version", b"2025-11-25")]),
        (headers_for(LIST, mcp_method=None), [(b"mcp_method", b"tools/list")]),
    ]
    for headers, added in spoofs:
        connection = Connection(MOUNTS[name], PATH, raw, headers, "POST")
        connection.scope["headers"].extend(added)
        await connection.start()
        assert_error(await connection.rest(), 400, HEADER_MISMATCH)
        await connection.close()


@spec("ERR-5")
async def test_a_bug_tells_nothing_while_debugging(mount, token, settings, caplog):
    settings.DEBUG = True
    body = message("tools/call", {"name": "fail", "arguments": {"kind": "bug"}})
    answer = await ask(mount, "/mcp", body, authorization=token)
    assert answer.json()["result"]["isError"] is True
    assert b"secret" not in answer.body
    assert b"passwd" not in answer.body
    assert "secret detail" in caplog.text
