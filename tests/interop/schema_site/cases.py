r"""The tools of the site: what each is called with, and the value that every client must see.

A tool is an entry of one table, by its name; `CASES` has them all. Values are JSON as clients read
it: integers that JavaScript would round are digits in text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Address
from typing import Annotated, Any, Literal, NamedTuple, NotRequired
from uuid import UUID
from zoneinfo import ZoneInfo

from annotated_types import Ge, Gt, Le
from pydantic import (
    UUID4,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    Base64UrlBytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    JsonValue,
    NaiveDatetime,
    PastDate,
    PostgresDsn,
    RootModel,
    StringConstraints,
    computed_field,
)

# pydantic does not accept that of `typing` before Python 3.12.
from typing_extensions import TypedDict

BIG = 725653563933458432
DIGITS = str(BIG)
LIMIT = 2**53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a tool is called with and answers.

    `is_wrapped` says whether revisions that allow only objects wrap the value, which is so unless
    it is an object; `is_text` is for results without structured content.
    """

    arguments: Mapping[str, Any]
    value: Any
    is_wrapped: bool
    is_text: bool = False


# Patterns ---------------------------------------------------------------------------------------

# The pattern of a text that a tool takes and returns in a list, and the text. A pattern that is
# compiled is matched by Python, the others by pydantic's engine, which is that of Rust.
PATTERNS: Mapping[str, tuple[str | re.Pattern[str], str]] = {
    "plain": (r"^[A-Z]{2}\d{4}$", "AB1234"),
    "flag_at_the_start": (r"(?i)^[a-z]+$", "ABC"),
    "flag_for_a_group": (r"^(?i:ab)c$", "ABc"),
    "flag_verbose": (r"(?x)^ a+ \d $ # letters and a digit", "aa1"),
    "flag_dot_all": (r"(?s)^a.b$", "a\nb"),
    "flag_multiline": (r"(?m)^b$", "a\nb"),
    "flag_of_a_compiled_pattern": (re.compile(r"^[a-z]+$", re.IGNORECASE), "ABC"),
    "verbose_compiled": (re.compile(r"^ [a-z]+ $  # letters", re.VERBOSE), "abc"),
    "escaped_hyphen": (r"^\d+\-\d+$", "1-2"),
    "escaped_hyphen_in_a_class": (r"^[a-z\-]+$", "a-b"),
    "escaped_punctuation": (r"^a\'b\"c\ d\@e\:f\#g\~h$", "a'b\"c d@e:f#g~h"),
    "escaped_underscore": (re.compile(r"^a\_b$"), "a_b"),
    "python_end": (re.compile(r"\A[a-z]+\Z"), "abc"),
    "rust_end": (r"\A[a-z]+\z", "abc"),
    "named_group": (r"^(?P<year>\d{4})-\d\d$", "2026-03"),
    "named_reference": (re.compile(r"^(?P<quote>['/]).*(?P=quote)$"), "/a/"),
    "numbered_reference": (re.compile(r"^(['/]).*\1$"), "/a/"),
    "possessive": (re.compile(r"^a++b$"), "aab"),
    "atomic": (re.compile(r"^(?>a+)b$"), "aab"),
    "conditional": (re.compile(r"^(<)?a(?(1)>|!)$"), "<a>"),
    "comment": (re.compile(r"^a(?#letter)\d$"), "a1"),
    "lookbehind": (re.compile(r"(?<=a)b$"), "ab"),
    "lookbehind_negative": (re.compile(r"(?<!a)b$"), "cb"),
    "lookahead": (re.compile(r"^(?=.*\d)(?!.*x)\w+$"), "ab1"),
    "digits_of_other_scripts": (r"^\d+$", "٣٤"),
    "letters_of_other_languages": (r"^\w+$", "straße"),
    "words_of_other_languages": (re.compile(r"\bé"), "é"),
    "spaces_of_other_scripts": (re.compile(r"^a\x1cb\s$"), "a\x1cb\x1f"),
    "no_other_scripts": (re.compile(r"(?a)^\w+$"), "abc"),
    "unicode_property": (r"^\p{L}+$", "é"),
    "unicode_property_short": (r"^\pL+$", "é"),
    "posix_class": (r"^[[:alpha:]]+$", "abc"),
    "class_intersection": (r"^[a-z&&[^b]]+$", "ac"),
    "code_point_in_braces": (r"^\x{1F600}$", "\U0001f600"),
    "code_point_long": (re.compile(r"^\U0001F600$"), "\U0001f600"),
    "code_point_by_name": (re.compile(r"^\N{EM DASH}$"), "\u2014"),
    "code_point_octal": (re.compile(r"^\101$"), "A"),
    "code_point_bell": (re.compile(r"^\a$"), "\a"),
    "beyond_the_first_plane": (r"^.$", "\U0001f600"),
    "class_beyond_the_first_plane": ("^[\U0001f600-\U0001f64f]{2}$", "\U0001f600\U0001f601"),
    "brace_as_itself": (re.compile(r"^{[a-z]+}$"), "{abc}"),
    "bracket_as_itself": (re.compile(r"^a]$"), "a]"),
    "bracket_first_in_a_class": (re.compile(r"^[]a]+$"), "a]"),
    "hyphen_last_in_a_class": (r"^[\w.-]+$", "a.b-c"),
    "no_lower_bound": (re.compile(r"^a{,3}$"), "aa"),
    "newline_at_the_end": (re.compile(r"^[a-z]+$"), "abc\n"),
    "dot_and_carriage_return": (re.compile(r"^a.b$"), "a\rb"),
    "slash": (r"^/[^/]+/$", "/a/"),
    "flags_taken_back": (r"(?i)^a(?-i:b)$", "Ab"),
    "flag_that_swaps_greed": (r"(?U)^a+b$", "aab"),
    "ascii_compiled": (re.compile(r"^\w+$", re.ASCII), "abc"),
    "dot_all_compiled": (re.compile(r"^a.b$", re.DOTALL), "a\nb"),
    "multiline_compiled": (re.compile(r"^b$", re.MULTILINE), "a\nb"),
    "named_group_of_rust": (r"^(?<year>\d{4})$", "2026"),
    "no_digit": (r"^\D$", "a"),
    "no_digit_of_any_script": (r"^[^\d]$", "a"),
    "no_word": (r"^\W$", "-"),
    "no_boundary": (re.compile(r"^a\Bé$"), "aé"),
    "unicode_property_in_a_class": (r"^[\p{L}\p{N}_]+$", "é1_"),
    "unicode_property_negated": (r"^\P{L}$", "1"),
    "code_point_short": (r"^\u00e9$", "é"),
    "code_point_in_braces_of_u": (r"^\u{e9}$", "é"),
    "code_point_zero": (re.compile(r"^\0$"), "\0"),
    "backspace_in_a_class": (re.compile(r"^[\b]$"), "\b"),
    "bracket_escaped_in_a_class": (r"^[a\]\[]+$", "a]["),
    "bracket_open_in_a_class": (re.compile(r"^[a\[]+$"), "a["),
    "caret_in_a_class": (r"^[a^]+$", "a^"),
    "class_difference": (r"^[a-z--b]+$", "ac"),
    "class_symmetric_difference": (r"^[a-c~~b-d]+$", "ad"),
    "repetition_repeated": (r"^(?:a{2}){2}$", "aaaa"),
    "repetition_of_a_repetition": (r"^a{2}{2}$", "aaaa"),
    "repetition_of_a_lookahead": (re.compile(r"^(?=a)*a$"), "a"),
    "alternatives_that_are_empty": (r"^(?:a|)$", ""),
    "empty": ("", "a"),
    "lazy": (r"^a+?b??$", "aa"),
    "end_before_a_newline": (re.compile(r"^a$\n?"), "a"),
    "not_anchored": (r"\d", "a1b"),
}

