"""The steps that rewrite a schema to make it portable, and the table ``RULES`` of them.

Each step rewrites one schema, whose subschemas are already rewritten. All steps together make an
arbitrary schema portable. ``lint`` describes what hosts do without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mcp_django.protocol.headers import HEADER_KEYWORD, MAX_SAFE_INTEGER
from mcp_django.schema.arguments import to_json_text
from mcp_django.schema.patterns import UnportablePattern, portable_pattern
from mcp_django.schema.structure import (
    JSON_TYPES,
    Path,
    Schema,
    accepts_null,
    is_annotation,
    is_number,
    merge_schemas,
    number_bounds,
    number_keyword,
)
from mcp_django.schema.values import exact_integers
from mcp_django.schema.vocabulary import (
    BY_HAND_KEYWORD,
    DIGITS,
    LOCAL_DATETIME,
    RULES_KEYWORD,
    SchemaSource,
    append_sentence,
    format_number,
)


class SchemaChange(NamedTuple):
    """One place of a schema that a rule changed because some client rejects it."""

    path: Path
    text: str
    """What was changed, and for which client."""

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.path)) or 'root'}: {self.text}"


@dataclass(frozen=True, slots=True)
class Use:
    """The use and the source of a schema, and the changes so far."""

    is_input: bool
    source: SchemaSource
    changes: list[SchemaChange] = field(default_factory=list)


_FORMATS: Final = frozenset(
    {
        *("date-time", "date", "time", "duration", "email", "idn-email", "hostname"),
        *("idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid"),
        *("uri-template", "json-pointer", "relative-json-pointer", "regex"),
    }
)
"""JSON Schema 2020-12, "Validation", section 7.3."""

_KEPT_OUTPUT_FORMATS: Mapping[SchemaSource, frozenset[str]] = {
    SchemaSource.TYPE: frozenset({"date", "date-time", "uuid", "ipv4"}),
    SchemaSource.COLUMNS: frozenset({"date", "date-time", "uuid", "ipv4"}),
    SchemaSource.BY_HAND: frozenset(),
}
"""The formats to which every value of a result conforms, as ajv-formats 3 checks them.

