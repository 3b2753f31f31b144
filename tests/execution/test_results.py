"""What a tool may return, and the result that a client gets."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db.models import TextChoices
from django.test import override_settings
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from pydantic import BaseModel
from typing_extensions import TypedDict

from mcp_django import Annotations, Audio, EmbeddedResource, Image, ResourceLink, Text, ToolResult
from mcp_django.protocol.errors import INTERNAL_ERROR
from mcp_django.schema.vocabulary import LARGE_INTEGER
from mcp_django.test import ErrorResponse
from tests.kit.servers import call, open_to_all, real_client
from tests.spec import spec

LOGGED = "tool 'tool' failed because of a server error. The error was logged."


class Size(TextChoices):
    SMALL = "s", "Small"


class Row(TypedDict):
    name: str
    n: int


@dataclass
class Point:
    x: int
    y: Decimal


class Model(BaseModel):
    day: date
    tags: list[str] = []


def returning(value: Any) -> Callable[[], Any]:
    """A function without a declared result."""

    def give():
        return value

    return give


# Without a declared result --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (mark_safe("<b>safe</b>"), "<b>safe</b>"),
        (gettext_lazy("Yes"), "Yes"),
        (Size.SMALL, "s"),
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
        (Decimal("12.50"), "12.50"),
        (date(2026, 7, 28), "2026-07-28"),
        (datetime(2026, 7, 28, 12, tzinfo=UTC), "2026-07-28T12:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"ä": 1}, '{"ä":1}'),
        ([1, "a", None], '[1,"a",null]'),
        (["a", "b"], '["a","b"]'),
        ((), "[]"),
        ({1, 2}, "[1,2]"),
        (Point(x=1, y=Decimal("2.0")), '{"x":1,"y":"2.0"}'),
        (Model(day=date(2026, 1, 1)), '{"day":"2026-01-01","tags":[]}'),
    ],
)
def test_what_django_code_has_at_hand_becomes_text(value, text):
    assert call(returning(value)).raw["content"] == [{"type": "text", "text": text}]


@spec("TOOL-5")
def test_nothing_is_an_empty_list():
    result = call(returning(None))
    assert result.content == []
    assert result.structured is None
    assert not result.is_error


def numbers() -> Iterator[int]:
    yield 1
    yield 2


def words_and_picture() -> Iterator[str | Image]:
    yield "before"
    yield Image(b"x")


async def numbers_later() -> AsyncIterator[int]:
    yield 1
    yield 2


def test_generators_are_run_to_their_end():
    assert call(numbers).structured == [1, 2]
    assert json.loads(call(numbers_later).text) == [1, 2]
    assert [block["type"] for block in call(words_and_picture).content] == ["text", "image"]


@spec("TOOL-13", "UIX-4")
def test_content_blocks_have_the_shapes_of_the_schema():
    annotations = Annotations(
        audience=("user",), priority=0.5, last_modified=datetime(2026, 1, 2, tzinfo=UTC)
    )
    blocks = [
        "words",
        Text("more", annotations=annotations, meta={"com.example/a": 1}),
        Image(b"\x00", mime_type="image/gif"),
        Audio(b"\x01"),
        EmbeddedResource("shop://a", text="", mime_type="text/plain"),
        EmbeddedResource("shop://b", data=b""),
        ResourceLink("shop://c", "c", title="C", size=3),
    ]
    assert call(returning(blocks)).content == [
        {"type": "text", "text": "words"},
        {
            "type": "text",
            "text": "more",
            "annotations": {
                "audience": ["user"],
                "priority": 0.5,
                "lastModified": "2026-01-02T00:00:00Z",
            },
            "_meta": {"com.example/a": 1},
        },
        {"type": "image", "data": b64encode(b"\x00").decode(), "mimeType": "image/gif"},
        {"type": "audio", "data": b64encode(b"\x01").decode(), "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"uri": "shop://a", "mimeType": "text/plain", "text": ""},
        },
        {"type": "resource", "resource": {"uri": "shop://b", "blob": ""}},
        {"type": "resource_link", "uri": "shop://c", "name": "c", "title": "C", "size": 3},
    ]


@spec("TOOL-10", "ERR-5")
@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (b"abc", "Image, Audio or EmbeddedResource"),
        (float("nan"), "not valid in JSON"),
        ([float("inf")], "not valid in JSON"),
        (Decimal("NaN"), "not a finite number"),
        (Group(name="x"), "fields that the caller may see"),
        ([Group(name="x")], "fields that the caller may see"),
        (Group.objects.all(), ".values("),
        (Group.objects, ".values("),
        (object(), "dataclass"),
        ({"a": Image(b"x")}, "content blocks alone"),
        ({"a": "\ud800"}, "surrogates"),
    ],
)
def test_what_is_no_data_is_a_bug_that_the_log_explains(value, advice, caplog):
    result = call(returning(value))
    assert result.is_error
    assert result.text == LOGGED
    assert advice in caplog.text


def test_half_a_surrogate_pair_in_text_is_replaced():
    assert call(returning("a\ud800b")).text == "a?b"


@pytest.mark.parametrize(
    "value", [Text("x\ud800"), ToolResult("x", meta={"a": object()}), Text("x", meta={"a": 1j})]
)
def test_content_that_cannot_be_written_is_an_internal_error(value, caplog):
    with pytest.raises(ErrorResponse) as caught:
        call(returning(value))
    assert caught.value.code == INTERNAL_ERROR
    assert "tools/call cannot be encoded as JSON" in caplog.text


MB = 1_000_000


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("x" * 50 * MB, "the first 100000 of 50000000 characters"),
        ([{"n": n, "text": "x" * 10_000} for n in range(5000)], "the first 9 of 5000"),
    ],
    ids=["text", "rows"],
)
def test_a_result_of_50_mb_is_cut_with_a_note(value, note):
    result = call(returning(value))
    assert not result.is_error
    assert note in result.text
    assert len(result.text) < 101_000


# With a declared result -----------------------------------------------------------------------


def typed_dict() -> Row:
    return {"name": "ä", "n": 1}


def a_dataclass() -> Point:
    return Point(x=1, y=Decimal("2.50"))


def a_model() -> Model:
    return Model(day=date(2026, 1, 1), tags=["a"])


def rows() -> list[Row]:
    return [{"name": "a", "n": 1}]


def no_rows() -> list[Row]:
    return []


def no_members() -> dict[str, int]:
    return {}


def perhaps() -> Point | None:
    return None


def groups() -> list[dict[str, Any]]:
    return Group.objects.order_by("name").values("name")


def how_many() -> int:
    return 0


def is_open() -> bool:
    return False


def rate() -> float | None:
    return 0.5


def amount() -> Decimal:
    return Decimal("2.50")


def day() -> date:
    return date(2026, 1, 1)


def weight() -> Weight:
    return Weight.LIGHT


class Weight(Enum):
    LIGHT = "light"
    HEAVY = "heavy"


@spec("OUT-1", "OUT-2", "OUT-4")
@pytest.mark.parametrize(
    ("function", "schema", "value", "text"),
    [
        (how_many, LARGE_INTEGER, 0, "0"),
        (is_open, {"type": "boolean"}, False, "false"),
        (rate, {"anyOf": [{"type": "number"}, {"type": "null"}]}, 0.5, "0.5"),
        (amount, {"type": "string", "description": "Must be a decimal number."}, "2.50", "2.50"),
        (day, {"type": "string", "format": "date"}, "2026-01-01", "2026-01-01"),
        (weight, {"type": "string", "enum": ["light", "heavy"]}, "light", "light"),
    ],
)
@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25", "2026-07-28"])
def test_a_scalar_that_is_no_text_is_structured_content(function, schema, value, text, version):
    server = open_to_all()
    server.tool("tool")(function)
    client = real_client(server=server, protocol_version=version)
    (listed,) = client.list_tools()
    result = client.call_tool("tool")
    assert result.text == text
    if version == "2025-03-26":
        assert "outputSchema" not in listed
        assert "structuredContent" not in result.raw
    elif version == "2025-11-25":
        assert listed["outputSchema"]["properties"] == {"result": schema}
        assert result.raw["structuredContent"] == {"result": value}
    else:
        assert listed["outputSchema"] == schema
        assert result.raw["structuredContent"] == value


@spec("OUT-1", "OUT-2", "OUT-4")
@pytest.mark.parametrize(
    ("function", "value"),
    [
        (typed_dict, {"name": "ä", "n": 1}),
        (a_dataclass, {"x": 1, "y": "2.50"}),
        (a_model, {"day": "2026-01-01", "tags": ["a"]}),
        (rows, [{"name": "a", "n": 1}]),
        (no_rows, []),
        (no_members, {}),
        (perhaps, None),
    ],
)
def test_structured_content_and_text_say_the_same(function, value):
    result = call(function)
    assert "structuredContent" in result.raw
    assert result.structured == value
    assert json.loads(result.text) == value


@spec("OUT-4")
@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
def test_falsy_values_are_structured_content(value):
    server = open_to_all()
    server.tool("tool", output_schema={})(returning(value))
    result = real_client(server=server).call_tool("tool")
    assert "structuredContent" in result.raw
    assert result.structured == value
    assert json.loads(result.text) == value


@pytest.mark.django_db
def test_a_queryset_of_values_is_a_list():
    Group.objects.create(name="a")
    assert call(groups).structured == [{"name": "a"}]
    assert call(returning(Group.objects.values("name"))).text == '[{"name":"a"}]'
    assert call(returning(Group.objects.values_list("name", flat=True))).text == '["a"]'


def liar() -> list[int]:
    return ["secret"]


def lying_model() -> Point:
    return {"x": "secret"}


@spec("OUT-1", "OUT-9")
@pytest.mark.parametrize("function", [liar, lying_model])
def test_a_result_unlike_its_declaration_is_a_bug(function, caplog):
    result = call(function)
    assert result.is_error
    assert result.text == LOGGED
    assert result.structured is None
    assert "OutputMismatch" in caplog.text


@spec("OUT-1")
def test_a_result_unlike_its_written_schema_is_a_bug(caplog):
    pytest.importorskip("jsonschema")
    server = open_to_all()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server.tool("good", output_schema=schema)(lambda: {"n": 1})
    server.tool("bad", output_schema=schema)(lambda: {"n": "x"})
    server.tool("explicit", output_schema=schema)(lambda: ToolResult("x", structured={"n": "x"}))
    server.tool("absent", output_schema=schema)(lambda: ToolResult("x"))
    client = real_client(server=server)
    assert client.call_tool("good").structured == {"n": 1}
    for name in ("bad", "explicit", "absent"):
        result = client.call_tool(name, check=False)
        assert result.is_error
        assert "structuredContent" not in result.raw


# All of it ------------------------------------------------------------------------------------


@spec("OUT-2", "OUT-9")
def test_a_tool_result_says_all_of_it():
    result = call(
        returning(ToolResult("a", Image(b"x"), structured={"n": 1}, meta={"com.example/x": 1}))
    ).raw
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["structuredContent"] == {"n": 1}
    assert result["_meta"]["com.example/x"] == 1
    assert "isError" not in result
    failed = call(returning(ToolResult("no", is_error=True)))
    assert (failed.is_error, failed.text) == (True, "no")
    empty = call(returning(ToolResult(structured=Decimal("1.5"))))
    assert (empty.structured, empty.text) == ("1.5", '"1.5"')


def test_the_structured_part_of_a_tool_result_has_to_be_json():
    result = call(returning(ToolResult("x", structured=float("nan"))))
    assert (result.is_error, result.text) == (True, LOGGED)


# Size -----------------------------------------------------------------------------------------


LIMIT = 1000


def big_list() -> list[int]:
    return list(range(1000))


def big_object() -> dict[str, Any]:
    return {"title": "t", "few": [1], "rows": [{"n": n} for n in range(1000)]}


def big_text_within() -> dict[str, str]:
    return {"text": "x" * 5000}


@override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": LIMIT})
def test_a_list_is_cut_and_says_so():
    result = call(big_list)
    kept = len(result.structured)
    assert result.structured == list(range(kept))
    assert 100 < kept < 1000
    data, note = [block["text"] for block in result.content]
    assert json.loads(data) == result.structured
    assert len(data.encode()) <= LIMIT
    assert note == (
        f"[Cut: the first {kept} of 1000. Filter the request, or ask for the next part.]"
    )
    untyped = call(returning(list(range(1000))))
    assert [block["text"] for block in untyped.content] == [data, note]


@override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": LIMIT})
def test_the_longest_list_of_an_object_is_cut():
    result = call(big_object)
    kept = len(result.structured["rows"])
    assert result.structured == {**big_object(), "rows": big_object()["rows"][:kept]}
    assert 0 < kept < 1000
    assert result.content[1]["text"].startswith(f"rows: [Cut: the first {kept} of 1000.")


@override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": LIMIT})
def test_what_cannot_be_cut_asks_for_less():
    for function in (big_text_within, returning({"text": "x" * 5000}), returning(["x" * 5000])):
        result = call(function)
        assert result.is_error
        assert f"{LIMIT} are allowed" in result.text


@pytest.mark.parametrize("letter", ["x", "ä", "😀"])
def test_a_text_of_20_mb_is_cut_and_says_so(letter):
    size = 20_000_000 // len(letter.encode())
    result = call(returning(letter * size))
    kept = 100_000 // len(letter.encode())
    assert not result.is_error
    assert result.text == (
        letter * kept + f"\n\n[Cut: the first {kept} of {size} characters. "
        "Ask for less, or for one part at a time.]"
    )


@override_settings(MCP_DJANGO={"MAX_RESULT_BYTES": LIMIT})
def test_text_among_blocks_is_cut_and_bytes_are_not():
    text, image = call(returning(["x" * 5000, Image(b"x" * 5000)])).content
    assert "[Cut: the first 1000 of 5000 characters." in text["text"]
    assert len(image["data"]) > 5000