# Annotations --------------------------------------------------------------------------------------


class Offer(BaseModel):
    price: Annotated[float, Field(multiple_of=0.01)]
    total: Annotated[Decimal, Field(multiple_of=Decimal("0.01"))]


class Row(BaseModel):
    id: int
    name: str
    before: list[int] = []


class Numbered(BaseModel):
    id: int = BIG


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: int


class Rectangle(BaseModel):
    width: int
    height: int

    @computed_field
    @property
    def area(self) -> int:
        return self.width * self.height


class Hidden(BaseModel):
    """Its members have other names outside."""

    inner: int = Field(alias="inner-name", serialization_alias="outer name")


@dataclass
class Point:
    x: float
    y: float = 0.5
    label: str | None = None


class Partial(TypedDict):
    id: int
    note: NotRequired[str]
    nothing: NotRequired[None]


class Pair(NamedTuple):
    id: int
    name: str = "none"


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Mixed(Enum):
    NUMBER = 1
    WORD = "a"
    HALF = 0.5
    NOTHING = None


class Level(IntEnum):
    LOW = 1
    HUGE = BIG


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Node:
    id: int
    children: list[Node]


@dataclass
class Folder:
    files: list[File]


@dataclass
class File:
    name: str
    folder: Folder | None = None


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
Price = Annotated[float, Field(multiple_of=0.01)]
Positive64 = Annotated[int, Field(ge=1, le=2**63 - 1)]
Upper = Annotated[str, StringConstraints(to_upper=True, min_length=1)]


@dataclass(frozen=True, slots=True)
class Echo:
    """A tool that returns its argument `value`, both with the annotation.

    It returns what it is sent unless `value` is set.
    """

    annotation: Any
    argument: Any
    value: Any = ...
    is_wrapped: bool | None = None