ajv-formats requires an offset in times, and rejects fractions and signs in durations, zones in IPv6
addresses, and characters that are not ASCII in URIs and e-mail addresses.
"""

_FORMATS_IN_WORDS: Mapping[str, str] = {
    "date-time": "a date and time",
    LOCAL_DATETIME: "a date and time, which may have no offset",
    "time": "a time of day",
    "duration": "a duration in the format of ISO 8601",
    "email": "an e-mail address",
    "idn-email": "an e-mail address",
    "uri": "a URI",
    "uri-reference": "a URI or a relative reference",
    "ipv6": "an IPv6 address",
    "decimal": "a decimal number",
    "ipvanyaddress": "an IP address",
    "ipv4network": "an IPv4 network",
    "ipv6network": "an IPv6 network",
    "ipvanynetwork": "an IP network",
    "ipv4interface": "an IPv4 address with its network",
    "ipv6interface": "an IPv6 address with its network",
    "ipvanyinterface": "an IP address with its network",
    "path": "a path",
    "file-path": "the path of a file",
    "directory-path": "the path of a directory",
    "json-string": "JSON as text",
    "multi-host-uri": "a URI, which may have several hosts",
}

_DROPPED_KEYWORDS = frozenset(
    {"title", "$schema", "$comment", "discriminator", "propertyNames", BY_HAND_KEYWORD}
)
"""Keywords that repeat a name or are not for hosts."""

_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_KEYWORDS_BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "contentEncoding"),
    "number": _NUMERIC,
    "integer": _NUMERIC,
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "object": ("properties", "required", "additionalProperties", "patternProperties"),
}
_TYPED_KEYWORDS = frozenset(
    keyword for keywords in _KEYWORDS_BY_TYPE.values() for keyword in keywords
)
_BOUNDS: tuple[tuple[str, str, Callable[..., Any], str, Callable[[float], int]], ...] = (
    ("exclusiveMinimum", "minimum", max, "greater than", lambda bound: math.floor(bound) + 1),
    ("exclusiveMaximum", "maximum", min, "less than", lambda bound: math.ceil(bound) - 1),
)


def _without(schema: Schema, keywords: frozenset[str]) -> Schema:
    if keywords.isdisjoint(schema):
        return schema
    return {key: value for key, value in schema.items() if key not in keywords}


def _enum_for_const(schema: Schema) -> Schema:
    """Replace `const`, which was added in draft 6 and which some hosts do not support."""
    if "const" not in schema:
        return schema
    rest = {key: value for key, value in schema.items() if key != "const"}
    return {**rest, "enum": [schema["const"]]}


def _one_type_each(schema: Schema) -> Schema:
    """Convert `type: [a, b]` and an `enum` of several types to alternatives of one type each."""
    types, values = schema.get("type"), schema.get("enum")
    if types is None and values:
        types = list(dict.fromkeys(JSON_TYPES.get(type(value), "string") for value in values))
    if not isinstance(types, list) or "anyOf" in schema:
        return schema
    shared = {
        key: value for key, value in schema.items() if key not in _TYPED_KEYWORDS | {"type", "enum"}
    }
    members: list[Schema] = []
    for kind in types:
        keywords = _KEYWORDS_BY_TYPE.get(kind, ())
        member = {"type": kind, **{key: schema[key] for key in keywords if key in schema}}
        if "enum" in schema and kind != "null":
            member["enum"] = [
                value
                for value in schema["enum"]
                if (own := JSON_TYPES.get(type(value), "string")) == kind
                or (own, kind) == ("integer", "number")
            ]
        if member.get("enum") != []:
            members.append(member)
    return {**members[0], **shared} if len(members) == 1 else {"anyOf": members, **shared}


def _any_of_for_combinations(schema: Schema) -> Schema:
    """Replace `oneOf` and `allOf` by `anyOf` or a single schema where that is possible."""
    if _IN_PLACE_LISTS.isdisjoint(schema):
        return schema
    result = dict(schema)
    if "oneOf" in result and "anyOf" not in result:
        result["anyOf"] = result.pop("oneOf")
    for keyword in ("allOf", "anyOf"):
        members = _distinct(_flattened(keyword, result.get(keyword, [])))
        if len(members) == 1 and isinstance(members[0], dict):
            beside = {key: value for key, value in result.items() if key != keyword}
            merged = merge_schemas(members[0], beside)
            result = merged if "allOf" not in merged else result
        elif members:
            result[keyword] = members
    return result


_IN_PLACE_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf"})


def _flattened(keyword: str, members: list[Any]) -> list[Any]:
    """Return the members; one that has only the same keyword is replaced by its own members."""
    flat: list[Any] = []
    for member in members:
        is_nested = isinstance(member, dict) and member.keys() == {keyword}
        flat += member[keyword] if is_nested else [member]
    return flat


def _distinct(members: list[Any]) -> list[Any]:
    return [member for index, member in enumerate(members) if member not in members[:index]]


def _items_for_tuples(schema: Schema) -> Schema:
    """Convert `prefixItems` to an array whose items may have any of the types."""
    if "prefixItems" not in schema:
        return schema
    result = dict(schema)
    fixed, rest = result.pop("prefixItems"), result.get("items", {})
    if rest is False:
        result["maxItems"] = min(len(fixed), result.get("maxItems", len(fixed)))
    is_closed = rest is False or result.get("maxItems", math.inf) <= len(fixed)
    kinds = _distinct(_flattened("anyOf", fixed if is_closed else [*fixed, rest]))
    result["items"] = {} if {} in kinds else _any_of(kinds)
    return result


def _any_of(kinds: list[Any]) -> Any:
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}


def _inclusive_bounds(schema: Schema) -> Schema:
    """Replace numeric exclusive bounds, which fail in hosts that use draft 4 (booleans there)."""
    if "exclusiveMinimum" not in schema and "exclusiveMaximum" not in schema:
        return schema
    result = dict(schema)
    is_whole = schema.get("type") == "integer"
    for keyword, plain, tighter, words, step in _BOUNDS:
        bound = schema.get(keyword)
        if not is_number(bound):
            continue
        del result[keyword]
        closed = step(bound) if is_whole else bound
        result[plain] = tighter(closed, result.get(plain, closed))
        if not is_whole and result[plain] == bound:
            result[RULES_KEYWORD] = _append_rule(
                result.get(RULES_KEYWORD), f"{words} {format_number(bound)}"
            )
    return result


def _append_rule(rules: str | None, rule: str) -> str:
    return f"{rules}, {rule}" if rules else rule


def _standard_formats(schema: Schema, use: Use) -> Schema:
    """Replace a format by words if JSON Schema does not define it, or values may not have it."""
    name = schema.get("format")
    if name is None:
        return schema
    formats = _FORMATS if use.is_input else _KEPT_OUTPUT_FORMATS[use.source]
    if name in formats or (use.is_input and use.source is SchemaSource.BY_HAND):
        return schema
    lost = {"format"} if use.is_input or name not in _ENCODED else {"format", *_LENGTHS}
    result = {key: value for key, value in schema.items() if key not in lost}
    if name == "password":
        return {**result, "writeOnly": True}
    if name in {"base64", "base64url"}:
        return {**result, "contentEncoding": name}
    words = _FORMATS_IN_WORDS.get(str(name))
    if words is None and name in _FORMATS:
        words = f"a value of the format {name}"
    if words:
        result[RULES_KEYWORD] = (
            f"{words}, {schema[RULES_KEYWORD]}" if RULES_KEYWORD in schema else words
        )
    return result


_ENCODED: Final = frozenset({"uri", "iri", "uri-reference", "multi-host-uri"})
"""The formats whose values may be longer in results than the validated values."""
_LENGTHS: Final = ("minLength", "maxLength")


def _readable_pattern(schema: Schema, use: Use) -> Schema:
    """Rewrite a pattern so that all clients can compile it, or remove it if that is impossible."""
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return schema
    written = _try_pattern(pattern, use)
    if isinstance(written, str):
        return {**schema, "pattern": written}
    result = {key: value for key, value in schema.items() if key != "pattern"}
    if use.is_input:
        sentence = f"Pattern: {pattern}"
        result["description"] = append_sentence(result.get("description", ""), sentence)
    return result


def _try_pattern(pattern: str, use: Use) -> str | UnportablePattern:
    is_ecma = use.source is SchemaSource.BY_HAND
    try:
        return portable_pattern(pattern, exact=not use.is_input, is_ecma=is_ecma)
    except UnportablePattern as exc:
        return exc


def _pattern_says(schema: Schema, use: Use) -> str:
    written = _try_pattern(schema["pattern"], use)
    if isinstance(written, str):
        return f"the pattern {schema['pattern']!r} is written as {written!r}"
    return f"the pattern {schema['pattern']!r} is left out, because {written}"


def _readable_pattern_properties(schema: Schema, use: Use) -> Schema:
    """Rewrite the patterns of names; if one cannot be rewritten, all other names are allowed."""
    members = schema.get("patternProperties")
    if members is None or not isinstance(members, Mapping):
        return schema
    result = dict(schema)
    written = {_try_pattern(pattern, use): member for pattern, member in members.items()}
    result["patternProperties"] = {
        key: member for key, member in written.items() if isinstance(key, str)
    }
    if len(result["patternProperties"]) < len(members):
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            result.pop(keyword, None)
    return result


def null_for_nullable(schema: Schema, use: Use) -> Schema:
    """Replace `nullable` of OpenAPI 3.0, which JSON Schema does not have."""
    if not isinstance(schema.get("nullable"), bool):
        return schema
    rest = {key: value for key, value in schema.items() if key != "nullable"}
    if not schema["nullable"] or accepts_null(rest, rest):
        return rest
    # If the parts of the schema stay in their places, references to them stay valid.
    if isinstance(rest.get("type"), str) or "enum" in rest:
        if isinstance(rest.get("type"), str):
            rest["type"] = [rest["type"], "null"]
        return {**rest, "enum": [*rest["enum"], None]} if "enum" in rest else rest
    notes = {key: value for key, value in rest.items() if is_annotation(key)}
    values = {key: value for key, value in rest.items() if key not in notes}
    return {"anyOf": [values, {"type": "null"}], **notes}


def _without_identifiers(schema: Schema, use: Use) -> Schema:
    """Remove names of schemas: two tools with the same `$id` would share one validator."""
    if use.is_input or _IDENTIFIERS.isdisjoint(schema):
        return schema
    return {
        key: value
        for key, value in schema.items()
        if key not in {"$id", "$recursiveAnchor"} and not (key == "id" and isinstance(value, str))
    }


_IDENTIFIERS: Final = frozenset({"$id", "id", "$recursiveAnchor"})
_CONTAINS: Final = frozenset({"contains", "minContains", "maxContains"})
_UNIQUE: Final = frozenset({"uniqueItems"})


def _items_for_lists(schema: Schema, use: Use) -> Schema:
    """Convert the tuples of draft-07, a list in `items`, like those of 2020-12."""
    if use.is_input:
        return schema
    if not isinstance(schema.get("items"), list):
        return _items_for_tuples(schema)
    result = dict(schema)
    result["prefixItems"] = result.pop("items")
    if "additionalItems" in result:
        result["items"] = result.pop("additionalItems")
    return _items_for_tuples(result)


def _choices_in_words(schema: Schema, use: Use) -> Schema:
    """Move choices that are lists or objects to the description."""
    keyword = "const" if "const" in schema else "enum"
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if use.is_input or not any(isinstance(value, dict | list) for value in values):
        return schema
    result = {key: value for key, value in schema.items() if key != keyword}
    rule = " or ".join(to_json_text(value) for value in values)
    result[RULES_KEYWORD] = _append_rule(result.get(RULES_KEYWORD), rule)
    return result


def _whole_multiples(schema: Schema, use: Use) -> Schema:
    """Move a fractional `multipleOf` of results to the description: 19.99 / 0.01 is not whole."""
    step = schema.get("multipleOf")
    if use.is_input or not isinstance(step, float) or step.is_integer():
        return schema
    result = {key: value for key, value in schema.items() if key != "multipleOf"}
    rule = f"a multiple of {format_number(step)}"
    result[RULES_KEYWORD] = _append_rule(result.get(RULES_KEYWORD), rule)
    return result


def _header_bounds(schema: Schema, use: Use) -> Schema:
    """Publish the bounds of integers that are repeated in headers (MCP 2026-07-28, Transports)."""
    if not use.is_input or HEADER_KEYWORD not in schema or schema.get("type") != "integer":
        return schema
    low = number_keyword(schema, "minimum", -math.inf)
    high = number_keyword(schema, "maximum", math.inf)
    return {
        **schema,
        "minimum": max(low, -MAX_SAFE_INTEGER),
        "maximum": min(high, MAX_SAFE_INTEGER),
    }


def _digits_for_integers(schema: Schema, use: Use) -> Schema:
    """Allow digits in text where an integer may be beyond the exact integers of JavaScript."""
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _may_be_integers(use):
        return schema
    if HEADER_KEYWORD in schema or "enum" in schema:
        return schema
    is_open = not use.is_input and use.source is not SchemaSource.COLUMNS
    if not _is_beyond_exact(schema, is_open=is_open):
        return schema
    notes = {key: value for key, value in schema.items() if is_annotation(key)}
    values = {
        key: value
        for key, value in schema.items()
        if key not in notes and not (is_number(value) and abs(value) > MAX_SAFE_INTEGER)
    }
    return {"anyOf": [values, DIGITS], **notes}


def _may_be_integers(use: Use) -> frozenset[str]:
    """Return the types under which integers are sent; pydantic writes floats under `number`."""
    if use.source is not SchemaSource.BY_HAND:
        return _INTEGER
    return _NO_TYPES if use.is_input else _NUMBERS


_NO_TYPES: Final[frozenset[str]] = frozenset()
_INTEGER: Final = frozenset({"integer"})
_NUMBERS: Final = frozenset({"integer", "number"})


def _digits_in_type_lists(schema: Schema, use: Use) -> Schema:
    """Allow digits in text where one of several types, or a choice, may be an inexact integer."""
    if "enum" in schema:
        return schema if use.is_input else _digits_in_enum(schema)
    if "const" in schema:
        is_exact = exact_integers(schema["const"]) is schema["const"]
        return schema if use.is_input or is_exact else _digits_in_enum(_enum_for_const(schema))
    kinds = schema.get("type")
    is_open = not use.is_input and use.source is not SchemaSource.COLUMNS
    if not is_open or not isinstance(kinds, list) or "string" in kinds:
        return schema
    if not _may_be_integers(use) & {*kinds} or not _is_beyond_exact(schema, is_open=True):
        return schema
    return {**schema, "type": [*kinds, "string"], "pattern": DIGITS["pattern"]}


def _is_beyond_exact(schema: Schema, *, is_open: bool) -> bool:
    """Return whether an integer may be beyond ±(2^53-1); with `is_open`, also without bounds."""
    return any(
        abs(bound) > MAX_SAFE_INTEGER and (is_open or abs(bound) != math.inf)
        for bound in number_bounds(schema)
    )


def _digits_in_enum(schema: Schema) -> Schema:
    values = exact_integers(schema["enum"])
    if values is schema["enum"]:
        return schema
    result = {key: value for key, value in schema.items() if key != "type"}
    return _one_type_each({**result, "enum": values})


def _rules_in_words(schema: Schema) -> Schema:
    """Move the rules in words to the description."""
    if RULES_KEYWORD not in schema:
        return schema
    result = {key: value for key, value in schema.items() if key != RULES_KEYWORD}
    result["description"] = append_sentence(
        result.get("description", ""), f"Must be {schema[RULES_KEYWORD]}."
    )
    return result


_GENERATED: Final = frozenset({SchemaSource.TYPE, SchemaSource.COLUMNS})
_ALL: Final = frozenset(SchemaSource)
_BY_HAND: Final = frozenset({SchemaSource.BY_HAND})


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewriting step, with the sources of schemas that get it and the clients that need it.

    `clients` is empty for a step that only makes schemas shorter or plainer for hosts. `says`
    describes the change to the developer, in ``mcp inspect`` and in the admin.
    """

    rewrite: Callable[[Schema, Use], Schema]
    sources: frozenset[SchemaSource] = _GENERATED
    says: str | Callable[[Schema, Use], str] = ""
    clients: str = ""

    def change(self, before: Schema, use: Use) -> str:
        """Return the text that describes the change of a schema, or an empty text."""
        text = self.says if isinstance(self.says, str) else self.says(before, use)
        return f"{text} (for {self.clients})" if text else ""


