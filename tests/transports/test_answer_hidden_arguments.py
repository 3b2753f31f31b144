"""Callers are authorized before arguments are read, whatever a call of a hidden tool carries.

A call of a hidden tool is answered like a call of a tool that does not exist. What the server
answers about arguments, headers, tasks, questions or approvals must not reveal the tool to callers
who may not see it.
"""

from __future__ import annotations

import json

import pytest
from django.test import override_settings

from tests.kit.drivers import Answer, headers_for
from tests.kit.servers import person, token_for
from tests.transports.asgi import application, plain
from tests.transports.caller import REVISIONS, Caller
from tests.transports.hidden_site import ABSENT, HIDDEN, SERVERS

pytestmark = pytest.mark.django_db(transaction=True)


def nested(depth: int) -> str:
    """Return nested empty lists as JSON."""
    return "[" * depth + "]" * depth


# Members of `params` as JSON, some as no encoder would write them.
WRONG = {
    "good": '"arguments": {"a": 1}',
    "none": '"x": 1',
    "empty": '"arguments": {}',
    "null": '"arguments": null',
    "list": '"arguments": []',
    "text": '"arguments": "a"',
    "number": '"arguments": 5',
    "wrong type": '"arguments": {"a": "x"}',
    "unknown": '"arguments": {"a": 1, "b": 2}',
}
MALFORMED = {
    "twice": '"arguments": {"a": 1, "a": "x"}',
    "lone surrogate": r'"arguments": {"a": "\ud800"}',
    "infinite": '"arguments": {"a": 1e999}',
    "long": f'"arguments": {{"a": "{"x" * 12_000}"}}',
    "many": f'"arguments": {json.dumps({f"a{number}": number for number in range(300)})}',
    "deep": f'"arguments": {{"a": {nested(400)}}}',
    "too deep": f'"arguments": {{"a": {nested(10_000)}}}',
}
OTHERS = {
    "task": '"task": {}',
    "task that is a number": '"task": 5',
    "task of an odd length": '"task": {"ttl": "soon"}',
    "responses": '"inputResponses": {"who": {"action": "accept", "content": {"value": "x"}}}',
    "responses that are a number": '"inputResponses": 5',
    "response that is a number": '"inputResponses": {"who": 5}',
    "response to nothing": '"inputResponses": {"": {"action": "nonsense"}}',
    "state": '"requestState": "forged"',
    "state that is a number": '"requestState": 5',
    "state and responses": '"requestState": "", "inputResponses": {"who": {}}',
}
GROUPS = {"wrong": WRONG, "malformed": MALFORMED, "others": OTHERS}
# Bodies that are not a message, so the server never reads the tool's name.
UNREADABLE = {"lone surrogate", "infinite", "too deep"}
READABLE = {
    name: params for name, params in {**WRONG, **MALFORMED}.items() if name not in UNREADABLE
}


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.transports.hidden_site"


class Prober:
    """A caller that calls tools with arbitrary parameters."""

    def __init__(self, mount: str, server: str, version: str, authorization: str | None) -> None:
        apps = {"raw": SERVERS[server].asgi, "lane": application, "view": plain}
        self._caller = Caller(apps[mount], f"/{server}/mcp", version, authorization=authorization)

    async def open(self) -> None:
        """Open a session if there is one, and check that the caller is authorized."""
        await self._caller.open()
        assert await self._caller.texts("visible", a=1) == ["1"]

    async def probe(self, tool: str, params: str) -> tuple[int, dict[str, str], str]:
        """Call a tool with these parameters; return the whole answer without the tool's name."""
        answer = await self._send(tool, params)
        return answer.status, answer.headers, answer.body.decode().replace(tool, "NAME")

    async def _send(self, tool: str, params: str) -> Answer:
        message = self._caller.message("tools/call", {"name": tool})
        body = json.dumps(message).replace(f'"{tool}"', f'"{tool}", {params}')
        if not self._caller.is_stateless:
            return await self._caller.post(body.encode())
        changes = headers_for(message)
        return await self._caller.post(
            body.encode(), **{name.replace("-", "_"): value for name, value in changes.items()}
        )


@pytest.fixture(params=["raw", "lane", "view"])
def mount(request):
    """The mounts that serve a call in different ways."""
    return str(request.param)


@pytest.fixture(params=["anonymous", "member"])
def place(request):
    """The server that a caller uses, and the caller's Authorization header."""
    if request.param == "anonymous":
        return "public", None
    return "members", f"Bearer {token_for(person())[1]}"


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("version", REVISIONS)
async def test_a_hidden_tool_is_answered_like_an_absent_one(mount, place, version, group):
    server, authorization = place
    prober = Prober(mount, server, version, authorization)
    await prober.open()
    for name, params in GROUPS[group].items():
        expected = await prober.probe(ABSENT, params)
        for tool in HIDDEN:
            assert await prober.probe(tool, params) == expected, (name, tool)


@pytest.mark.parametrize("version", REVISIONS)
async def test_an_absent_tool_reads_no_arguments(mount, version):
    prober = Prober(mount, "public", version, None)
    await prober.open()
    expected = await prober.probe(ABSENT, WRONG["good"])
    assert "No tool named" in expected[-1]
    for name, params in READABLE.items():
        assert await prober.probe(ABSENT, params) == expected, name


@pytest.mark.parametrize("version", REVISIONS)
async def test_a_tool_that_needs_credentials_asks_for_them_first(mount, version):
    """An anonymous caller who may sign in gets a challenge and nothing else."""
    prober = Prober(mount, "inviting", version, None)
    await prober.open()
    for tool in HIDDEN:
        expected = await prober.probe(tool, WRONG["good"])
        assert expected[0] == 401
        for name, params in READABLE.items():
            assert await prober.probe(tool, params) == expected, (name, tool)


@pytest.mark.parametrize("version", REVISIONS)
async def test_a_body_that_is_too_large_is_refused_before_anything(mount, place, version):
    server, authorization = place
    prober = Prober(mount, server, version, authorization)
    await prober.open()
    with override_settings(MCP_DJANGO={"MAX_BODY_BYTES": 10_000}):
        expected = await prober.probe(ABSENT, MALFORMED["long"])
        assert expected[0] == 413
        for tool in HIDDEN:
            assert await prober.probe(tool, MALFORMED["long"]) == expected