ECHOES: Mapping[str, Echo] = {
    # Fractions as multiples, which clients divide in binary.
    "cents": Echo(Price, 19.99),
    "cents_whole": Echo(Price, 20.0),
    "cents_in_a_list": Echo(list[Price], [19.99, 0.07, 4.35, 1.1]),
    "cents_in_a_dict": Echo(dict[str, Price], {"shop": 19.99}),
    "cents_or_null": Echo(Price | None, 19.99),
    "cents_of_a_decimal": Echo(Annotated[Decimal, Field(multiple_of=Decimal("0.01"))], "19.99"),
    "cents_in_a_model": Echo(Offer, {"price": 19.99, "total": "19.99"}),
    "multiple_of_a_tenth": Echo(Annotated[float, Field(multiple_of=0.1, ge=0)], 0.3),
    "multiple_of_a_quarter": Echo(Annotated[float, Field(multiple_of=0.25)], 2.75),
    "multiple_that_is_tiny": Echo(Annotated[float, Field(multiple_of=1e-7)], 0.1234567),
    "multiple_that_is_whole": Echo(Annotated[int, Field(multiple_of=12)], 24),
    # Integers that JavaScript rounds.
    "integer_at_the_limit": Echo(list[int], [LIMIT, -LIMIT]),
    "integer_beyond_the_limit": Echo(int, str(LIMIT + 1)),
    "integer_below_the_limit": Echo(int, str(-LIMIT - 1)),
    "integer_of_64_bits": Echo(int, DIGITS),
    "integer_with_bounds": Echo(Positive64, DIGITS),
    "integer_with_bounds_that_fits": Echo(Positive64, 7),
    "integer_of_70_bits": Echo(int, str(2**70)),
    "integer_or_null": Echo(int | None, DIGITS),
    "integer_or_null_that_is_null": Echo(int | None, None),
    "integer_or_boolean": Echo(int | bool, DIGITS),
    "integers": Echo(list[int], [1, DIGITS]),
    "integers_in_a_set": Echo(set[int], [DIGITS]),
    "integers_in_a_tuple": Echo(tuple[int, str], [DIGITS, "a"]),
    "integers_as_keys": Echo(dict[int, str], {DIGITS: "a"}),
    "integers_as_values": Echo(dict[str, int], {"a": DIGITS, "b": 1}),
    "integers_in_a_model": Echo(Row, {"id": DIGITS, "name": "a", "before": [1, DIGITS]}),
    "integers_in_models": Echo(list[Row], [{"id": DIGITS, "name": "a", "before": []}]),
    "integers_in_a_typed_dict": Echo(Partial, {"id": DIGITS}),
    "integers_in_a_named_tuple": Echo(Pair, [DIGITS, "a"]),
    "integers_in_a_recursive_type": Echo(
        Node, {"id": DIGITS, "children": [{"id": 1, "children": []}]}
    ),
    "integers_deep_down": Echo(dict[str, list[dict[str, int | None]]], {"a": [{"b": DIGITS}]}),
    "float_that_is_large": Echo(float, 1.5e20),
    "float_that_is_larger": Echo(float, 1e300),
    "float_with_bounds": Echo(Annotated[float, Field(gt=0, lt=1)], 0.1),
    "float_without_infinity": Echo(Annotated[float, Field(allow_inf_nan=False)], -0.5),
    # Dates and times; formats that Python and JSON Schema understand differently.
    "date": Echo(date, "2026-03-01"),
    "date_with_bounds": Echo(Annotated[date, Ge(date(2026, 1, 1))], "2026-03-01"),
    "date_in_the_past": Echo(PastDate, "2026-03-01"),
    "dates_as_keys": Echo(dict[date, int], {"2026-03-01": 1}),
    "dates_in_a_set": Echo(set[date], ["2026-03-01"]),
    "datetime": Echo(datetime, "2026-03-01T12:00:00Z"),
    "datetime_with_offset": Echo(datetime, "2026-03-01T12:00:00.250000+02:00"),
    "datetime_that_is_naive": Echo(datetime, "2026-03-01T12:00:00"),
    "datetime_with_bounds": Echo(
        Annotated[datetime, Ge(datetime(2026, 1, 1, tzinfo=UTC))], "2026-03-01T12:00:00Z"
    ),
    "aware_datetime": Echo(AwareDatetime, "2026-03-01T12:00:00Z"),
    "naive_datetime": Echo(NaiveDatetime, "2026-03-01T12:00:00"),
    "time": Echo(time, "12:30:00"),
    "time_with_offset": Echo(time, "12:30:00Z"),
    "duration": Echo(timedelta, "PT1H30M"),
    "duration_with_fraction": Echo(timedelta, "PT1.5S"),
    "duration_that_is_negative": Echo(timedelta, "-P1D"),
    "duration_with_bounds": Echo(Annotated[timedelta, Le(timedelta(days=1))], "PT1H"),
    # Numbers as text, identifiers, addresses.
    "decimal": Echo(Decimal, "12.50"),
    "decimal_with_bounds": Echo(Annotated[Decimal, Gt(0)], "12.50"),
    "decimal_with_places": Echo(
        Annotated[Decimal, Field(max_digits=6, decimal_places=2, ge=0)], "12.50"
    ),
    "decimal_with_exponent": Echo(list[Decimal], ["1E+2", "-0.0000001"], ["1E+2", "-1E-7"]),
    "uuid": Echo(UUID, "12345678-1234-5678-1234-567812345678"),
    "fractions": Echo(list[Fraction], ["1/3"]),
    "urls": Echo(list[HttpUrl], ["https://example.com/a?b=c"]),
    "urls_of_other_languages": Echo(
        list[AnyUrl], ["https://exämple.com/ü"], ["https://xn--exmple-cua.com/%C3%BC"]
    ),
    "urls_of_other_schemes": Echo(list[AnyUrl], ["mailto:ada@example.com", "file:///tmp/a"]),
    "urls_of_databases": Echo(list[PostgresDsn], ["postgres://ada@a.example,b.example:5432/db"]),
    "url_in_a_dict": Echo(dict[str, HttpUrl | None], {"a": "https://example.com/", "b": None}),
    "uuids_of_a_version": Echo(list[UUID4], ["12345678-1234-4678-9234-567812345678"]),
    "patterns": Echo(list[re.Pattern[str]], ["(?i)^a$"]),
    "time_zones": Echo(list[ZoneInfo], ["Europe/Zurich"]),
    "ip_address": Echo(list[IPv6Address], ["2001:db8::1"]),
    "ip_network": Echo(list[IPv4Network], ["192.0.2.0/24"]),
    "bytes_in_a_list": Echo(list[bytes], ["aGk="]),
    "base64_in_a_list": Echo(list[Base64Bytes], ["aGk="]),
    "base64_for_urls_in_a_list": Echo(list[Base64UrlBytes], ["-_8="]),
    # Choices.
    "enumeration": Echo(Size, "s"),
    "enumeration_of_several_types": Echo(list[Mixed], [1, "a", 0.5, None]),
    "enumeration_of_large_integers": Echo(Level, DIGITS),
    "enumeration_of_flags": Echo(Access, 2),
    "enumeration_as_keys": Echo(dict[Size, int], {"s": 1}),
    "literals": Echo(list[Literal[1, "a", True] | None], [1, "a", True, None]),
    "literals_of_which_one_is_large": Echo(
        list[Literal[725653563933458432, 1, "a"]], [DIGITS, 1, "a"]
    ),
    "enumeration_of_flags_together": Echo(Access, 3),
    "integer_with_a_large_multiple": Echo(Annotated[int, Field(multiple_of=10**16)], str(10**17)),
    "integer_with_a_large_lower_bound": Echo(Annotated[int, Field(gt=2**60)], str(2**61)),
    "integer_with_a_default": Echo(Numbered, {}, {"id": DIGITS}),
    "literal_of_a_large_integer": Echo(Literal[725653563933458432], DIGITS),
    "literals_as_keys": Echo(dict[Literal["a", "b"], int], {"a": 1}),
    # Containers and objects.
    "tuple_of_any_length": Echo(tuple[int, ...], [1, 2, 3]),
    "tuple_of_none": Echo(tuple[()], []),
    "tuple_of_two": Echo(tuple[int, str], [1, "a"]),
    "set_of_texts": Echo(frozenset[str], ["a"]),
    "set_of_pairs": Echo(set[tuple[int, int]], [[1, 2]]),
    "list_that_is_empty": Echo(list[int], []),
    "list_of_lists": Echo(list[list[list[int]]], [[[1], []], []]),
    "list_with_nulls": Echo(list[int | None] | None, [1, None]),
    "list_with_bounds": Echo(Annotated[list[Upper], Field(min_length=1)], ["a"], ["A"]),
    "list_of_anything": Echo(list[Any], [1, "a", None, [], {"a": 0.5}]),
    "dict_that_is_empty": Echo(dict[str, int], {}),
    "dict_of_anything": Echo(dict[str, Any], {"a": [1, None], "b": {"c": True}}),
    "dict_with_bounds": Echo(
        Annotated[dict[str, int], Field(min_length=1, max_length=2)], {"a": 1}
    ),
    "dict_whose_keys_have_a_pattern": Echo(
        dict[Annotated[str, Field(pattern=r"(?i)^x\-")], int], {"X-a": 1}
    ),
    "dict_whose_keys_have_bounds": Echo(dict[Annotated[int, Ge(0)], int], {"7": 1}),
    "json": Echo(dict[str, JsonValue], {"a": [1, None, {"b": "c"}]}),
    "any": Echo(list[Any] | None, None),
    "boolean": Echo(bool, False),
    "zero": Echo(int, 0),
    "dataclass_with_defaults": Echo(Point, {"x": 1.5}, {"x": 1.5, "y": 0.5, "label": None}),
    "dataclass_or_null": Echo(Point | None, {"x": 1.5, "y": 0, "label": "a"}, is_wrapped=True),
    "typed_dict": Echo(Partial, {"id": 1, "note": "a", "nothing": None}),
    "named_tuple": Echo(Pair, [1, "a"]),
    "named_tuples": Echo(list[Pair], [[1, "a"]]),
    "model_that_is_open": Echo(Open, {"id": 1, "other": [1]}),
    "model_of_a_list": Echo(RootModel[list[int]], [1]),
    "model_of_a_dict": Echo(RootModel[dict[str, int]], {"a": 1}),
    "model_with_a_computed_field": Echo(
        Rectangle, {"width": 2, "height": 3}, {"width": 2, "height": 3, "area": 6}
    ),
    "model_with_aliases": Echo(Hidden, {"inner-name": 1}, {"outer name": 1}),
    "union_with_a_discriminator": Echo(Pet, {"kind": "cat", "lives": 9}, is_wrapped=True),
    "unions_with_a_discriminator": Echo(list[Pet], [{"kind": "dog", "tricks": ["sit"]}]),
    "union_of_dicts": Echo(list[Cat | Row], [{"id": 1, "name": "a", "before": []}]),
    "union_of_containers": Echo(list[list[int] | dict[str, int] | str], [[1], {"a": 1}, "a"]),
    "recursive_type": Echo(Node, {"id": 1, "children": [{"id": 2, "children": []}]}),
    "recursive_types": Echo(Folder, {"files": [{"name": "a", "folder": {"files": []}}]}),
}

