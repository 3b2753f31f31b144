"""Malformed and odd bodies in a live session, which goes on after them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_django.exceptions import Busy
from mcp_django.execution.threads import BoundedPool
from mcp_django.protocol.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)
from mcp_django.transports import http
from tests.spec import spec
from tests.transports.http_session.handshakes import VERSIONS, B, Peer, opened

PING = b'{"jsonrpc": "2.0", "id": %s, "method": "ping"}'
BIG = str(2**63).encode()
NO_ID = "none"
DEEP = b"[" * 100_000 + b"]" * 100_000

# Raw body, status, code and id of the answer (`...`: it has none).
REFUSED: list[tuple[bytes, int, int, Any]] = [
    (b"[]", 400, INVALID_REQUEST, ...),
    (b'""', 400, INVALID_REQUEST, ...),
    (b"null", 400, INVALID_REQUEST, ...),
    (b"1", 400, INVALID_REQUEST, ...),
    (b"{}", 400, INVALID_REQUEST, ...),
    (b"", 400, PARSE_ERROR, ...),
    (b"{", 400, PARSE_ERROR, ...),
    (b"\xef\xbb\xbf\xef\xbb\xbf" + PING % b"1", 400, PARSE_ERROR, ...),
    (PING % b"1" + b"\xff", 400, PARSE_ERROR, ...),
    (PING % b'"\xed\xa0\x80"', 400, PARSE_ERROR, ...),
    (PING % b'"\\ud800"', 400, PARSE_ERROR, ...),
    (PING % b"1" + PING % b"2", 400, PARSE_ERROR, ...),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + DEEP + b"}", 400, -32700, ...),
    (PING % b"null", 400, INVALID_REQUEST, ...),
    (PING % b"true", 400, INVALID_REQUEST, ...),
    (PING % b"1.5", 400, INVALID_REQUEST, ...),
    (PING % b"[1]", 400, INVALID_REQUEST, ...),
    (PING % b'{"a": 1}', 400, INVALID_REQUEST, ...),
    (b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}', 400, INVALID_REQUEST, 7),
    (b'{"id": 7, "method": "ping"}', 400, INVALID_REQUEST, 7),
    (b'{"jsonrpc": 2.0, "id": 7, "method": "ping"}', 400, INVALID_REQUEST, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "method": 5}', 400, INVALID_REQUEST, 7),
    (b'{"jsonrpc": "2.0", "id": 7}', 400, INVALID_REQUEST, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "result": {}}', 400, INVALID_REQUEST, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": [[]]}', 400, INVALID_PARAMS, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": 5}', 400, INVALID_PARAMS, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "method": "%s"}' % (b"x" * 10_000), 200, METHOD_NOT_FOUND, 7),
    (b'{"jsonrpc": "2.0", "id": 7, "method": ""}', 200, METHOD_NOT_FOUND, 7),
]
# Raw body and the id that comes back.
SERVED: list[tuple[bytes, Any]] = [
    (PING % b"0", 0),
    (PING % b'""', ""),
    (PING % b'"1"', "1"),
    (PING % b"1.0", 1),
    (PING % b"-1", -1),
    (PING % BIG, 2**63),
    (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "x", "method": "ping"}', 2),
    (b'{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": null}', 3),
    (b'{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": []}', 3),
    (b'{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": {"_meta": []}}', 3),
    (b'{"jsonrpc": "2.0", "id": 4, "method": "ping", "params": {"_meta": null}, "x": 1}', 4),
    (b'\r\n\t {"jsonrpc": "2.0", "id": "\\u0000\xe2\x80\xa8", "method": "ping"}\n', "\x00\u2028"),
]


@spec("RPC-1", "RPC-9", "RPC-11", "RPC-12", "RPC-13", "ERR-3")
@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_no_message_is_told_so(version, mount):
    peer = await opened(mount, version=version)
    for raw, status, code, request_id in REFUSED:
        answer = await peer.send(raw)
        assert answer.status == status, (raw[:80], answer.body)
        response = answer.json()
        assert response["error"]["code"] == code, (raw[:80], answer.body)
        assert response.get("id", ...) == request_id, raw[:80]
        assert len(answer.body) < 500
    assert await peer.result("ping") == {}


@spec("RPC-2", "RPC-12")
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_odd_request_is_a_request(version, mount):
    peer = await opened(mount, version=version)
    for raw, request_id in SERVED:
        answer = await peer.send(raw)
        assert answer.status == 200, raw
        response = answer.json()
        assert response == {"jsonrpc": "2.0", "id": request_id, "result": {}}
        assert type(response["id"]) is type(request_id)


@spec("RPC-9", "HTTP-8")
async def test_a_body_over_the_limit_is_not_read(mount, settings):
    settings.MCP_DJANGO = {"MAX_BODY_BYTES": 1000}
    peer = await opened(mount)
    body = PING % b"1"
    assert (await peer.send(body + b" " * (1000 - len(body)))).json()["result"] == {}
    answer = await peer.send(body + b" " * (1001 - len(body)))
    assert answer.status == 413
    assert "id" not in answer.json()


def _as_members() -> tuple[bytes, list[tuple[Any, Any]]]:
    """Return an array of all bodies that can be members, and the expected entries of the answer."""
    raws, expected = [], []
    for raw, _, code, request_id in REFUSED:
        if code != PARSE_ERROR and b"xxxx" not in raw:
            raws.append(raw)
            expected.append((NO_ID if request_id is ... else request_id, code))
    for raw, request_id in SERVED:
        raws.append(raw)
        expected.append((request_id, None))
    return b"[" + b",".join(raws) + b"]", expected


def _sorted(entries: list[tuple[Any, Any]]) -> list[str]:
    return sorted(json.dumps(response) for response in entries)


@spec("BAT-1", "BAT-4", "BAT-7", "RPC-2", "RPC-11", "RPC-12")
async def test_each_member_of_a_batch_is_judged_alone(mount):
    peer = await opened(mount, version=B)
    raw, expected = _as_members()
    answer = await peer.send(raw)
    assert answer.status == 200, answer.body
    entries = answer.json()
    # The error for an unreadable member has no id here either, not the null of base JSON-RPC.
    outcomes = [
        (response.get("id", NO_ID), response.get("error", {}).get("code")) for response in entries
    ]
    assert _sorted(outcomes) == _sorted(expected)
    assert all(response["result"] == {} for response in entries if "error" not in response)
    assert await peer.result("ping") == {}


@spec("RPC-11", "ERR-3", "HTTP-4")
@pytest.mark.parametrize("mount", ["raw", "lane", "consumer"], indirect=True)
async def test_a_server_that_is_busy_repeats_the_id_of_a_request_alone(mount, monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Busy("All workers are busy.", data={"retryAfter": 1})

    peer = await opened(mount)
    monkeypatch.setattr(BoundedPool, "begin", refuse)
    broken = b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}'
    # The id of a response is an id of the server.
    response = b'{"jsonrpc": "2.0", "id": 7, "result": {}}'
    for raw, request_id in ((PING % b"7", 7), (broken, 7), (response, NO_ID), (b"{", NO_ID)):
        answer = await peer.send(raw)
        assert answer.status == 503
        assert answer.json().get("id", NO_ID) == request_id


@spec("RPC-11", "ERR-3")
async def test_a_bug_of_the_site_repeats_the_id(mount, monkeypatch):
    def stumble(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError

    peer = await opened(mount)
    monkeypatch.setattr(http, "admit_caller", stumble)
    broken = b'{"jsonrpc": "1.0", "id": 7, "method": "ping"}'
    for raw, request_id in ((PING % b"7", 7), (broken, 7), (b"{", NO_ID)):
        answer = await peer.send(raw)
        assert answer.status == 500
        assert answer.json().get("id", NO_ID) == request_id


@spec("BAT-7", "RPC-9")
async def test_a_batch_that_cannot_be_parsed_is_refused_as_one(mount):
    peer: Peer = await opened(mount, version=B)
    ping = PING % b"1"
    for raw in (b"[%s" % ping, b"[%s,]" % ping, b"[%s,%s]" % (ping, DEEP), b"[%s]\xff" % ping):
        answer = await peer.send(raw)
        assert answer.status == 400
        assert answer.json()["error"]["code"] == PARSE_ERROR
        assert "id" not in answer.json()
    assert await peer.result("ping") == {}