def _plain(step: Callable[[Schema], Schema]) -> Callable[[Schema, Use], Schema]:
    return lambda schema, use: step(schema)


TYPESCRIPT: Final = "TypeScript SDK 1.32 and 2.4, Ajv 8"
_DIGITS_SAYS: Final = "integers beyond 2^53-1 are digits in text"
_JAVASCRIPT: Final = "hosts in JavaScript, which round them"

RULES: tuple[Rule, ...] = (
    Rule(lambda schema, use: _without(schema, _DROPPED_KEYWORDS)),
    Rule(
        null_for_nullable,
        _ALL,
        "nullable is written as an alternative",
        f"{TYPESCRIPT}, which need a type beside it, and Python SDK 1.30 and 2.3, which ignore it",
    ),
    Rule(_without_identifiers, _BY_HAND, "the id is left out", f"{TYPESCRIPT}, which share it"),
    Rule(
        _choices_in_words,
        _ALL,
        "the choices are in the description",
        "FastMCP 4.1 and 4.2, whose types have no lists and objects as choices",
    ),
    Rule(_plain(_enum_for_const)),
    Rule(_digits_in_type_lists, _ALL, _DIGITS_SAYS, _JAVASCRIPT),
    Rule(_plain(_one_type_each)),
    Rule(_plain(_any_of_for_combinations)),
    Rule(_plain(_items_for_tuples)),
    Rule(
        _items_for_lists,
        _BY_HAND,
        "the tuple is written as items of any of its types",
        "TypeScript SDK 1.32, which reads draft-07, and 2.4, which reads 2020-12",
    ),
    Rule(
        lambda schema, use: (
            schema
            if use.is_input or schema.get("minContains") != 0
            else _without(schema, _CONTAINS)
        ),
        _BY_HAND,
        "contains with minContains 0 is left out",
        "TypeScript SDK 1.32, which reads draft-07",
    ),
    # Different values of a set may be written alike in results.
    Rule(lambda schema, use: schema if use.is_input else _without(schema, _UNIQUE)),
    # Some hosts drop the whole server because of an array without `items`.
    Rule(
        lambda schema, use: (
            {**schema, "items": {}}
            if schema.get("type") == "array" and not isinstance(schema.get("items"), dict | list)
            else schema
        )
    ),
    Rule(_plain(_inclusive_bounds)),
    Rule(
        _whole_multiples,
        _ALL,
        "the fractional multipleOf is in the description",
        f"Python SDK 1.30 and 2.3, {TYPESCRIPT}, which divide floats",
    ),
    Rule(
        _header_bounds,
        _ALL,
        "the bounds are those of an integer that a header can repeat",
        "clients that store numbers as doubles",
    ),
    Rule(
        _digits_for_integers,
        _ALL,
        _DIGITS_SAYS,
        _JAVASCRIPT,
    ),
    Rule(_readable_pattern, _ALL, _pattern_says, f"{TYPESCRIPT} with the flag u"),
    Rule(
        _readable_pattern_properties,
        _ALL,
        "the patterns of names are written anew or left out",
        f"{TYPESCRIPT} with the flag u",
    ),
    Rule(
        _standard_formats,
        _ALL,
        lambda schema, use: (
            f"the format {schema['format']} is in the description"
            if not use.is_input and schema["format"] in _FORMATS
            else ""
        ),
        f"{TYPESCRIPT} with ajv-formats 3, which reject values that do not have it",
    ),
    Rule(_plain(_rules_in_words), _ALL),
)
RULES_BY_SOURCE: Mapping[SchemaSource, tuple[Rule, ...]] = {
    source: tuple(rule for rule in RULES if source in rule.sources) for source in SchemaSource
}