# Names of members that mean something in Python, in JavaScript or in a schema. `__proto__` is not
# among them: version 1 of the TypeScript SDK loses it.
NAMES: Mapping[str, str] = {
    "with_hyphen": "a-b",
    "with_space": "a b",
    "with_dot": "a.b",
    "with_slash": "a/b",
    "with_tilde": "a~1b",
    "with_percent": "a%25b",
    "with_quotes": "a\"b'c",
    "with_backslash": "a\\b",
    "with_newline": "a\nb",
    "of_another_language": "größe",
    "of_another_script": "数",
    "beyond_the_first_plane": "\U0001f600",
    "empty": "",
    "of_digits": "0",
    "with_underscore": "_a",
    "with_two_underscores": "__a__",
    "of_a_keyword": "class",
    "of_a_python_method": "items",
    "of_a_model_method": "model_dump",
    "of_a_model_setting": "model_config",
    "of_a_constructor": "constructor",
    "of_a_javascript_method": "hasOwnProperty",
    "ref": "$ref",
    "id": "$id",
    "defs": "$defs",
    "type": "type",
    "properties": "properties",
    "required": "required",
    "enum": "enum",
    "default": "default",
    "nullable": "nullable",
    "pattern": "pattern",
    "multiple_of": "multipleOf",
    "result": "result",
}

