"""Malicious arguments, on every mount: the answer is an in-band error, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django import forms

from tests.kit.drivers import Answer, message
from tests.spec import spec
from tests.transports.mounts import ask
from tests.transports.stage import stage

PATH = "/stage/mcp"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "more": {}}}
TOOLS = ("by_form", "by_schema", "by_signature")


class NameForm(forms.Form):
    """One field."""

    name = forms.CharField()


def by_form(form: NameForm) -> str:
    """Take a name through a form."""
    return f"hello {form.cleaned_data['name']}"


def by_schema(name: str, more: Any = None, is_admin: bool = False) -> str:
    """Take a name through a schema, which leaves a parameter of the function out."""
    return f"hello {name}{', chief' * is_admin}"


def by_signature(name: str) -> str:
    """Take a name as it is declared."""
    return f"hello {name}"


def takes_all(**kwargs: Any) -> dict[str, Any]:
    """Take whatever comes."""
    return kwargs


@pytest.fixture(autouse=True)
def _tools():
    stage.tool(form=NameForm)(by_form)
    stage.tool(input_schema=SCHEMA)(by_schema)
    stage.tool(by_signature)
    stage.tool(input_schema=SCHEMA)(takes_all)
    yield
    for function in (by_form, by_schema, by_signature, takes_all):
        stage.unregister(function)


async def call(mount: str, tool: str, arguments: bytes) -> Answer:
    """Call a tool with raw arguments, such as no encoder would write."""
    body = json.dumps(message("tools/call", {"name": tool, "arguments": 0})).encode()
    raw = body.replace(b'"arguments": 0', b'"arguments": ' + arguments)
    changes = {"mcp_method": "tools/call", "mcp_name": tool}
    return await ask(mount, PATH, raw, **changes)


async def refused(mount: str, tool: str, arguments: bytes) -> str:
    """Return the text of a refusal, which has to be short and leave the server running."""
    answer = await call(mount, tool, arguments)
    assert answer.status == 200, answer.body
    assert answer.json()["result"]["isError"] is True
    assert len(answer.body) < 10_000
    assert await text_of_call(mount, tool, b'{"name": "ada"}') == "hello ada"
    (block,) = answer.json()["result"]["content"]
    text: str = block["text"]
    return text


async def text_of_call(mount: str, tool: str, arguments: bytes) -> str:
    answer = await call(mount, tool, arguments)
    text: str = answer.json()["result"]["content"][0]["text"]
    return text


@spec("TOOL-9")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("depth", [64, 900])
async def test_deep_nesting_is_refused(depth, tool, mount):
    for opening, end in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = opening * depth + b"1" + end * depth
        text = await refused(mount, tool, b'{"name": ' + nested + b"}")
        assert text == "the arguments are nested deeper than 64 levels"


async def test_nesting_that_no_decoder_follows_is_no_message(mount):
    nested = b"[" * 100_000 + b"]" * 100_000
    for tool in TOOLS:
        answer = await call(mount, tool, b'{"name": ' + nested + b"}")
        assert answer.status == 400
        assert "nested too deep" in answer.json()["error"]["message"]
        assert await text_of_call(mount, tool, b'{"name": "ada"}') == "hello ada"


@spec("TOOL-9")
@pytest.mark.parametrize("tool", TOOLS)
async def test_very_many_unknown_names_are_refused_in_few_words(tool, mount):
    names = b",".join(b'"k%d":1' % n for n in range(300_000))
    text = await refused(mount, tool, b'{"name":"ada",' + names + b"}")
    assert "known: name" in text


@spec("TOOL-9")
async def test_what_the_function_keeps_to_itself_is_refused(mount):
    text = await refused(mount, "by_schema", b'{"name": "ada", "is_admin": true}')
    assert text == 'unknown argument "is_admin"; known: name, more'


async def test_who_takes_any_name_gets_it(mount):
    answer = await call(mount, "takes_all", b'{"name": "ada", "is_admin": true}')
    assert json.loads(answer.json()["result"]["content"][0]["text"]) == {
        "name": "ada",
        "is_admin": True,
    }


@spec("TOOL-9")
@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 5000, b"[1e400]"])
async def test_a_number_that_is_none_any_more_is_refused(number, mount):
    text = await refused(mount, "by_schema", b'{"name": "ada", "more": ' + number + b"}")
    assert "a number is too large" in text
