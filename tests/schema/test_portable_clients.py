"""Published schemas can be read by the validators of clients, and describe what was changed.

`tests/interop/test_schemas_clients.py` shows the same with the clients themselves.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum, IntFlag
from fractions import Fraction
from typing import Annotated, Any, Literal

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import (
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    Base64UrlBytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    NaiveDatetime,
    PastDate,
    SecretStr,
    WithJsonSchema,
    field_serializer,
)

from mcp_django.protocol.headers import MAX_SAFE_INTEGER
from mcp_django.schema.arguments import Header, OutputMismatch
from mcp_django.schema.compiled import JSONSchemaArguments, JSONSchemaOutput
from mcp_django.schema.output import output_adapter
from mcp_django.schema.portable import portable_input, portable_output, readable_by_clients
from mcp_django.schema.rewriting import RULES
from mcp_django.schema.signature import SignatureArguments
from mcp_django.schema.vocabulary import DIGITS, LARGE_INTEGER, SchemaSource

LARGE = 725653563933458432
TEXT = {"type": "string"}


def written(annotation: Any, value: Any) -> Any:
    adapter = output_adapter(annotation)
    assert adapter is not None
    return adapter.dump(value)


def shown(annotation: Any) -> dict[str, Any]:
    adapter = output_adapter(annotation)
    assert adapter is not None
    return adapter.json_schema


def arguments_of(function: Callable[..., Any]) -> SignatureArguments:
    return SignatureArguments(function)


# --- schemas by hand


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"properties": {"a": True}}, {"properties": {"a": {}}}),
        ({"properties": {"a": False}}, {"properties": {"a": {"not": {}}}}),
        ({"properties": {"items": True}}, {"properties": {"items": {}}}),
        ({"additionalProperties": True, "items": False},) * 2,
        ({"nullable": True}, {}),
        ({"type": "string", "nullable": False}, TEXT),
        (
            {"type": "string", "nullable": True, "description": "d"},
            {"type": ["string", "null"], "description": "d"},
        ),
        (
            {"enum": ["a"], "nullable": True},
            {"enum": ["a", None]},
        ),
        (
            {"allOf": [{"$ref": "#/$defs/A"}], "nullable": True, "$defs": {"A": TEXT}},
            {"anyOf": [{"allOf": [{"$ref": "#/$defs/A"}], "$defs": {"A": TEXT}}, {"type": "null"}]},
        ),
        ({"type": "number", "multipleOf": 2, "minimum": 0, "maximum": 9},) * 2,
        ({"type": "string", "pattern": r"a\-b"}, {"type": "string", "pattern": "a-b"}),
        ({"type": "string", "pattern": r"^\d$"}, {"type": "string", "pattern": "^[0-9]$"}),
        ({"type": "string", "pattern": r"\p{L}"}, TEXT),
        ({"$id": "https://example.org/a", "id": "b", **TEXT}, TEXT),
        (
            {"prefixItems": [TEXT, {"type": "boolean"}], "items": False},
            {"items": {"anyOf": [TEXT, {"type": "boolean"}]}, "maxItems": 2},
        ),
        (
            {"items": [TEXT], "additionalItems": {"type": "boolean"}},
            {"items": {"anyOf": [TEXT, {"type": "boolean"}]}},
        ),
        ({"items": [TEXT]}, {"items": {}}),
        ({"type": ["integer", "null"], "minimum": 0, "maximum": 9},) * 2,
        ({"properties": {"a": "no schema"}},) * 2,
        (
            {
                "properties": {"a": {"$ref": "#/properties/b"}, "b": {"items": False}},
                "$defs": {"Name": {"$anchor": "name"}},
            },
            {"properties": {"a": {"items": False}, "b": {"items": False}}},
        ),
        (
            {"type": "array", "items": {"$ref": "#"}, "contains": True},
            {
                "type": "array",
                "items": {"$ref": "#/$defs/Root"},
                "contains": {},
                "$defs": {
                    "Root": {"type": "array", "items": {"$ref": "#/$defs/Root"}, "contains": {}}
                },
            },
        ),
        ({"contains": TEXT, "minContains": 0, "type": "array"}, {"type": "array"}),
        ({"contains": TEXT, "type": "array"},) * 2,
        (
            {"type": "string", "format": "uuid"},
            {**TEXT, "description": "Must be a value of the format uuid."},
        ),
        ({"const": {"a": 1}}, {"description": 'Must be {"a": 1}.'}),
        ({"enum": [[1], "a"]}, {"description": 'Must be [1] or "a".'}),
        ({"type": "integer"}, LARGE_INTEGER),
        ({"type": "integer", "minimum": 0, "maximum": 9},) * 2,
        (
            {"type": ["integer", "null"]},
            {"type": ["integer", "null", "string"], "pattern": DIGITS["pattern"]},
        ),
        ({"type": ["integer", "string"]},) * 2,
        (
            {"enum": [LARGE, "a"]},
            {"type": "string", "enum": [str(LARGE), "a"]},
        ),
        ({"patternProperties": {r"^x\-": TEXT}}, {"patternProperties": {"^x-": TEXT}}),
        (
            {"patternProperties": {r"\pL": TEXT}, "additionalProperties": False},
            {"patternProperties": {}},
        ),
        # A subschema that accepts more inside of these would make the whole accept less.
        ({"not": {"type": "integer"}}, {}),
        ({"not": TEXT},) * 2,
        ({"oneOf": [{"type": "integer"}, TEXT]}, {"anyOf": [LARGE_INTEGER, TEXT]}),
        ({"if": {"type": "integer"}, "then": TEXT, "else": {}}, {}),
        ({"contains": {"type": "integer"}, "maxContains": 1}, {"contains": LARGE_INTEGER}),
        ({"$defs": {"A": {"$anchor": "a", **TEXT}}},) * 2,
        (
            {
                "oneOf": [{"$ref": "#/$defs/Id"}, {"type": "string"}],
                "$defs": {"Id": {"type": "integer"}},
            },
            {
                "anyOf": [{"$ref": "#/$defs/Id"}, {"type": "string"}],
                "$defs": {"Id": LARGE_INTEGER},
            },
        ),
        (
            {"allOf": [{"if": {"type": "integer"}}], "unevaluatedProperties": False},
            {"allOf": [{}]},
        ),
        ({"const": LARGE}, {"type": "string", "enum": [str(LARGE)]}),
        # References by name, which the validators of clients resolve differently.
        (
            {"$defs": {"A": {"$anchor": "a", **TEXT}}, "properties": {"b": {"$ref": "#a"}}},
            {"$defs": {"A": TEXT}, "properties": {"b": {"$ref": "#/$defs/A"}}},
        ),
        (
            {"type": "object", "properties": {"a": {"$recursiveRef": "#"}}},
            {"type": "object", "properties": {"a": {"$ref": "#"}}},
        ),
        (
            {"properties": {"a": {"$ref": "#/properties/b"}, "b": TEXT}},
            {"properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"type": "array", "items": {"$ref": "#"}},
            {
                "type": "array",
                "items": {"$ref": "#/$defs/Root"},
                "$defs": {"Root": {"type": "array", "items": {"$ref": "#/$defs/Root"}}},
            },
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"A": TEXT},
                "properties": {"a": {"$ref": "#/definitions/A", "type": "boolean"}},
            },
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"A": TEXT},
                "properties": {"a": {"$ref": "#/definitions/A"}},
            },
        ),
    ],
)
def test_a_schema_by_hand_is_changed_only_where_clients_do_not_read_it(before, after):
    published = readable_by_clients(before, is_input=False)
    assert published == after
    assert bool(published.changes) == (before != after)


def test_arguments_by_hand_keep_what_only_results_lose():
    schema = {
        "type": "object",
        "properties": {
            "price": {"type": "number", "multipleOf": 0.01},
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "code": {"type": "string", "pattern": r"^\d+$"},
            "kind": {"enum": [[1], {}]},
            "named": {"$ref": "#name"},
        },
        "$defs": {"Name": {"$anchor": "name", **TEXT}},
    }
    assert readable_by_clients(schema, is_input=True) == schema


@pytest.mark.parametrize("value", [None, "a"])
def test_nullable_is_what_its_author_means(engine, value):
    member = {"type": "string", "nullable": True}
    schema = {"type": "object", "properties": {"a": member}, "required": ["a"]}
    assert JSONSchemaOutput(schema).dump({"a": value}) == {"a": value}
    raw = b'{"a": null}' if value is None else b'{"a": "a"}'
    assert JSONSchemaArguments(schema).parse(raw) == {"a": value}


def test_a_result_is_checked_by_the_schema_that_is_published(engine):
    output = JSONSchemaOutput({"type": "number", "multipleOf": 0.01})
    assert output.dump(19.99) == 19.99
    assert output.dump(LARGE) == str(LARGE)
    with pytest.raises(OutputMismatch, match="must be a number"):
        output.dump("a")


def test_a_change_names_its_place_and_the_clients_that_need_it():
    published = readable_by_clients(
        {"type": "object", "properties": {"code": {"type": "string", "pattern": r"a\-b"}}},
        is_input=False,
    )
    (change,) = published.changes
    assert str(change) == (
        r"properties/code: the pattern 'a\\-b' is written as 'a-b' "
        "(for TypeScript SDK 1.32 and 2.4, Ajv 8 with the flag u)"
    )


def test_a_pattern_that_cannot_be_written_is_named_and_described():
    published = portable_input({"type": "object", "properties": {"a": {**TEXT, "pattern": "a++"}}})
    assert published["properties"]["a"] == {**TEXT, "description": "Pattern: a++"}
    assert "left out, because ECMA-262 has no possessive ++" in str(published.changes[0])


def test_every_rule_for_a_client_says_what_it_changed():
    for rule in RULES:
        assert bool(rule.says) == bool(rule.clients), rule.rewrite


# --- integers


@pytest.mark.parametrize("value", [MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1, LARGE, 2**70])
def test_integers_that_javascript_rounds_are_digits(value):
    assert written(int, value) == str(value)
    assert written(list[int], [1, value]) == [1, str(value)]
    assert written(dict[str, Any], {"a": [{"b": value}]}) == {"a": [{"b": str(value)}]}
    assert written(int | None, value) == str(value)


@pytest.mark.parametrize("value", [MAX_SAFE_INTEGER, -MAX_SAFE_INTEGER, 0, True])
def test_other_integers_are_numbers(value):
    assert written(int | bool, value) is value


def test_integers_within_their_bounds_have_no_digits():
    assert shown(Annotated[int, Field(ge=0, le=9)]) == {
        "type": "integer",
        "minimum": 0,
        "maximum": 9,
    }
    assert shown(Annotated[int, Field(ge=0)]) == {
        "anyOf": [{"type": "integer", "minimum": 0}, DIGITS]
    }


def test_columns_have_digits_only_where_their_bounds_say_so():
    assert portable_output({"type": "integer"}, SchemaSource.COLUMNS) == {"type": "integer"}
    bounds = {"minimum": 0, "maximum": 2**63 - 1}
    for published in (
        portable_output({"type": "integer", **bounds}, SchemaSource.COLUMNS),
        portable_input({"type": "object", "properties": {"a": {"type": "integer", **bounds}}})[
            "properties"
        ]["a"],
    ):
        assert published == {"anyOf": [{"type": "integer", "minimum": 0}, DIGITS]}


class Serial(IntEnum):
    """A choice beyond 2^53."""

    FIRST = LARGE


def test_choices_that_javascript_rounds_are_digits_in_both_directions():
    assert written(Serial, Serial.FIRST) == str(LARGE)
    assert shown(Serial)["enum"] == [str(LARGE)]

    def find(serial: Literal[725653563933458432, 1]) -> None: ...

    arguments = arguments_of(find)
    assert arguments.parse(b'{"serial": "725653563933458432"}') == {"serial": LARGE}
    assert arguments.parse(b'{"serial": 725653563933458432}') == {"serial": LARGE}
    assert arguments.parse(b'{"serial": 1}') == {"serial": 1}


def test_choices_within_a_list_are_read_from_digits_too():
    def find(serials: list[Literal[725653563933458432, 1]] | None) -> None: ...

    arguments = arguments_of(find)
    assert arguments.parse(b'{"serials": ["725653563933458432", 1]}') == {"serials": [LARGE, 1]}
    assert arguments.parse(b'{"serials": null}') == {"serials": None}
    items = arguments.json_schema["properties"]["serials"]["anyOf"][0]["items"]
    assert items == {
        "anyOf": [
            {"type": "string", "enum": [str(LARGE)]},
            {"type": "integer", "enum": [1]},
        ]
    }


class Permissions(IntFlag):
    """Values that are combined."""

    READ = 1
    WRITE = 2


def test_flags_together_are_a_result():
    assert "enum" not in shown(Permissions)
    assert written(Permissions, Permissions.READ | Permissions.WRITE) == 3


def test_an_integer_in_a_header_publishes_its_bounds():
    def find(tenant: Annotated[int, Header("Tenant")]) -> None: ...

    published = arguments_of(find).json_schema["properties"]["tenant"]
    assert (published["minimum"], published["maximum"]) == (-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    assert published["type"] == "integer"


# --- values of types


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (HttpUrl, HttpUrl("https://example.org/ä"), "https://example.org/%C3%A4"),
        (AnyUrl, AnyUrl("ftp://example.org/a"), "ftp://example.org/a"),
        (HttpUrl | None, None, None),
        (Fraction, Fraction(1, 3), "1/3"),
        (AwareDatetime, dt.datetime(2026, 3, 1, tzinfo=dt.UTC), "2026-03-01T00:00:00Z"),
        (NaiveDatetime, dt.datetime.fromisoformat("2026-03-01"), "2026-03-01T00:00:00"),
        (PastDate, dt.date(2020, 3, 1), "2020-03-01"),
        (dt.time, dt.time(9, 30), "09:30:00"),
        (dt.timedelta, dt.timedelta(seconds=-0.5), "-PT0.5S"),
        (Annotated[float, Field(multiple_of=0.01)], 19.99, 19.99),
        (list[Annotated[str, Field(pattern="(?i)^a")]], ["A"], ["A"]),
        (list[Annotated[str, Field(pattern=r"^\d+$")]], ["٣"], ["٣"]),
        (list[Annotated[str, Field(pattern=re.compile("^a$", re.IGNORECASE))]], ["A"], ["A"]),
    ],
)
def test_a_result_is_written_as_pydantic_writes_it(annotation, value, text):
    assert written(annotation, value) == text


def test_flags_of_a_compiled_pattern_are_published_with_it():
    def find(
        code: Annotated[str, Field(pattern=re.compile("^a.b$", re.IGNORECASE | re.DOTALL))],
        plain: Annotated[str, Field(pattern=re.compile("^a$"))],
    ) -> None: ...

    properties = arguments_of(find).json_schema["properties"]
    assert properties["code"]["pattern"] == r"^[Aa](?:[^\n]|\n)[Bb]$"
    assert properties["plain"]["pattern"] == "^a$"


@pytest.mark.parametrize("annotation", [dt.datetime, NaiveDatetime, dt.time, dt.timedelta, HttpUrl])
def test_a_result_has_no_format_that_its_values_may_lack(annotation):
    assert "format" not in shown(annotation)
    assert shown(annotation)["description"]


@pytest.mark.parametrize(
    ("annotation", "format_name"), [(AwareDatetime, "date-time"), (dt.date, "date")]
)
def test_a_result_has_the_format_that_all_its_values_have(annotation, format_name):
    assert shown(annotation)["format"] == format_name


def test_a_secret_is_no_result():
    with pytest.raises(ImproperlyConfigured, match="written as asterisks"):
        output_adapter(SecretStr)


def test_base64_is_decoded_once():
    def store(picture: Base64Bytes, pages: list[Base64UrlBytes] | None = None) -> None: ...

    arguments = arguments_of(store)
    assert arguments.json_schema["properties"]["picture"] == {
        "type": "string",
        "contentEncoding": "base64",
    }
    given = arguments.parse(b'{"picture": "aGk=", "pages": ["-_8="]}')
    assert given == {"picture": b"hi", "pages": [b"\xfb\xff"]}


def test_base64_of_two_kinds_is_refused():
    def store(picture: Base64Bytes, page: bytes) -> None: ...

    with pytest.raises(ImproperlyConfigured, match="both bytes and Base64Bytes"):
        arguments_of(store)


@dataclasses.dataclass
class Picture:
    """A dataclass whose bytes encode themselves."""

    data: Base64Bytes


class Stamp(BaseModel):
    """A model whose serializer says nothing of its type."""

    price: Decimal
    data: Base64Bytes
    count: int

    @field_serializer("count")
    def write_count(self, value):
        return f"{value} pieces"


def test_base64_is_encoded_once():
    assert written(Picture, Picture(b"hi")) == {"data": "aGk="}
    stamp = Stamp(price="1.50", data="aGk=", count=2)
    assert written(Stamp, stamp) == {"price": "1.50", "data": "aGk=", "count": "2 pieces"}


def test_a_serializer_without_a_type_may_write_anything():
    assert shown(Stamp)["properties"]["count"] == {}


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[dt.date, Field(ge=dt.date(2020, 1, 1))], "at least 2020-01-01"),
        (Annotated[dt.timedelta, Field(lt=dt.timedelta(days=2))], "less than 2 days"),
        (Annotated[dt.time, Field(le=dt.time(9))], "at most 09:00:00"),
        (PastDate, "in the past"),
        (Annotated[Decimal, Field(gt=0)], "greater than 0"),
    ],
)
def test_bounds_without_a_keyword_are_in_words(hint, words):
    def book(when: Any) -> None: ...

    book.__annotations__["when"] = hint
    assert words in arguments_of(book).json_schema["properties"]["when"]["description"]


# --- keywords that pydantic does not see to


class Parcel(BaseModel):
    """A model with a keyword of its author."""

    code: str = Field(json_schema_extra={"maxLength": 3})
    state: Annotated[str, WithJsonSchema({"enum": ["sent", "lost"]})] = "sent"


class Flag(BaseModel):
    """A model whose author says of text that it is a boolean."""

    code: Annotated[str, WithJsonSchema({"type": "boolean"})] = "x"


class Lacking(BaseModel):
    """A model whose author requires a member that it does not have."""

    model_config = ConfigDict(json_schema_extra={"required": ["missing"]})

    code: str = "x"


@pytest.mark.parametrize("value", [Flag(), Lacking()])
def test_a_result_is_checked_by_keywords_that_are_no_bounds(engine, value):
    with pytest.raises(OutputMismatch):
        written(type(value), value)


def test_a_result_that_its_own_schema_rejects_is_not_sent(engine):
    assert written(Parcel, Parcel(code="abc")) == {"code": "abc", "state": "sent"}
    for parcel in (Parcel(code="abcd"), Parcel(code="a", state="here")):
        with pytest.raises(OutputMismatch):
            written(Parcel, parcel)


@dataclasses.dataclass
class Choice:
    """A dataclass whose constructor checks nothing."""

    state: Literal["sent", "lost"]
    sent: AwareDatetime | None = None


class Count(BaseModel):
    """A model that can be changed after it was validated."""

    number: Annotated[int, Field(ge=0)] = 0


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Choice, Choice("here")),
        (Choice, Choice("sent", dt.datetime.fromisoformat("2026-03-01"))),
        (Count, Count.model_construct(number=-5)),
        (list[Count], [Count.model_construct(number=-5)]),
    ],
)
def test_a_result_that_was_never_validated_is_not_sent(engine, annotation, value):
    with pytest.raises(OutputMismatch):
        written(annotation, value)


def test_rules_of_text_beside_integers_leave_large_ones_numbers(engine):
    output = JSONSchemaOutput({"type": ["integer", "string"], "maxLength": 3})
    assert output.dump(LARGE) == LARGE
    assert output.dump("abc") == "abc"


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"type": "object", "nullable": True}, {}),
        (
            {
                "type": "object",
                "properties": {
                    "a": {"type": "object", "nullable": True, "properties": {"b": TEXT}},
                    "c": {"$ref": "#/properties/a/properties/b"},
                },
            },
            {"a": None, "c": "x"},
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "$ref": "#/definitions/A",
                "definitions": {"A": {"type": "object"}},
            },
            {},
        ),
    ],
)
def test_unusual_arguments_by_hand_are_registered(engine, schema, arguments):
    source = JSONSchemaArguments(schema)
    assert source.parse(json.dumps(arguments).encode()) == arguments


def test_huge_bounds_are_no_error():
    def find(number: Annotated[int, Field(le=10**400)]) -> None: ...

    assert arguments_of(find).parse(b'{"number": 1}') == {"number": 1}
    assert JSONSchemaOutput({"type": "integer", "multipleOf": 10**400}).dump(0) == 0