# Schemas that are written by hand -----------------------------------------------------------------

DRAFT_07 = {"$schema": "http://json-schema.org/draft-07/schema#"}
DRAFT_2019 = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
DRAFT_2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
TEXT = {"type": "string"}
INTEGER = {"type": "integer"}


def of(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these members."""
    return {"type": "object", "properties": properties}


# The option `output_schema`, and what the tool returns.
WRITTEN: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "true_as_a_property": (of(a=True), {"a": [1]}),
    "false_as_a_property": (of(a=INTEGER, b=False), {"a": 1}),
    "true_in_an_object_in_a_list": ({"type": "array", "items": of(a=True)}, [{"a": 1}]),
    "true_as_items": ({"type": "array", "items": True}, [1, "a"]),
    "true_as_an_alternative": (of(a={"anyOf": [INTEGER, True]}), {"a": "b"}),
    "true_as_other_members": ({**of(a=INTEGER), "additionalProperties": True}, {"a": 1, "b": 2}),
    "true_as_a_definition": (
        {**of(a={"$ref": "#/$defs/any"}), "$defs": {"any": True}},
        {"a": 1},
    ),
    "empty_schema": ({}, [1, "a"]),
    "empty_schema_as_a_property": (of(a={}), {"a": None}),
    "no_type": ({"properties": {"a": INTEGER}}, {"a": 1}),
    "no_properties": ({"type": "object"}, {"a": 1}),
    "nullable": (of(a={"type": "string", "nullable": True}), {"a": "b"}),
    "nullable_that_is_null": (of(a={"type": "string", "nullable": True}), {"a": None}),
    "nullable_without_type": (of(a={"nullable": True}), {"a": 1}),
    "nullable_without_type_that_is_null": (of(a={"nullable": True}), {"a": None}),
    "nullable_all_of": (
        {**of(a={"nullable": True, "allOf": [{"$ref": "#/$defs/a"}]}), "$defs": {"a": of(b=TEXT)}},
        {"a": {"b": "c"}},
    ),
    "nullable_one_of": (
        of(a={"nullable": True, "oneOf": [{"enum": ["a", "b"]}, {"enum": [""]}, {"enum": [None]}]}),
        {"a": None},
    ),
    "nullable_reference": (
        {**of(a={"$ref": "#/$defs/a", "nullable": True}), "$defs": {"a": TEXT}},
        {"a": "b"},
    ),
    "nullable_choices": (
        of(a={"type": "string", "enum": ["a", None], "nullable": True}),
        {"a": "a"},
    ),
    "nullable_false": (of(a={"nullable": False}), {"a": 1}),
    "several_types": (of(a={"type": ["string", "null"]}), {"a": None}),
    "several_types_with_rules": (
        of(a={"type": ["integer", "string"], "minimum": 5, "minLength": 2}),
        {"a": "bc"},
    ),
    "several_types_at_the_root": ({"type": ["object", "null"]}, None),
    "null_or_object": ({"anyOf": [of(a=INTEGER), {"type": "null"}]}, {"a": 1}),
    "definitions": (
        {**of(a={"$ref": "#/$defs/price"}), "$defs": {"price": {"type": "number"}}},
        {"a": 0.5},
    ),
    "definitions_of_draft_07": (
        {**DRAFT_07, **of(a={"$ref": "#/definitions/a"}), "definitions": {"a": TEXT}},
        {"a": "b"},
    ),
    "definitions_with_odd_names": (
        {**of(a={"$ref": "#/$defs/a~1b%20c"}), "$defs": {"a/b c": TEXT}},
        {"a": "b"},
    ),
    "reference_at_the_root": ({"$ref": "#/$defs/a", "$defs": {"a": of(b=INTEGER)}}, {"b": 1}),
    "reference_with_rules": (
        {**of(a={"$ref": "#/$defs/a", "maxLength": 3}), "$defs": {"a": TEXT}},
        {"a": "b"},
    ),
    "reference_to_a_property": (of(a=INTEGER, b={"$ref": "#/properties/a"}), {"a": 1, "b": 2}),
    "reference_to_an_anchor": (
        {**of(a={"$ref": "#there"}), "$defs": {"a": {"$anchor": "there", "type": "string"}}},
        {"a": "b"},
    ),
    "recursive": (of(a=INTEGER, child={"$ref": "#"}), {"a": 1, "child": {"a": 2}}),
    "recursive_list": ({"type": "array", "items": {"$ref": "#"}}, [[], [[]]]),
    "recursive_definition": (
        {
            "$ref": "#/$defs/node",
            "$defs": {"node": of(children={"type": "array", "items": {"$ref": "#/$defs/node"}})},
        },
        {"children": [{"children": []}]},
    ),
    "recursive_reference_of_2019": (
        {**DRAFT_2019, **of(child={"$recursiveRef": "#"})},
        {"child": {}},
    ),
    "dynamic_reference": (
        {"$dynamicAnchor": "node", **of(child={"$dynamicRef": "#node"})},
        {"child": {}},
    ),
    "identifier": ({"$id": "https://example.com/a.json", **of(a=INTEGER)}, {"a": 1}),
    "identifier_again": ({"$id": "https://example.com/a.json", **of(a=TEXT)}, {"a": "b"}),
    "identifier_that_is_relative": ({"$id": "a.json", **of(a=INTEGER)}, {"a": 1}),
    "identifier_of_a_list": (
        {"$id": "https://example.com/b.json", "type": "array", "items": INTEGER},
        [1],
    ),
    "dialect_of_2020": ({**DRAFT_2020, **of(a=INTEGER)}, {"a": 1}),
    "dialect_of_2019": ({**DRAFT_2019, **of(a=INTEGER)}, {"a": 1}),
    "dialect_of_draft_07": ({**DRAFT_07, **of(a=INTEGER)}, {"a": 1}),
    "discriminator": (
        {
            "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
            "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/cat"}},
            "$defs": {
                "cat": of(kind={"const": "cat"}, lives=INTEGER) | {"required": ["kind"]},
                "dog": of(kind={"const": "dog"}) | {"required": ["kind"]},
            },
        },
        {"kind": "cat", "lives": 9},
    ),
    "discriminator_without_one_of": (
        {**of(kind=TEXT), "discriminator": {"propertyName": "kind"}},
        {"kind": "cat"},
    ),
    "all_of": (
        {"type": "object", "allOf": [of(a=INTEGER), {"required": ["a"]}]},
        {"a": 1},
    ),
    "not": (of(a={"not": {"type": "string"}}), {"a": 1}),
    "constant": (of(a={"const": "b"}), {"a": "b"}),
    "constant_null": (of(a={"const": None}), {"a": None}),
    "constant_object": (of(a={"const": {"b": [1]}}), {"a": {"b": [1]}}),
    "choices_of_several_types": (of(a={"enum": [1, "b", None, {"c": 1}]}), {"a": {"c": 1}}),
    "choices_that_are_large": (of(a={"enum": [BIG, 1]}), {"a": BIG}),
    "positions": (
        {"type": "array", "prefixItems": [INTEGER, TEXT], "items": False, "minItems": 2},
        [1, "a"],
    ),
    "positions_of_draft_07": (
        {**DRAFT_07, **of(a={"type": "array", "items": [INTEGER, TEXT], "additionalItems": False})},
        {"a": [1, "b"]},
    ),
    "array_without_items": ({"type": "array"}, [1, "a"]),
    "contains": ({"type": "array", "contains": INTEGER, "minContains": 2}, [1, "a", 2]),
    "unique_items": ({"type": "array", "uniqueItems": True}, [1, "1", True, [1], {"a": 1}]),
    "format_unknown": (of(a={"type": "string", "format": "money"}), {"a": "1 EUR"}),
    "format_decimal": (of(a={"type": "string", "format": "decimal"}), {"a": "12.50"}),
    "format_of_numbers": (
        of(a={"type": "integer", "format": "int64"}, b={"type": "number", "format": "double"}),
        {"a": 1, "b": 0.5},
    ),
    "format_int32": (of(a={"type": "integer", "format": "int32"}), {"a": 1}),
    "format_password": (of(a={"type": "string", "format": "password"}), {"a": "b"}),
    "format_binary": (of(a={"type": "string", "format": "binary"}), {"a": "b"}),
    "format_byte": (of(a={"type": "string", "format": "byte"}), {"a": "-_8="}),
    "format_time": (of(a={"type": "string", "format": "time"}), {"a": "12:30:00"}),
    "format_date_time": (
        of(a={"type": "string", "format": "date-time"}),
        {"a": "2026-03-01T12:00:00"},
    ),
    "format_duration": (of(a={"type": "string", "format": "duration"}), {"a": "1 02:00:00"}),
    "format_email": (of(a={"type": "string", "format": "email"}), {"a": "ada@exämple.com"}),
    "format_uri": (of(a={"type": "string", "format": "uri"}), {"a": "/media/a b.png"}),
    "format_slug": (of(a={"type": "string", "format": "slug"}), {"a": "b-c"}),
    "multiple_of_cents": (of(a={"type": "number", "multipleOf": 0.01}), {"a": 19.99}),
    "pattern_with_flag": (of(a={"type": "string", "pattern": "(?i)^[a-z]+$"}), {"a": "ABC"}),
    "pattern_with_hyphen": (of(a={"type": "string", "pattern": r"^\d\-\d$"}), {"a": "1-2"}),
    "pattern_properties": (
        {"type": "object", "patternProperties": {r"^x\-": INTEGER}},
        {"x-a": 1},
    ),
    "pattern_of_property_names": (
        {"type": "object", "propertyNames": {"pattern": r"^[a-z\-]+$"}},
        {"a-b": 1},
    ),
    "bounds_that_are_exclusive": (
        of(a={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        {"a": 0.5},
    ),
    "bounds_that_are_large": (
        of(a={"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}),
        {"a": BIG},
    ),
    "if_then": (
        {**of(a=INTEGER), "if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"a": 1, "b": 2},
    ),
    "dependent_required": ({**of(a=INTEGER), "dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 2}),
    "dependent_schemas": (
        {**of(a=INTEGER), "dependentSchemas": {"a": {"required": ["b"]}}},
        {"a": 1, "b": 2},
    ),
    "dependencies_of_draft_07": (
        {**DRAFT_07, **of(a=INTEGER), "dependencies": {"a": ["b"]}},
        {"a": 1, "b": 2},
    ),
    "unevaluated_properties": (
        {"type": "object", "allOf": [of(a=INTEGER)], "unevaluatedProperties": False},
        {"a": 1},
    ),
    "unevaluated_items": (
        {"type": "array", "prefixItems": [INTEGER], "unevaluatedItems": False},
        [1],
    ),
    "content": (
        of(a={"type": "string", "contentMediaType": "application/json"}),
        {"a": "{}"},
    ),
    "annotations": (
        {
            **of(a={"type": "integer", "readOnly": True, "deprecated": True, "examples": [1]}),
            "$comment": "a comment",
            "title": "A title",
            "x-order": 1,
        },
        {"a": 1},
    ),
    "default_of_another_type": (of(a={"type": "integer", "default": "none"}), {"a": 1}),
    "integers": (
        of(id=INTEGER, ids={"type": "array", "items": INTEGER}),
        {"id": BIG, "ids": [BIG]},
    ),
    "integers_or_null": (of(id={"type": ["integer", "null"]}), {"id": BIG}),
    "integers_as_numbers": (of(id={"type": "number"}), {"id": BIG}),
    "integers_without_a_schema": (of(id={}), {"id": BIG}),
    "deep": (
        of(a=of(a=of(a=of(a=of(a=of(a=of(a=of(a=of(a=of(a=of(a=INTEGER))))))))))),
        {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}}}}},
    ),
}

# The option `input_schema`, and the arguments, which the tool returns.
TAKEN: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "cents": (of(price={"type": "number", "multipleOf": 0.01}), {"price": 20}),
    "pattern_with_flag": (of(code={"type": "string", "pattern": "(?i)^[a-z]+$"}), {"code": "ABC"}),
    "pattern_with_hyphen": (of(code={"type": "string", "pattern": r"^\d\-\d$"}), {"code": "1-2"}),
    "format_unknown": (of(a={"type": "string", "format": "money"}), {"a": "1 EUR"}),
    "unique_items": (of(a={"type": "array", "items": TEXT, "uniqueItems": True}), {"a": ["b"]}),
    "nullable": (of(a={"type": "string", "nullable": True}), {"a": "b"}),
    "nullable_without_type": (of(a={"nullable": True}), {"a": "b"}),
    "true_as_a_property": (of(a=True), {"a": [1]}),
    "true_as_other_members": ({**of(a=INTEGER), "additionalProperties": True}, {"a": 1}),
    "several_types": (of(a={"type": ["string", "null"]}), {"a": None}),
    "definitions": ({**of(a={"$ref": "#/$defs/a"}), "$defs": {"a": TEXT}}, {"a": "b"}),
    "dialect_of_draft_07": ({**DRAFT_07, **of(a=INTEGER)}, {"a": 1}),
    "positions_of_draft_07": (
        {**DRAFT_07, **of(a={"type": "array", "items": [INTEGER, TEXT]})},
        {"a": [1, "b"]},
    ),
    "alternatives": (
        of(a=INTEGER, b=INTEGER) | {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": 1},
    ),
    "if_then": (
        {**of(a=INTEGER, b=INTEGER), "if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"a": 1, "b": 2},
    ),
    "names": (
        of(**{"a-b": INTEGER, "a b": TEXT, "$ref": TEXT, "数": TEXT}),
        {"a-b": 1, "$ref": "a"},
    ),
}

# Results that cannot be arguments -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool without arguments: its annotation, what it returns, and the JSON of that."""

    annotation: Any
    result: Any
    value: Any
    is_text: bool = False


RETURNED: Mapping[str, Returned] = {
    "integer_or_text": Returned(list[int | str], [BIG, "a"], [DIGITS, "a"]),
    "integer_or_float": Returned(list[int | float], [BIG, 0.5], [DIGITS, 0.5]),
    "integer_in_any": Returned(
        dict[str, Any], {"id": BIG, "a": [BIG]}, {"id": DIGITS, "a": [DIGITS]}
    ),
    "integer_in_json": Returned(dict[str, JsonValue], {"id": BIG}, {"id": DIGITS}),
    "integer_in_an_open_model": Returned(
        Open, Open.model_validate({"id": BIG, "other": BIG}), {"id": DIGITS, "other": DIGITS}
    ),
    "nothing": Returned(None, None, "", is_text=True),
    "text": Returned(str, "a\nb", "a\nb", is_text=True),
    "url": Returned(HttpUrl, HttpUrl("https://example.com/a"), "https://example.com/a"),
    "url_of_any_scheme": Returned(AnyUrl, AnyUrl("ftp://example.com/a"), "ftp://example.com/a"),
    "url_or_null": Returned(
        HttpUrl | None, HttpUrl("https://example.com/a"), "https://example.com/a"
    ),
    "fraction": Returned(Fraction, Fraction(1, 3), "1/3"),
    "complex_number": Returned(list[complex], [1 + 2j], ["1+2j"]),
}

# Functions, which are in mcp.py: arguments and values.
FUNCTIONS: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "decode": ({"value": "aGk="}, ["hi"]),
    "decode_for_urls": ({"value": "8J-YgA=="}, ["\U0001f600"]),
    "summarize": ({}, {"id": DIGITS, "ids": [DIGITS]}),
    "measure": (
        {"day": "2026-03-01", "length": "PT1H", "price": "12.50"},
        ["2026-03-01", 3600, "12.50"],
    ),
}

