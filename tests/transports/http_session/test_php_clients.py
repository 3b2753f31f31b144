r"""Clients in PHP, whose arrays are lists and objects alike: an empty object is sent as `[]`.

The messages are modeled on the sources of php-mcp/client, logiscape/mcp-sdk-php and the official
php-sdk, with `[]` wherever one of their releases wrote an empty array for an object. `json_encode`
writes slashes as `\\/`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.protocol.errors import INVALID_PARAMS
from mcp_django.test import MCPClient
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.http_session.asking import PARLOR, answer, asking, text
from tests.transports.http_session.handshakes import (
    VERSIONS,
    A,
    D,
    Peer,
    call,
    code_of,
    opened,
    request,
)


@pytest.fixture
def token(transactional_db):
    """The Authorization header of a user."""
    return f"Bearer {token_for(person('ada'))[1]}"


# Each conversation begins with `initialize`; the calls have no arguments.
CONVERSATIONS: dict[str, list[bytes]] = {
    "php-mcp/client": [
        (
            b'{"jsonrpc":"2.0","id":"mcp-req-1","method":"initialize","params":{"protocolVersion":'
            b'"2024-11-05","capabilities":{"sampling":{},"experimental":[]},"clientInfo":{"name":'
            b'"MyPHPClient","version":"1.0"}}}'
        ),
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":"mcp-req-2","method":"tools/list"}',
        (
            b'{"jsonrpc":"2.0","id":"mcp-req-3","method":"tools/call","params":{"name":'
            b'"count_groups","arguments":[]}}'
        ),
        (
            b'{"jsonrpc":"2.0","id":"mcp-req-4","method":"resources/read","params":{"uri":'
            b'"shop://about"}}'
        ),
    ],
    "logiscape/mcp-sdk-php": [
        (
            b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
            b'"capabilities":{"roots":[],"sampling":[],"elicitation":[]},"clientInfo":{"name":'
            b'"mcp-client","version":"1.0.0"}}}'
        ),
        b'{"jsonrpc":"2.0","method":"notifications\\/initialized","params":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools\\/list","params":[]}',
        (
            b'{"jsonrpc":"2.0","id":2,"method":"tools\\/call","params":{"name":"count_groups",'
            b'"arguments":[],"_meta":[]}}'
        ),
        (
            b'{"jsonrpc":"2.0","id":3,"method":"resources\\/read","params":{"uri":'
            b'"shop:\\/\\/about","_meta":[]}}'
        ),
    ],
    "modelcontextprotocol/php-sdk": [
        (
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
            b'"capabilities":[],"clientInfo":{"name":"PHP Client","version":"0.1.0"},"_meta":[]}}'
        ),
        b'{"jsonrpc":"2.0","method":"notifications\\/initialized","params":{"_meta":[]}}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools\\/list","params":[]}',
        (
            b'{"jsonrpc":"2.0","id":3,"method":"tools\\/call","params":{"name":"count_groups",'
            b'"arguments":[]}}'
        ),
        b'{"jsonrpc":"2.0","id":4,"method":"resources\\/read","params":{"uri":"shop:\\/\\/about"}}',
    ],
}


@spec("RPC-12", "VER-12")
@pytest.mark.parametrize("library", CONVERSATIONS)
async def test_a_conversation_of_a_php_client_is_served(library, mount, token):
    peer = Peer(mount, "/mcp", token=token)
    begin, initialized, *others = CONVERSATIONS[library]
    begun = await peer.send(begin)
    assert begun.status == 200, begun.body
    peer.headers["mcp_session_id"] = begun.headers["mcp-session-id"]
    assert (await peer.send(initialized)).status == 202
    listed, called, read = [(await peer.send(raw)).response() for raw in others]
    assert "count_groups" in {tool["name"] for tool in listed["result"]["tools"]}
    assert text(called) == "0"
    assert called["id"] == json.loads(others[1])["id"]
    contents = {"uri": "shop://about", "mimeType": "text/markdown", "text": "# Shop"}
    assert read["result"]["contents"] == [contents]


@spec("RPC-12", "RPC-15")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("empty", [[], None], ids=["array", "null"])
async def test_an_empty_array_and_null_are_an_empty_object(empty, version, mount, token):
    peer = await opened(mount, "/mcp", version=version, token=token)
    assert await peer.result("ping", empty) == {}
    given = await peer.result("tools/call", {"name": "count_groups", "arguments": empty})
    assert given["content"][0]["text"] == "0"
    prompt = {"name": "apologize", "arguments": empty, "_meta": empty}
    missing = await peer.send(request("prompts/get", prompt))
    assert "number" in missing.json()["error"]["message"]
    about = {"type": "ref/prompt", "name": "apologize"}
    for context in (empty, {"arguments": empty}):
        argument = {"name": "number", "value": "7"}
        params = {"ref": about, "argument": argument, "context": context}
        completed = await peer.result("completion/complete", params)
        assert completed["completion"]["values"][0] == "70"


@spec("VER-12")
@pytest.mark.parametrize("member", ["capabilities", "clientInfo"])
async def test_a_client_may_declare_nothing_as_null(member, mount):
    params: dict[str, Any] = {"protocolVersion": D, "capabilities": {}, "clientInfo": {}}
    for nothing in (None, []):
        answer = await Peer(mount).send(request("initialize", {**params, member: nothing}))
        assert answer.json()["result"]["protocolVersion"] == D


@spec("RPC-12")
@pytest.mark.parametrize("version", [A, D])
async def test_an_array_with_members_is_an_error_that_names_it(version, mount, token):
    peer = await opened(mount, "/mcp", version=version, token=token)
    named = {
        "params.arguments": ("tools/call", {"name": "count_groups", "arguments": [1]}),
        "params.arguments: ": ("prompts/get", {"name": "apologize", "arguments": ["x"]}),
    }
    for place, (method, params) in named.items():
        answer = await peer.send(request(method, params))
        assert code_of(answer) == INVALID_PARAMS
        assert answer.json()["error"]["message"].startswith(place)


@spec("ASK-4")
@pytest.mark.parametrize(
    ("declared", "tool", "result", "expected"),
    [
        ({"elicitation": []}, "consent", {"action": "accept", "content": []}, "accept"),
        ({"elicitation": {"form": []}}, "order", {"action": "accept", "content": []}, "2 small"),
        (
            {"sampling": {"tools": []}},
            "use_tools",
            {
                "role": "assistant",
                "model": "m",
                "stopReason": "toolUse",
                "content": [{"type": "tool_use", "id": "1", "name": "weather", "input": []}],
            },
            "weather",
        ),
    ],
)
async def test_a_php_client_is_asked_and_answers(declared, tool, result, expected, streaming):
    peer = Peer(streaming, PARLOR)
    await peer.open(**declared)
    async with asking(peer, call(tool)) as reader:
        await answer(peer, await reader.message(), result)
        (response,) = await reader.rest()
    assert expected in text(response)
    assert "isError" not in response["result"]


shelves = MCPServer("shelves", permission=AllowAny)


@shelves.tool(atomic=False)
async def sort_books(
    names: list[str],
    where: dict[str, str],
    rules: list[dict[str, int]],
    extra: dict[str, str] | None = None,
    either: dict[str, str] | list[str] | None = None,
) -> str:
    """Sort."""
    return repr((names, where, rules, extra, either))


def test_an_empty_array_is_read_as_an_argument_declares_it():
    given = {"names": [], "where": [], "rules": [[], {"a": 1}], "extra": [], "either": []}
    client = MCPClient(server=shelves, protocol_version=D)
    expected = ([], {}, [{}, {"a": 1}], {}, [])
    assert client.call_tool("sort_books", given).text == repr(expected)
    wrong = client.call_tool("sort_books", {**given, "where": ["x"]}, check=False)
    assert wrong.text.startswith("where: ")
    assert len(wrong.text.splitlines()) == 1
    strict = MCPClient(server=shelves).call_tool("sort_books", given, check=False)
    assert {line.partition(":")[0] for line in strict.text.splitlines()} == {
        "where",
        "rules[0]",
        "extra",
    }


@shelves.tool(
    input_schema={
        "type": "object",
        "properties": {
            "filter": {"anyOf": [{"type": "object"}, {"type": ["string", "null"]}]},
            "count": {"type": "integer"},
        },
    }
)
def filter_books(**given: Any) -> str:
    """Filter."""
    return repr(given)


def test_an_argument_of_several_types_keeps_its_array():
    client = MCPClient(server=shelves, protocol_version=D)
    result = client.call_tool("filter_books", {"filter": [], "count": "x"}, check=False)
    assert "count: must be an integer" in result.text


@spec("RPC-12", "VER-4")
async def test_the_newest_revision_takes_no_array_for_an_object():
    client = MCPClient(server=shelves)
    with pytest.raises(Exception, match=r"params\.arguments must be an object"):
        client.request("tools/call", {"name": "sort_books", "arguments": []})
