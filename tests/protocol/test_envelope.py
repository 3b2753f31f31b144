"""Which era a message belongs to: the table of the specification's two eras, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.envelope import (
    Drop,
    Envelope,
    Handshake,
    Route,
    Stateless,
    classify,
    error_revision_of,
    read_handshake_meta,
)
from mcp_django.protocol.errors import (
    HeaderMismatch,
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    UnsupportedProtocolVersion,
)
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import (
    Batch,
    DecodingFailure,
    Notification,
    Request,
    Response,
    decode,
    encode,
)
from mcp_django.protocol.revisions import (
    DRAFT_2026_V1,
    HANDSHAKE,
    LATEST_HANDSHAKE,
    REVISIONS,
    V2026_07_28,
    error_object,
)
from tests.spec import spec

E, X = V2026_07_28.version, DRAFT_2026_V1.version
EVERY = (*REVISIONS,)
OLD = tuple(revision.version for revision in HANDSHAKE)
PREFIX = "io.modelcontextprotocol/"


def meta(version: Any = E, capabilities: Any = None, **more: Any) -> dict[str, Any]:
    """Return an envelope; `...` leaves a member out."""
    members = {
        "protocolVersion": version,
        "clientCapabilities": {} if capabilities is None else capabilities,
        **more,
    }
    return {PREFIX + key: value for key, value in members.items() if value is not ...}


def call(method: str = "tools/list", fields: Any = ..., **params: Any) -> Request:
    if fields is not ...:
        params["_meta"] = fields
    return Request(1, method, encode(params))


def notify(method: str = "notifications/initialized", fields: Any = ...) -> Notification:
    return Notification(method, encode({} if fields is ... else {"_meta": fields}))


def headers(version: str | None = None, method: str | None = "tools/list", **more: str) -> Headers:
    lines = {"mcp-protocol-version": version, "mcp-method": method, **more}
    return Headers(
        (name.replace("_", "-").encode(), value.encode())
        for name, value in lines.items()
        if value is not None
    )


def route(
    message: Request | Notification | Response | Batch,
    version: str | None = None,
    *,
    enabled: tuple[str, ...] = EVERY,
) -> Route:
    method = message.method if isinstance(message, Request | Notification) else None
    return classify(message, headers(version, method), enabled=enabled)


@spec("VER-1", "VER-2", "VER-3", "VER-4")
@pytest.mark.parametrize(
    "method",
    ["tools/list", "initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"],
)
def test_an_enveloped_request_is_stateless_whatever_its_method(method):
    expected = Envelope(revision=V2026_07_28, client_capabilities={})
    assert route(call(method, meta()), E) == Stateless(expected)
    assert classify(call(method, meta()), None, enabled=EVERY) == Stateless(expected)


@spec("VER-2", "VER-3", "PRG-1", "MET-4")
def test_an_envelope_says_everything_about_its_request():
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    fields = {
        **meta(capabilities={"elicitation": {}}, clientInfo={"name": "c"}, logLevel="info"),
        **trace,
        "progressToken": 7,
        "com.example/unknown": 1,
    }
    assert route(call(fields=fields), E) == Stateless(
        Envelope(
            revision=V2026_07_28,
            client_capabilities={"elicitation": {}},
            client_info={"name": "c"},
            log_level="info",
            progress_token=7,
            trace=trace,
        )
    )


@spec("VER-3", "ALS-3")
def test_optional_members_of_an_envelope_may_be_absent_or_null():
    fields = {**meta(clientInfo=None, logLevel=None), "progressToken": None}
    assert route(call(fields=fields), E) == route(call(fields=meta()), E)


@spec("VER-3", "VER-4")
@pytest.mark.parametrize("version", [E, X, "2025-06-18", "1.0.0", None])
@pytest.mark.parametrize(
    "fields",
    [
        meta(version=...),
        meta(version=5),
        meta(version=None),
        meta(capabilities=...),
        meta(capabilities=[]),
        meta(capabilities="x"),
        meta(clientInfo="x"),
        {PREFIX + "clientInfo": {}},
    ],
)
def test_an_incomplete_envelope_is_refused_before_any_header_is_looked_at(fields, version):
    with pytest.raises(InvalidEnvelope) as caught:
        route(call(fields=fields), version)
    assert (caught.value.code, caught.value.http_status) == (-32602, 400)


@spec("VER-4", "HDR-2", "HDR-5")
@pytest.mark.parametrize("version", [None, X, "2025-03-26", "2.0.0", "", f"{E}, {X}"])
@pytest.mark.parametrize("named", [E, "2025-06-18", "1.0.0"])
def test_a_version_header_that_is_absent_or_different_is_a_mismatch(named, version):
    with pytest.raises(HeaderMismatch):
        route(call(fields=meta(named)), version)


@spec("HDR-3", "HDR-4", "HDR-5")
def test_the_other_routing_headers_are_compared_with_the_body():
    message = call("tools/call", meta(), name="refund")
    good = headers(E, "tools/call", mcp_name="refund")
    assert isinstance(classify(message, good, enabled=EVERY), Stateless)
    for wrong in (
        headers(E, None, mcp_name="refund"),
        headers(E, "tools/list", mcp_name="refund"),
        headers(E, "tools/call"),
        headers(E, "tools/call", mcp_name="Refund"),
    ):
        with pytest.raises(HeaderMismatch):
            classify(message, wrong, enabled=EVERY)


@spec("HDR-4")
def test_reading_a_resource_names_its_uri():
    message = call("resources/read", meta(), uri="shop://x", name="other")
    good = headers(E, "resources/read", mcp_name="shop://x")
    assert isinstance(classify(message, good, enabled=EVERY), Stateless)
    with pytest.raises(HeaderMismatch):
        classify(message, headers(E, "resources/read", mcp_name="other"), enabled=EVERY)


@spec("HDR-11")
@pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": None}])
def test_a_body_that_names_nothing_is_left_to_the_handler(params):
    message = call("tools/call", meta(), **params)
    assert isinstance(classify(message, headers(E, "tools/call"), enabled=EVERY), Stateless)


@spec("VER-6", "VER-9")
@pytest.mark.parametrize("requested", ["1.0.0", "", "2099-01-01", "2026-07-28 "])
def test_an_unknown_version_is_answered_with_those_that_are_spoken(requested):
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        classify(call(fields=meta(requested)), None, enabled=EVERY)
    assert caught.value.http_status == 400
    assert caught.value.data == {"supported": [E, *OLD], "requested": requested}


@spec("VER-9")
@pytest.mark.parametrize("requested", OLD)
def test_a_handshake_version_in_an_envelope_is_answered_with_modern_ones(requested):
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        route(call(fields=meta(requested)), requested)
    assert caught.value.data == {"supported": [E], "requested": requested}


def test_a_version_that_is_switched_off_is_not_supported():
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        route(call(fields=meta()), E, enabled=OLD)
    assert caught.value.data == {"supported": [*OLD], "requested": E}


@spec("LOG-5", "LOG-4")
@pytest.mark.parametrize("level", ["loud", "INFO", "", 5, ["info"]])
def test_an_unknown_log_level_is_invalid_params(level):
    with pytest.raises(InvalidParams) as caught:
        route(call(fields=meta(logLevel=level)), E)
    assert caught.value.http_status == 200


@spec("PRG-1")
@pytest.mark.parametrize("token", ["", "a", 0, 2**70])
def test_a_progress_token_keeps_its_type(token):
    routing = route(call(fields={**meta(), "progressToken": token}), E)
    assert isinstance(routing, Stateless)
    assert routing.envelope.progress_token == token
    assert type(routing.envelope.progress_token) is type(token)


@pytest.mark.parametrize("token", [True, 1.5, [], {}])
def test_another_progress_token_is_invalid_params(token):
    with pytest.raises(InvalidParams):
        route(call(fields={**meta(), "progressToken": token}), E)
    with pytest.raises(InvalidParams):
        read_handshake_meta(encode({"_meta": {"progressToken": token}}))


@spec("VER-4")
@pytest.mark.parametrize("version", [E, X])
@pytest.mark.parametrize("fields", [..., None, [], "x", {}, {"progressToken": 1}])
def test_a_modern_header_without_an_envelope_is_a_malformed_modern_request(version, fields):
    with pytest.raises(InvalidEnvelope):
        route(call(fields=fields), version)


def test_an_envelope_in_the_wrong_place_is_none():
    assert route(call(meta=meta())) == Handshake()
    with pytest.raises(InvalidEnvelope):
        route(call(meta=meta()), E)


@spec("VER-12", "VER-1")
@pytest.mark.parametrize("version", [None, E, X, "2025-06-18", "1.0.0", ""])
def test_initialize_without_an_envelope_is_a_handshake_whatever_the_header(version):
    assert route(call("initialize", protocolVersion=E), version) == Handshake()


@spec("VER-1", "HDR-1", "HDR-19")
@pytest.mark.parametrize("version", [None, *OLD])
def test_other_requests_without_an_envelope_are_left_to_the_session(version):
    message = call("tools/call", name="refund")
    assert classify(message, headers(version, "wrong"), enabled=EVERY) == Handshake()
    assert classify(message, None, enabled=EVERY) == Handshake()


@spec("HTTP-19")
@pytest.mark.parametrize("version", ["1.0.0", "", "2025-06-19", "2025-06-18, 2025-03-26"])
def test_a_header_with_an_unknown_version_is_refused(version):
    for message in (call(), notify(), Response(1, b"{}"), Batch((call(),))):
        with pytest.raises(UnsupportedProtocolVersion) as caught:
            route(message, version)
        assert caught.value.data == {"supported": [E, *OLD], "requested": version}


@spec("HTTP-19")
def test_a_header_with_a_version_that_is_switched_off_is_refused():
    with pytest.raises(UnsupportedProtocolVersion):
        route(call(), "2024-11-05", enabled=(E, "2025-06-18"))


@spec("HTTP-19")
def test_two_version_headers_have_to_be_equal():
    name = b"mcp-protocol-version"
    assert classify(call(), Headers([(name, b"2025-06-18")] * 2), enabled=EVERY) == Handshake()
    assert route(call(), "2025-06-18, 2025-06-18") == Handshake()
    both = Headers([(name, b"2025-06-18"), (name, b"2025-03-26")])
    for two in (both, headers("2025-06-18,2025-03-26")):
        with pytest.raises(UnsupportedProtocolVersion) as caught:
            classify(call(), two, enabled=EVERY)
        assert caught.value.message.startswith(
            "Protocol version '2025-06-18, 2025-03-26' is not supported; send "
            "MCP-Protocol-Version once, with one of 2026-07-28, 2025-11-25"
        )


@spec("VER-11")
@pytest.mark.parametrize(
    ("requested", "echoed"), [("2025-06-18", "2025-06-18"), (5, ""), (..., "")]
)
def test_without_handshake_revisions_initialize_is_told_what_would_work(requested, echoed):
    params = {} if requested is ... else {"protocolVersion": requested}
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        route(call("initialize", **params), enabled=(E, X))
    assert caught.value.data == {"supported": [E], "requested": echoed}
    assert E in caught.value.message


def test_without_handshake_revisions_every_request_needs_an_envelope():
    with pytest.raises(InvalidEnvelope):
        route(call(), enabled=(E, X))
    with pytest.raises(InvalidEnvelope):
        classify(call(), None, enabled=(E,))


@spec("HTTP-30", "HDR-10", "ALS-3")
@pytest.mark.parametrize("method", ["notifications/cancelled", "notifications/progress", "other"])
def test_a_modern_notification_is_dropped(method):
    assert route(notify(method), E) == Drop()
    assert route(notify(method), X) == Drop()
    assert route(notify(method, meta())) == Drop()
    assert classify(notify(method, meta()), headers(E, None), enabled=EVERY) == Drop()
    assert route(notify(method), enabled=(E,)) == Drop()


@spec("CAN-2")
@pytest.mark.parametrize("version", [None, *OLD])
def test_other_notifications_are_left_to_the_session(version):
    assert route(notify(), version) == Handshake()
    assert route(Notification("n", b'{"_meta":{"a":1e999}}'), version) == Handshake()


@spec("HTTP-23")
@pytest.mark.parametrize("enabled", [EVERY, (E, X)])
def test_a_response_to_a_stateless_server_is_refused(enabled):
    with pytest.raises(InvalidRequest) as caught:
        route(Response(1, b"{}"), E, enabled=enabled)
    assert caught.value.http_status == 400


def test_a_response_without_handshake_revisions_is_refused():
    with pytest.raises(InvalidRequest):
        route(Response(1, b"{}"), enabled=(E,))


@spec("ALS-3")
def test_a_response_at_the_draft_is_dropped():
    assert route(Response(1, b"{}"), X) == Drop()


def test_another_response_is_left_to_the_session():
    assert route(Response(1, b"{}")) == Handshake()
    assert route(Response(1, b"{}"), "2025-06-18") == Handshake()


@spec("BAT-5", "BAT-9", "HTTP-23")
@pytest.mark.parametrize(
    ("batch", "version"),
    [
        (Batch((call(), call(fields=meta()))), None),
        (Batch((notify(fields=meta()),)), None),
        (Batch((call(fields={PREFIX + "clientInfo": {}}),)), "2025-03-26"),
        (Batch((call(),)), E),
        (Batch((call(),)), X),
    ],
)
def test_a_batch_with_anything_modern_is_refused(batch, version):
    with pytest.raises(InvalidRequest) as caught:
        route(batch, version)
    assert caught.value.http_status == 400


@spec("BAT-5", "BAT-6")
@pytest.mark.parametrize("enabled", [(E,), (E, "2025-11-25", "2025-06-18"), ("2024-11-05",)])
def test_a_batch_is_refused_where_no_revision_has_batches(enabled):
    with pytest.raises(InvalidRequest):
        route(Batch((call(),)), enabled=enabled)


@spec("BAT-1", "BAT-8")
def test_another_batch_is_left_to_the_session():
    broken = DecodingFailure(InvalidRequest("x"))
    batch = Batch((call("initialize"), notify(), broken, Request(2, "m", b'{"_meta":{"a":1e999}}')))
    assert route(batch) == Handshake()
    assert route(batch, "2025-03-26") == Handshake()
    assert route(Batch((Response(1, b"{}"),))) == Handshake()


@spec("ALS-1")
def test_the_alias_is_served_as_a_revision_of_its_own():
    routing = route(call(fields=meta(X)), X)
    assert routing == Stateless(Envelope(revision=DRAFT_2026_V1, client_capabilities={}))
    with pytest.raises(HeaderMismatch):
        route(call(fields=meta(X)), E)
    with pytest.raises(HeaderMismatch):
        route(call(fields=meta(E)), X)


@spec("ALS-4", "ALS-2")
def test_an_alias_that_is_switched_off_is_not_advertised():
    with pytest.raises(UnsupportedProtocolVersion) as caught:
        route(call(fields=meta(X)), X, enabled=(E, *OLD))
    assert caught.value.data == {"supported": [E, *OLD], "requested": X}


@spec("ALS-2")
def test_an_error_about_a_message_is_written_for_the_revision_in_its_envelope():
    message = call(fields=meta(X))
    assert (
        error_revision_of(message) is error_revision_of(message, LATEST_HANDSHAKE) is DRAFT_2026_V1
    )
    with pytest.raises(HeaderMismatch) as caught:
        route(message, E)
    assert error_object(caught.value, error_revision_of(message))["code"] == -32001


@pytest.mark.parametrize(
    "message",
    [
        call(),
        call(fields={"progressToken": 1}),
        Request(1, "m", b'{"_meta":{"a":1e999}}'),
        Notification("notifications/x"),
        Response(1, b"{}"),
        Batch((call(fields=meta()),)),
    ],
)
def test_an_error_about_a_message_without_an_envelope_is_written_for_its_session(message):
    assert error_revision_of(message) is None
    assert error_revision_of(message, LATEST_HANDSHAKE) is LATEST_HANDSHAKE


@pytest.mark.parametrize("version", ["2025-06-18", "1.0.0", 5])
def test_an_envelope_of_no_stateless_version_belongs_to_no_session_either(version):
    assert error_revision_of(call(fields=meta(version)), LATEST_HANDSHAKE) is None


@spec("PRG-1", "MET-4")
def test_a_handshake_request_may_carry_a_token_and_a_trace():
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    fields = encode({"_meta": {"progressToken": "t", **trace}, "name": "x"})
    assert read_handshake_meta(fields) == ("t", trace)
    assert read_handshake_meta(b"{}") == (None, {})
    assert read_handshake_meta(b'{"_meta":null}') == (None, {})


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just(E), st.just({})
)
FIELDS = st.dictionaries(
    st.sampled_from([*meta(clientInfo={}, logLevel=""), "progressToken", "traceparent", "x"]),
    SCALARS,
)
PARAMS = st.dictionaries(st.sampled_from(["name", "uri", "protocolVersion"]), SCALARS)
VERSIONS = st.none() | st.sampled_from([*EVERY, "x", ""])


@given(
    method=st.sampled_from(["initialize", "tools/call", "resources/read", "x"]),
    fields=FIELDS | SCALARS,
    params=PARAMS,
    version=VERSIONS,
    enabled=st.sets(st.sampled_from(EVERY), min_size=1).map(tuple),
    has_id=st.booleans(),
)
def test_every_request_has_a_route_or_an_error(method, fields, params, version, enabled, has_id):
    body = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": fields}}
    message = decode(encode({**body, "id": 1} if has_id else body))
    assert isinstance(message, Request | Notification)
    for given_headers in (headers(version, method), None):
        try:
            routing = classify(message, given_headers, enabled=enabled)
        except (InvalidParams, HeaderMismatch, UnsupportedProtocolVersion):
            continue
        if isinstance(routing, Stateless):
            assert routing.envelope.revision.stateless
            assert routing.envelope.revision.version in enabled
        elif isinstance(routing, Handshake):
            assert any(not REVISIONS[candidate].stateless for candidate in enabled)
