"""One server with everything that 2026-07-28 defines, as a client of each revision sees it.

The tables of docs/ref/protocol.md and of the specification list the members of each revision. Here
each member is listed with the revisions that have it, and no other member may be present.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from mcp_django import (
    Annotations,
    Audio,
    Context,
    EmbeddedResource,
    Icon,
    Image,
    MCPServer,
    Message,
    ResourceContents,
    ResourceLink,
    Text,
    ToolResult,
)
from mcp_django.auth.permissions import AllowAny
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.schema.vocabulary import LARGE_INTEGER
from mcp_django.test import MCPClient
from tests.spec import spec
from tests.transports.http_session.handshakes import A, B, C, D

E = "2026-07-28"
EVERY = [A, B, C, D, E]
SINCE_B, SINCE_C, SINCE_D = EVERY[1:], EVERY[2:], EVERY[3:]

META = {"x.test/a": 1}
SOUND = b"RIFF"
WHEN = "2026-01-02T03:04:05Z"
NOTES = Annotations(audience=("user",), priority=0.5, last_modified=WHEN)
ICON = Icon("https://x.test/i.png", mime_type="image/png", sizes=("48x48",), theme="dark")
RICH: dict[str, Any] = {"title": "Title", "icons": [ICON], "meta": META}
LINK = ResourceLink(
    "rich://fixed",
    "fixed",
    title="Link",
    description="Where it is.",
    mime_type="text/plain",
    size=4,
    icons=(ICON,),
    annotations=NOTES,
    meta=META,
)
BLOCKS = (
    Text("text", annotations=NOTES, meta=META),
    Image(b"png", mime_type="image/png", annotations=NOTES, meta=META),
    Audio(SOUND, annotations=NOTES, meta=META),
    EmbeddedResource("rich://fixed", text="in", mime_type="text/plain", annotations=NOTES),
    LINK,
)

rich = MCPServer(
    "rich",
    permission=AllowAny,
    title="Server",
    description="Says all.",
    website_url="https://x.test/",
    icons=[ICON],
    instructions="Look.",
)


@rich.tool(read_only=True, open_world=False, description="All blocks.", **RICH)
def blocks() -> ToolResult:
    return ToolResult(*BLOCKS, structured={"a": [None, 1.5]}, meta=META)


@rich.tool(output_schema={"type": "array", "items": {"type": "integer"}})
def numbers() -> Any:
    """A list, which is structured content of the newest revision alone."""
    return [1, 2]


@rich.tool
def value(ctx: Context, name: str) -> ToolResult:
    """Any value as structured content."""
    return ToolResult("said", structured=VALUES[name])


VALUES: dict[str, Any] = {"null": None, "zero": 0, "text": "", "list": [], "object": {}}

RESOURCE: dict[str, Any] = {**RICH, "mime_type": "text/plain", "annotations": NOTES}


@rich.resource("rich://fixed", size=4, description="Fixed.", cache_public=True, **RESOURCE)
def fixed() -> list[ResourceContents]:
    return [ResourceContents("text", meta=META), ResourceContents(b"blob", mime_type="x/y")]


@rich.resource("rich://made/{name}", description="Made.", **RESOURCE)
def made(name: str) -> str:
    return name


@rich.prompt(description="All blocks.", **RICH)
def say(word: str = "x") -> list[Message]:
    return [Message(block, role="assistant") for block in BLOCKS]


@rich.completion(say, "word")
def words(value: str) -> list[str]:
    return ["x"]


def client(version: str) -> MCPClient:
    return MCPClient(server=rich, protocol_version=version)


Members = dict[str, list[str]]
"""The revisions that have each member."""


def has(version: str, document: dict[str, Any], members: Members) -> None:
    """Assert that a document has exactly the members that its revision has."""
    assert {*document} == {name for name, revisions in members.items() if version in revisions}


DESCRIBED: Members = {
    "name": EVERY,
    "description": EVERY,
    "title": SINCE_C,
    "_meta": SINCE_C,
    "icons": SINCE_D,
}
HINTS: Members = {"audience": EVERY, "priority": EVERY, "lastModified": SINCE_C}
NEWEST: Members = {name: [E] for name in ("resultType", "ttlMs", "cacheScope", "_meta")}

pytestmark = pytest.mark.parametrize("version", EVERY)


@spec("VER-14", "VER-17", "UIX-1", "UIX-3", "TOOL-16", "MET-6", "CCH-6", "RPC-7")
def test_a_listed_tool(version):
    result = client(version).request("tools/list")
    has(version, result, {"tools": EVERY, **NEWEST})
    tool = next(tool for tool in result["tools"] if tool["name"] == "blocks")
    members = {"inputSchema": EVERY, "annotations": SINCE_B}
    has(version, tool, {**DESCRIBED, **members})
    if version == A:
        return
    # B has a title only in the annotations, and no revision has hints that are not set.
    expected = {"title": "Title", "readOnlyHint": True, "openWorldHint": False}
    assert tool["annotations"] == expected
    assert "execution" not in tool


@spec("OUT-3", "OUT-5", "OUT-6", "VER-17")
def test_schemas(version):
    tools = {tool["name"]: tool for tool in client(version).list_tools()}
    array = {"type": "array", "items": LARGE_INTEGER}
    wrapped = {"type": "object", "properties": {"result": array}, "required": ["result"]}
    output_schema = tools["numbers"].get("outputSchema")
    expected = {A: None, B: None, C: wrapped, D: wrapped, E: array}[version]
    assert (
        output_schema and {k: v for k, v in output_schema.items() if k != "$schema"}
    ) == expected
    for tool in tools.values():
        assert tool["inputSchema"]["type"] == "object"
        # A keyword of the root that no handshake revision mentions, and none forbids.
        assert tool["inputSchema"]["additionalProperties"] is False
        for schema in (tool["inputSchema"], tool.get("outputSchema") or {}):
            assert "$schema" not in schema or version in SINCE_D


@spec("OUT-3", "OUT-5", "OUT-4", "VER-17")
def test_structured_content(version):
    mine = client(version)
    for name, value in VALUES.items():
        result = mine.request("tools/call", {"name": "value", "arguments": {"name": name}})
        wrapped = value if isinstance(value, dict) else {"result": value}
        expected = {A: None, B: None, C: wrapped, D: wrapped, E: value}[version]
        assert ("structuredContent" in result) is (version in SINCE_C)
        assert result.get("structuredContent") == expected
    listed = mine.request("tools/call", {"name": "numbers", "arguments": {}})
    expected = {A: None, B: None, C: {"result": [1, 2]}, D: {"result": [1, 2]}, E: [1, 2]}[version]
    assert listed.get("structuredContent") == expected


def assert_blocks(version: str, blocks: list[dict[str, Any]]) -> None:
    text, image, audio, embedded, link = blocks
    meta = {"_meta": SINCE_C}
    has(version, text, {"type": EVERY, "text": EVERY, "annotations": EVERY, **meta})
    data = {"type": EVERY, "data": EVERY, "mimeType": EVERY, "annotations": EVERY, **meta}
    has(version, image, data)
    for block in blocks:
        has(version, block["annotations"], HINTS)
    has(version, embedded, {"type": EVERY, "resource": EVERY, "annotations": EVERY})
    assert embedded["resource"] == {"uri": "rich://fixed", "mimeType": "text/plain", "text": "in"}
    _assert_audio(version, audio, data)
    _assert_link(version, link)


def _assert_audio(version: str, audio: dict[str, Any], data: Members) -> None:
    sound = b64encode(SOUND).decode()
    if version != A:
        assert (audio["type"], audio["data"], audio["mimeType"]) == ("audio", sound, "audio/wav")
        has(version, audio, data)
        return
    assert audio["type"] == "resource"
    has(version, audio, {"type": EVERY, "resource": EVERY, "annotations": EVERY})
    assert (audio["resource"]["mimeType"], audio["resource"]["blob"]) == ("audio/wav", sound)


def _assert_link(version: str, link: dict[str, Any]) -> None:
    if version in (A, B):
        assert link == {
            "type": "text",
            "text": "Link: rich://fixed",
            "annotations": {"audience": ["user"], "priority": 0.5},
        }
        return
    own = dict.fromkeys(("type", "uri", "mimeType", "size", "annotations"), EVERY)
    has(version, link, {**DESCRIBED, **own})


@spec("TOOL-14", "MET-6", "UIX-4", "VER-17")
def test_blocks_of_a_tool(version):
    raw = client(version).request("tools/call", {"name": "blocks", "arguments": {}})
    structured: Members = {"structuredContent": SINCE_C}
    has(version, raw, {"content": EVERY, "_meta": EVERY, "resultType": [E], **structured})
    assert raw["_meta"]["x.test/a"] == 1
    assert ("io.modelcontextprotocol/serverInfo" in raw["_meta"]) is (version == E)
    assert_blocks(version, raw["content"])


@spec("PRM-5", "PRM-1", "MET-6", "VER-17")
def test_prompts_and_their_messages(version):
    mine = client(version)
    listed = mine.request("prompts/list")
    has(version, listed, {"prompts": EVERY, **NEWEST})
    has(version, listed["prompts"][0], {**DESCRIBED, "arguments": EVERY})
    got = mine.request("prompts/get", {"name": "say"})
    has(version, got, {"messages": EVERY, "description": EVERY, "resultType": [E], "_meta": [E]})
    assert {message["role"] for message in got["messages"]} == {"assistant"}
    assert_blocks(version, [message["content"] for message in got["messages"]])


@spec("CCH-6", "CCH-1", "MET-6", "UIX-1", "VER-17")
def test_resources_and_their_contents(version):
    mine = client(version)
    own = {"mimeType": EVERY, "annotations": EVERY}
    lists = {"resources": ("uri", "size"), "resourceTemplates": ("uriTemplate",)}
    for method, (member, names) in zip(
        ("resources/list", "resources/templates/list"), lists.items(), strict=True
    ):
        result = mine.request(method)
        has(version, result, {member: EVERY, **NEWEST})
        (listed,) = result[member]
        has(version, listed, {**DESCRIBED, **own, **dict.fromkeys(names, EVERY)})
        has(version, listed["annotations"], HINTS)
    read = mine.request("resources/read", {"uri": "rich://fixed"})
    has(version, read, {"contents": EVERY, **NEWEST})
    text, blob = read["contents"]
    has(version, text, {"uri": EVERY, "mimeType": EVERY, "text": EVERY, "_meta": SINCE_C})
    assert blob == {"uri": "rich://fixed", "mimeType": "x/y", "blob": b64encode(b"blob").decode()}


@spec("VER-14", "VER-17", "EXT-4", "CCH-6", "CMP-1")
def test_what_a_server_says_of_itself(version):
    mine = client(version)
    offered: Members = dict.fromkeys(("tools", "prompts", "resources", "logging"), EVERY)
    known: Members = {"name": EVERY, "version": EVERY, "title": SINCE_C}
    known |= dict.fromkeys(("description", "icons", "websiteUrl"), SINCE_D)
    if version == E:
        result = mine.discover()
        own = {"supportedVersions": [E], "capabilities": [E], "instructions": [E]}
        has(version, result, {**own, **NEWEST})
        has(version, result["_meta"]["io.modelcontextprotocol/serverInfo"], known)
    else:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        result = mine._client.send(message)["result"]
        assert {*result} == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
        has(version, result["serverInfo"], known)
    # A revision gets no capability that it does not define, and none gets extensions or tasks.
    has(version, result["capabilities"], {**offered, "completions": SINCE_B})


@spec("RPC-7", "CCH-6")
def test_empty_results_and_completions(version):
    mine = client(version)
    ref = {"ref": {"type": "ref/prompt", "name": "say"}}
    done = mine.request("completion/complete", {**ref, "argument": {"name": "word", "value": ""}})
    has(version, done, {"completion": EVERY, "resultType": [E], "_meta": [E]})
    if REVISIONS[version].stateless:
        return
    assert mine.request("ping") == {}
    assert mine.request("logging/setLevel", {"level": "info"}) == {}
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert mine.request(method, {"uri": "rich://fixed"}) == {}