# The model ----------------------------------------------------------------------------------------

PARCEL = {
    "id": DIGITS,
    "parent": None,
    "serial": str(2**63 - 1),
    "pieces": 3,
    "price": "19.99",
    "weight": 0.07,
    "code": "12345678-1234-5678-1234-567812345678",
    "day": "2026-03-01",
    "moment": "2026-03-01T12:30:00.250000Z",
    "closes": "18:30:00",
    "takes": "-PT23H59M58.5S",
    "page": "https://exämple.com/straße",
    "mail": "ada@exämple.com",
    "address": "2001:db8::1",
    "slug": "parcel-1",
    "previous": DIGITS,
    "extra": {"id": DIGITS, "ids": [DIGITS, 1]},
}
CHILD = PARCEL | {"id": str(BIG + 1), "parent": {"id": DIGITS, "label": "parcel-1"}}
# As REST framework writes it.
VIEW = PARCEL | {"amount": 19.99, "takes": "-1 00:00:01.500000"}
CHILD_VIEW = VIEW | {"id": str(BIG + 1), "parent": DIGITS}
MODEL: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "list_parcels": (
        {"id": str(BIG + 1), "serial__gte": str(2**62), "parent": DIGITS},
        {"items": [CHILD], "total": 1},
    ),
    "get_parcel": ({"id": str(BIG + 1)}, CHILD),
    "list_views": ({}, [VIEW, CHILD_VIEW]),
    "get_view": ({"pk": str(BIG + 1)}, CHILD_VIEW),
}


