"""Content blocks and what holds them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mcp_django.protocol.content import (
    UNSET,
    Annotations,
    Audio,
    Block,
    EmbeddedResource,
    Icon,
    Image,
    Message,
    ResourceContents,
    ResourceLink,
    Text,
    ToolResult,
)
from tests.spec import spec

NOTE = Annotations(priority=1)
META = {"com.example/a": 1}


@spec("TOOL-13")
def test_text_is_written_as_a_text_block():
    assert Text("hi").to_wire() == {"type": "text", "text": "hi"}


@spec("TOOL-13")
@pytest.mark.parametrize(
    ("block", "type_", "mime_type"),
    [(Image(b"\x00\xff"), "image", "image/png"), (Audio(b"\x00\xff"), "audio", "audio/wav")],
)
def test_binary_content_is_written_in_base64(block, type_, mime_type):
    assert block.to_wire() == {"type": type_, "data": "AP8=", "mimeType": mime_type}
    assert dataclasses.replace(block, mime_type="x/y").to_wire()["mimeType"] == "x/y"


@spec("TOOL-13", "RSC-3")
def test_an_embedded_resource_is_text_or_a_blob():
    assert EmbeddedResource("shop://x", text="").to_wire() == {
        "type": "resource",
        "resource": {"uri": "shop://x", "text": ""},
    }
    assert EmbeddedResource("shop://x", data=b"", mime_type="a/b").to_wire() == {
        "type": "resource",
        "resource": {"uri": "shop://x", "mimeType": "a/b", "blob": ""},
    }


@pytest.mark.parametrize("wrong", [{}, {"text": "x", "data": b"x"}])
def test_an_embedded_resource_with_both_or_neither_is_refused(wrong):
    with pytest.raises(ValueError, match="either text or data"):
        EmbeddedResource("shop://x", **wrong)


@spec("TOOL-13")
def test_a_link_writes_what_is_set():
    assert ResourceLink("shop://x", "x").to_wire() == {
        "type": "resource_link",
        "uri": "shop://x",
        "name": "x",
    }
    assert ResourceLink(
        "shop://x",
        "x",
        title="X",
        description="An x.",
        mime_type="text/plain",
        size=0,
        icons=(Icon("/x.png"),),
        annotations=NOTE,
        meta=META,
    ).to_wire() == {
        "type": "resource_link",
        "uri": "shop://x",
        "name": "x",
        "title": "X",
        "description": "An x.",
        "mimeType": "text/plain",
        "size": 0,
        "icons": [{"src": "/x.png"}],
        "annotations": {"priority": 1},
        "_meta": META,
    }


BLOCKS: list[Block] = [
    Text("x", annotations=NOTE, meta=META),
    Image(b"x", annotations=NOTE, meta=META),
    Audio(b"x", annotations=NOTE, meta=META),
    EmbeddedResource("shop://x", text="x", annotations=NOTE, meta=META),
]


@spec("UIX-4", "MET-6")
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_carries_annotations_and_meta(block):
    wire = block.to_wire()
    assert wire["annotations"] == {"priority": 1}
    assert wire["_meta"] == META
    bare = dataclasses.replace(block, annotations=Annotations(), meta={}).to_wire()
    assert not {"annotations", "_meta"} & {*bare}


def test_what_is_written_can_be_changed_without_changing_the_value():
    block = Text("x", meta=META)
    block.to_wire()["_meta"]["more"] = 1
    assert block.to_wire()["_meta"] == META == {"com.example/a": 1}


@spec("MET-1", "MET-2")
@pytest.mark.parametrize(
    "make",
    [
        lambda meta: Text("x", meta=meta),
        lambda meta: Image(b"x", meta=meta),
        lambda meta: Audio(b"x", meta=meta),
        lambda meta: EmbeddedResource("shop://x", text="x", meta=meta),
        lambda meta: ResourceLink("shop://x", "x", meta=meta),
        lambda meta: ResourceContents("x", meta=meta),
        lambda meta: ToolResult(meta=meta),
    ],
)
def test_a_reserved_meta_key_is_refused_where_it_is_set(make):
    with pytest.raises(ValueError, match="reserved"):
        make({"io.modelcontextprotocol/x": 1})


@spec("RSC-6")
@pytest.mark.parametrize(
    "make",
    [
        lambda uri: EmbeddedResource(uri, text="x"),
        lambda uri: ResourceLink(uri, "x"),
        lambda uri: ResourceContents("x", uri=uri),
    ],
)
def test_a_uri_that_is_none_is_refused_where_it_is_set(make):
    with pytest.raises(ValueError, match="not a URI"):
        make("no uri")


@pytest.mark.parametrize(
    "make",
    [
        Image,
        Audio,
        ResourceContents,
        lambda data: EmbeddedResource("shop://x", data=data),
    ],
)
def test_binary_content_of_another_type_is_refused(make):
    with pytest.raises(TypeError, match="not int"):
        make(5)


@spec("PRM-2")
def test_a_message_holds_one_block_and_a_role():
    assert Message("hi").to_wire() == {"role": "user", "content": {"type": "text", "text": "hi"}}
    assert Message(Image(b""), role="assistant").to_wire() == {
        "role": "assistant",
        "content": {"type": "image", "data": "", "mimeType": "image/png"},
    }
    wrong: Any = "system"
    with pytest.raises(ValueError, match="'user' or 'assistant'"):
        Message("hi", role=wrong)


@spec("RSC-2", "RSC-3", "RSC-5")
def test_contents_take_what_they_lack_from_the_resource():
    assert ResourceContents("").to_wire("shop://x") == {"uri": "shop://x", "text": ""}
    assert ResourceContents(b"\xff").to_wire("shop://x", "a/b") == {
        "uri": "shop://x",
        "mimeType": "a/b",
        "blob": "/w==",
    }
    own = ResourceContents("t", uri="shop://y", mime_type="text/plain", meta=META)
    assert own.to_wire("shop://x", "a/b") == {
        "uri": "shop://y",
        "mimeType": "text/plain",
        "text": "t",
        "_meta": META,
    }


@spec("TOOL-5")
def test_a_tool_result_always_has_content():
    assert ToolResult().to_wire() == {"content": []}
    assert ToolResult("a", Image(b"")).to_wire() == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "", "mimeType": "image/png"},
        ]
    }
    assert ToolResult("a", is_error=True, meta=META).to_wire() == {
        "content": [{"type": "text", "text": "a"}],
        "isError": True,
        "_meta": META,
    }


@spec("OUT-4")
@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_a_falsy_structured_value_is_a_value(value):
    result = ToolResult(structured=value)
    assert result.to_wire() == {"content": [], "structuredContent": value}
    assert ToolResult().structured is UNSET


def test_values_are_frozen():
    for value in (Text("x"), ToolResult("x"), ResourceContents("x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.meta = {}
    assert ToolResult("x") == ToolResult("x")
