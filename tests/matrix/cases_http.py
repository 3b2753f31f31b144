"""Requests that are rejected because of their bytes or headers, and requests of browsers."""

from __future__ import annotations

import json
from typing import Any

from tests.matrix.cases import HTTP, NEW, OLD, STREAMING, Case, call

FEW = ("anonymous", "member")
# Deeper than any version of Python decodes, and below the site's limit of a body.
DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 19_000
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
LIST: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "prompts/list"}
ADD: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 3,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": 1}},
}
NOTE: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}
BATCHES = ("2025-03-26",)


def _raw(body: Any, **options: Any) -> Case:
    given: dict[str, Any] = {"callers": FEW}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(raw=raw, **(given | options))


def _named(name: str, **arguments: Any) -> dict[str, Any]:
    return {**ADD, "id": name, "params": {"name": name, "arguments": arguments}}


BODIES = {
    "not JSON": _raw(b"{"),
    "empty": _raw(b"", mounts=HTTP),
    "text": _raw(b"hello"),
    "number": _raw(b"5"),
    "null": _raw(b"null"),
    "byte order mark": _raw(b"\xef\xbb\xbf" + json.dumps(PING).encode()),
    "params is an empty list": _raw({**PING, "params": []}),
    "not UTF-8": _raw(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}'),
    "UTF-16": _raw(json.dumps(PING).encode("utf-16"), mounts=HTTP),
    "too deep": _raw(DEEP),
    "NaN": _raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}'),
    "no jsonrpc": _raw({"id": 1, "method": "ping"}),
    "jsonrpc 1.0": _raw({**PING, "jsonrpc": "1.0"}),
    "jsonrpc is a number": _raw({**PING, "jsonrpc": 2.0}),
    "id is null": _raw({**PING, "id": None}),
    "id is a fraction": _raw({**PING, "id": 1.5}),
    "id is a list": _raw({**PING, "id": []}),
    "method is a number": _raw({**PING, "method": 5}),
    "no method": _raw({"jsonrpc": "2.0", "id": 1}),
    "request and response": _raw({**PING, "result": {}}),
    "trailing garbage": _raw(json.dumps(PING).encode() + b"x"),
    "no envelope": _raw(LIST, revisions=NEW),
    "no envelope, call": _raw(ADD, revisions=NEW),
    "body too large": _raw(b" " * 20_001, mounts=HTTP),
    "empty batch": _raw([]),
    "batch": _raw([PING, LIST, ADD]),
    "batch of calls": _raw(
        [_named("add", a=1), _named("add_sync", a=2), _named("absent")], revisions=BATCHES
    ),
    "batch with a hidden tool": _raw([_named("hidden"), _named("add", a=2)], revisions=BATCHES),
    "batch with a limited tool": _raw(
        [_named("rated"), {**_named("rated"), "id": 4}], revisions=BATCHES
    ),
    "batch with progress": _raw(
        [
            PING,
            {
                **_named("walk", steps=1),
                "params": {
                    "name": "walk",
                    "arguments": {"steps": 1},
                    "_meta": {"progressToken": "p"},
                },
            },
        ],
        revisions=BATCHES,
    ),
    "batch with an invalid member": _raw([PING, {"jsonrpc": "1.0"}]),
    "batch with an id twice": _raw([PING, PING], revisions=BATCHES),
    "batch of notifications": _raw([NOTE, NOTE]),
    "batch with initialize": _raw([{**PING, "method": "initialize"}], revisions=BATCHES),
    "batch in a batch": _raw([[PING]]),
}