def _cases() -> dict[str, Case]:
    """Return the tools of all tables; the names of a table begin alike."""
    cases = {
        f"pattern_{name}": Case(arguments={"value": text}, value=[text], is_wrapped=True)
        for name, (_, text) in PATTERNS.items()
    }
    for name, echo in ECHOES.items():
        value = echo.argument if echo.value is ... else echo.value
        is_object = isinstance(value, dict)
        cases[f"echo_{name}"] = Case(
            arguments={"value": echo.argument},
            value=value,
            is_wrapped=not is_object if echo.is_wrapped is None else echo.is_wrapped,
        )
    for name, member in NAMES.items():
        value = {member: 1}
        cases[f"name_{name}"] = Case(arguments={"value": value}, value=value, is_wrapped=False)
    for name, (schema, value) in WRITTEN.items():
        is_wrapped = schema.get("type") != "object"
        cases[f"written_{name}"] = Case(arguments={}, value=_exact(value), is_wrapped=is_wrapped)
    for name, (_, arguments) in TAKEN.items():
        cases[f"taken_{name}"] = Case(arguments=arguments, value=arguments, is_wrapped=False)
    for name, returned in RETURNED.items():
        cases[f"returned_{name}"] = Case(
            arguments={},
            value=returned.value,
            is_wrapped=not isinstance(returned.value, dict),
            is_text=returned.is_text,
        )
    for name, (arguments, value) in {**FUNCTIONS, **MODEL}.items():
        is_wrapped = not isinstance(value, dict)
        cases[name] = Case(arguments=arguments, value=value, is_wrapped=is_wrapped)
    return cases


def _exact(value: Any) -> Any:
    """Return a value with the integers as digits that JavaScript would round."""
    if isinstance(value, dict):
        return {name: _exact(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_exact(element) for element in value]
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_integer and abs(value) > LIMIT else value


CASES = _cases()