def _sent(**headers: str | None) -> Case:
    """Return a request for a list with other headers; `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Case(method="prompts/list", callers=FEW, headers=named)


def _called(**headers: str | None) -> Case:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return call("add", a=1, case={"callers": FEW, "headers": named})


PREFLIGHT = {
    "origin": "https://page.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "mcp-param-region, x-other",
    "content-type": None,
}

HEADERS = {
    # Every HTTP request of Django's test client has a Host.
    "no host": Case(method="prompts/list", callers=FEW, headers={"host": None}, mounts=STREAMING),
    "foreign host": _sent(host="evil.example"),
    "host with a port": _sent(host="testserver:8000"),
    "origin of an allowed page": _called(origin="https://page.example"),
    "origin of an allowed page, bug": call(
        "fail",
        kind="bug",
        case={"callers": FEW, "headers": {"origin": "https://page.example"}},
    ),
    "origin of an allowed page, absent method": Case(
        method="absent", callers=FEW, headers={"origin": "https://page.example"}
    ),
    "origin of an allowed page, stranger": call(
        "add", a=1, case={"callers": ("stranger",), "headers": {"origin": "https://page.example"}}
    ),
    "origin of the site": _sent(origin="http://testserver"),
    "foreign origin": _sent(origin="https://evil.example"),
    "origin null": _sent(origin="null"),
    "no content type": _sent(content_type=None),
    "content type with a charset": _sent(content_type="application/json; charset=utf-8"),
    "content type text": _sent(content_type="text/plain"),
    "content encoding": _sent(content_encoding="gzip"),
    "content encoding identity": _sent(content_encoding="identity"),
    "content type of a form": _sent(content_type="application/x-www-form-urlencoded"),
    "accept documents": _called(accept="application/json"),
    "accept streams": _called(accept="text/event-stream"),
    "accept everything": _called(accept="*/*"),
    "accept nothing said": _called(accept=None),
    "accept HTML": _called(accept="text/html"),
    "accept without quality": _called(accept="application/json;q=0, text/event-stream;q=0"),
    "Mcp-Method missing": _called(mcp_method=None),
    "Mcp-Method differs": _called(mcp_method="tools/list"),
    "Mcp-Name missing": _called(mcp_name=None),
    "Mcp-Name differs": _called(mcp_name="absent"),
    "Mcp-Name in Base64": _called(mcp_name="=?base64?YWRk?="),
    "Mcp-Name in bad Base64": _called(mcp_name="=?base64?*?="),
    "MCP-Protocol-Version missing": _called(mcp_protocol_version=None),
    "MCP-Protocol-Version of another revision": _called(mcp_protocol_version="2025-06-18"),
    "MCP-Protocol-Version of the draft": _called(mcp_protocol_version="DRAFT-2026-v1"),
    "MCP-Protocol-Version unknown": _called(mcp_protocol_version="1.0"),
    "MCP-Protocol-Version twice": _called(mcp_protocol_version="2025-06-18, 2025-06-18"),
    "MCP-Protocol-Version with two values": _called(mcp_protocol_version="2025-06-18, 2025-03-26"),
    "unsupported version": Case(
        method="tools/list",
        callers=FEW,
        meta={"io.modelcontextprotocol/protocolVersion": "1.0"},
        headers={"mcp-protocol-version": "1.0"},
        revisions=NEW,
    ),
    "unsupported version, discover": Case(
        method="server/discover",
        callers=FEW,
        meta={"io.modelcontextprotocol/protocolVersion": "1.0"},
        headers={"mcp-protocol-version": "1.0"},
        revisions=NEW,
    ),
    "version of a session in an envelope": Case(
        method="tools/list",
        callers=FEW,
        meta={"io.modelcontextprotocol/protocolVersion": "2025-06-18"},
        headers={"mcp-protocol-version": "2025-06-18"},
        revisions=NEW,
    ),
    "no capabilities": Case(
        method="prompts/list",
        callers=FEW,
        meta={"io.modelcontextprotocol/clientCapabilities": None},
        revisions=NEW,
    ),
    "trace of the client": call(
        "add",
        a=1,
        case={
            "callers": FEW,
            "meta": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        },
    ),
    "preflight": Case(verb="OPTIONS", callers=("anonymous",), headers=PREFLIGHT),
    "preflight of a foreign page": Case(
        verb="OPTIONS",
        callers=("anonymous",),
        headers={**PREFLIGHT, "origin": "https://evil.example"},
    ),
    "OPTIONS": Case(verb="OPTIONS", callers=("anonymous",), headers={"content-type": None}),
    "health": Case(verb="GET", suffix="/health", callers=FEW, has_session=False),
    "health, HEAD": Case(verb="HEAD", suffix="/health", callers=("anonymous",), has_session=False),
    "health, POST": Case(method="ping", suffix="/health", callers=("anonymous",), mounts=HTTP),
    "health, disabled": Case(
        verb="GET",
        suffix="/health",
        callers=("anonymous",),
        has_session=False,
        settings={"HEALTH": False},
    ),
    "slash at the end": Case(method="prompts/list", suffix="/", callers=FEW, mounts=HTTP),
    "HTTP+SSE": Case(
        verb="GET",
        suffix="/sse",
        callers=("anonymous", "stranger"),
        headers={"accept": "text/event-stream"},
        has_session=False,
        leaves=True,
    ),
    "HTTP+SSE, post without session": Case(
        method="ping", suffix="/messages", callers=FEW, has_session=False, mounts=HTTP
    ),
    "no envelope, session revision in the header": Case(
        raw=json.dumps(LIST).encode(),
        callers=FEW,
        headers={"mcp-protocol-version": "2025-06-18", "mcp-session-id": None},
        revisions=OLD,
    ),
}
