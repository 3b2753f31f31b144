"""Conversion of schemas to the subset of JSON Schema that every host and client supports.

A single schema with a reference, a type array or an array without ``items`` makes some hosts drop a
tool, and others drop the whole server; the validators of clients reject results because of a
pattern, a format or a fraction. ``portable_input`` and ``portable_output`` rewrite schemas from
pydantic or other sources by the table ``RULES``; ``to_strict`` converts a portable schema to the
dialect in which every member is required; ``lint`` reports what hosts will still reject.

The functions return new dictionaries and are idempotent. The published schema may accept more than
the original, but not less (except that it may allow only one of ``null`` and omitting an optional
member): arguments are validated by the declared type, not by this schema, and a result that fits
the declared type fits this schema in every client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, TypeGuard

from mcp_django.protocol.headers import (
    HEADER_KEYWORD,
    MAX_SAFE_INTEGER,
    map_placed_subschemas,
    map_subschemas,
    subschemas,
)
from mcp_django.schema.arguments import to_json_text
from mcp_django.schema.patterns import UnportablePattern, portable_pattern
from mcp_django.schema.structure import (
    JSON_TYPES,
    Path,
    Schema,
    accepts_null,
    inline_references,
    is_annotation,
    merge_schemas,
    number_bounds,
    number_keyword,
    walk,
)
from mcp_django.schema.values import exact_integers


class SchemaSource(Enum):
    """Where a schema comes from, which decides what it promises about its values."""

    TYPE = "type"
    """A Python type: pydantic validates and writes the values."""
    COLUMNS = "columns"
    """The site's models, forms and filters: the values are built to fit the schema."""
    BY_HAND = "by hand"
    """The author's JSON Schema, whose keywords are kept where possible."""


class SchemaChange(NamedTuple):
    """One place of a schema that a rule changed because some client rejects it."""

    path: Path
    text: str
    """What was changed, and for which client."""

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.path)) or 'root'}: {self.text}"


class PortableSchema(dict[str, Any]):
    """A published schema, with the changes that were made for clients' validators."""

    def __init__(self, schema: Schema, changes: Iterable[SchemaChange]) -> None:
        super().__init__(schema)
        self.changes = tuple(changes)


def portable_input(schema: Schema, source: SchemaSource = SchemaSource.TYPE) -> PortableSchema:
    """Return a portable schema for arguments: an object with named members and no others.

    Raises:
        ValueError: the root is not an object, or the schema is too large without references.
    """
    tidy, changes = _rewrite(schema, _Use(is_input=True, source=source))
    if tidy.get("type") != "object" or "anyOf" in tidy:
        raise ValueError("Arguments have names, so the root of their schema must be an object.")
    keywords = {key: tidy[key] for key in ("required", "$defs", "definitions") if tidy.get(key)}
    properties = tidy.get("properties", {})
    closed = {"type": "object", "properties": properties, **keywords, "additionalProperties": False}
    return PortableSchema(closed, changes)


def portable_output(schema: Schema, source: SchemaSource = SchemaSource.TYPE) -> PortableSchema:
    """Return a portable schema for results; its root may have any type, and `null` is kept.

    Raises:
        ValueError: the schema is too large without references.
    """
    return PortableSchema(*_rewrite(schema, _Use(is_input=False, source=source)))


def readable_by_clients(schema: Schema, *, is_input: bool) -> PortableSchema:
    """Return an author's schema, changed only where the validators of clients reject it."""
    use = _Use(is_input=is_input, source=SchemaSource.BY_HAND)
    # No known client validates arguments.
    plain = schema if is_input else _plain_references(schema)
    if plain != schema:
        text = "references are pointers into $defs, or written out"
        use.changes.append(SchemaChange((), f"{text} (for {_TYPESCRIPT}, and FastMCP 4)"))
    changed: Schema = _apply(plain, use, ())
    if not is_input and changed != plain:
        changed = _without_stricter_rules(changed)
    return PortableSchema(changed, use.changes)


def without_nullable(schema: Schema) -> Schema:
    """Return an author's schema with alternatives for `nullable`, which validators do not know."""
    use = _Use(is_input=True, source=SchemaSource.BY_HAND)

    def rewrite(member: Any) -> Any:
        if not isinstance(member, dict):
            return member
        return _null_for_nullable(map_subschemas(member, rewrite), use)

    result: Schema = rewrite(schema)
    return result


def _without_stricter_rules(schema: Any) -> Any:
    """Return a schema without rules that reject more when other parts of the schema accept more."""
    if not isinstance(schema, dict):
        return schema
    result = map_subschemas(schema, _without_stricter_rules)
    # `{"not": {}}` replaces `false`, so it is kept.
    for keyword in _STRICTER if result.get("not") != {} else _STRICTER - {"not"}:
        result.pop(keyword, None)
    if "oneOf" in result:
        members = result.pop("oneOf")
        result.setdefault("anyOf", members)
    return result


_STRICTER: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedProperties", "unevaluatedItems"}
)


def _plain_references(schema: Schema) -> Schema:
    """Return the schema with each reference by name as a pointer into `$defs`, or inlined.

    The validators of clients differ in their support for `$anchor`, `$dynamicRef` and
    `$recursiveRef`, and in how they treat keywords beside a reference in draft-07. In a single
    document, `$dynamicRef` and `$recursiveRef` are the same as `$ref`.
    """
    paths_by_name = {
        member[keyword]: path
        for path, member in walk(schema)
        for keyword in ("$anchor", "$dynamicAnchor")
        if isinstance(member.get(keyword), str)
    }
    ignores_siblings = "draft-07" in str(schema.get("$schema", ""))

    def rewrite(member: Any) -> Any:
        if not isinstance(member, dict):
            return member
        result = map_subschemas(member, rewrite)
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in result and "$ref" not in result:
                result["$ref"] = result.pop(keyword)
        name = str(result.get("$ref", ""))[1:]
        if name in paths_by_name:
            steps = (
                str(step).replace("~", "~0").replace("/", "~1") for step in paths_by_name[name]
            )
            result["$ref"] = "/".join(("#", *steps))
        if ignores_siblings and "$ref" in result:
            keywords = ("$ref", "$schema", *_DEFINITIONS)
            return {k: v for k, v in result.items() if k in keywords or is_annotation(k)}
        return result

    plain: Schema = rewrite(schema)
    pointers = {str(member["$ref"]) for _, member in walk(plain) if "$ref" in member}
    # A rule may move the targets of other pointers, so these references are inlined.
    if not all(pointer == "#" or _DEFINITION.fullmatch(pointer) for pointer in pointers):
        plain = inline_references(plain)
    elif "#" in pointers and plain.get("type") != "object":
        plain = _with_named_root(plain)
    return schema if plain == schema else _without_anchors(plain)


def _without_anchors(schema: Any) -> Any:
    """Return a schema without its anchors, because there may be copies of a named part."""
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: value for key, value in schema.items() if key not in {"$anchor", "$dynamicAnchor"}
    }
    return map_subschemas(plain, _without_anchors)


def _with_named_root(schema: Schema) -> Schema:
    """Return a recursive schema with its root in `$defs`, where FastMCP 4 also reads lists."""
    taken_names = schema.get("$defs", {})
    name = next(
        f"Root{'_' * n}" for n in range(len(taken_names) + 1) if f"Root{'_' * n}" not in taken_names
    )

    def rewrite(member: Any) -> Any:
        if not isinstance(member, dict):
            return member
        result = map_subschemas(member, rewrite)
        return {**result, "$ref": f"#/$defs/{name}"} if result.get("$ref") == "#" else result

    body: Schema = rewrite({key: value for key, value in schema.items() if key != "$defs"})
    definitions = {key: rewrite(value) for key, value in schema.get("$defs", {}).items()}
    inner = {key: value for key, value in body.items() if key != "$schema"}
    return {**body, "$defs": {**definitions, name: inner}}


_DEFINITIONS: Final = ("$defs", "definitions")
_DEFINITION: Final = re.compile(r"#/(?:\$defs|definitions)/[^/]+")


@dataclass(frozen=True, slots=True)
class _Use:
    """The use and the source of a schema, and the changes so far."""

    is_input: bool
    source: SchemaSource
    changes: list[SchemaChange] = field(default_factory=list)


def _rewrite(schema: Schema, use: _Use) -> tuple[Schema, tuple[SchemaChange, ...]]:
    result: Schema = _apply(inline_references(schema), use, ())
    changes = (*getattr(schema, "changes", ()), *use.changes)
    # A rewrite may remove the last reference that made a type recursive.
    has_references = "$defs" in result or "definitions" in result
    if not has_references or result == schema:
        return result, changes
    again, more = _rewrite(result, _Use(is_input=use.is_input, source=use.source))
    return again, (*changes, *more)


def _apply(schema: Any, use: _Use, path: Path, place: Path = ()) -> Any:
    """Return the schema with all rules applied; `place` is its place in the parent schema."""
    if isinstance(schema, bool):
        is_flag = place in _FLAGS and (use.source is SchemaSource.BY_HAND or not schema)
        if not is_flag and use.source is SchemaSource.BY_HAND:
            use.changes.append(
                SchemaChange(path, f"{str(schema).lower()} is an object ({_BOOLEANS})")
            )
        return schema if is_flag else {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        return schema

    def apply(step: Path, child: Any) -> Any:
        return _apply(child, use, (*path, *step), step)

    result = map_placed_subschemas(schema, apply)
    # Every dialect supports `additionalProperties: true`, but not every dialect an empty schema.
    if schema.get("additionalProperties") is True:
        result["additionalProperties"] = True
    for rule in _RULES_BY_SOURCE[use.source]:
        changed = rule.rewrite(result, use)
        if changed is result:
            continue
        if changed != result and (text := rule.change(result, use)):
            use.changes.append(SchemaChange(path, text))
        result = changed
    is_generated_input = use.is_input and use.source is not SchemaSource.BY_HAND
    return _without_optional_null(result) if is_generated_input else result


# Rewriting steps ----------------------------------------------------------------------------------

# Each step rewrites one schema, whose subschemas are already rewritten. All steps together make an
# arbitrary schema portable. ``lint`` describes what hosts do without them.

RULES_KEYWORD: Final = "x-rules"
"""Rules in words that portable keywords cannot express; added to the description."""

LOCAL_DATETIME: Final = "local-date-time"
"""The format of a date and time that may lack an offset; JSON Schema does not define it."""

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

BY_HAND_KEYWORD: Final = "x-by-hand"
"""Marks a part of pydantic's schema to which the author added keywords."""

_DROPPED_KEYWORDS = frozenset(
    {"title", "$schema", "$comment", "discriminator", "propertyNames", BY_HAND_KEYWORD}
)

_FLAGS: Final = frozenset(
    (keyword,)
    for keyword in (
        *("additionalProperties", "items", "unevaluatedProperties", "unevaluatedItems"),
        *("additionalItems", "propertyNames"),
    )
)
"""Where a schema may be a boolean: TypeScript SDK 1.32 requires objects below `properties`."""

DIGITS: Final[Schema] = {"type": "string", "pattern": "^-?[0-9]+$"}
"""An integer as text, since JavaScript rounds numbers beyond 2^53-1 (RFC 7493, section 2.2)."""
LARGE_INTEGER: Final[Schema] = {"anyOf": [{"type": "integer"}, DIGITS]}
"""An integer that may be beyond 2^53-1."""

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


def format_number(value: float) -> str:
    """Return a number as text without a trailing `.0`: `5`, not `5.0`."""
    return str(value).removesuffix(".0")


def append_sentence(text: str, sentence: str) -> str:
    """Return `text` with a sentence appended, and with a full stop between them if needed."""
    text = text.rstrip()
    if not text:
        return sentence
    return f"{text} {sentence}" if re.search(r"[.!?:]$", text) else f"{text}. {sentence}"


def _drop_keywords(schema: Schema) -> Schema:
    """Remove keywords that repeat a name or are not for hosts."""
    if _DROPPED_KEYWORDS.isdisjoint(schema):
        return schema
    return {key: value for key, value in schema.items() if key not in _DROPPED_KEYWORDS}


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


def _add_items(schema: Schema) -> Schema:
    """Add `items` to an array without it, because some hosts then drop the whole server."""
    is_bare = schema.get("type") == "array" and not isinstance(schema.get("items"), dict | list)
    return {**schema, "items": {}} if is_bare else schema


def _inclusive_bounds(schema: Schema) -> Schema:
    """Replace numeric exclusive bounds, which fail in hosts that use draft 4 (booleans there)."""
    if "exclusiveMinimum" not in schema and "exclusiveMaximum" not in schema:
        return schema
    result = dict(schema)
    is_whole = schema.get("type") == "integer"
    for keyword, plain, tighter, words, step in _BOUNDS:
        bound = schema.get(keyword)
        if not _is_number(bound):
            continue
        del result[keyword]
        closed = step(bound) if is_whole else bound
        result[plain] = tighter(closed, result.get(plain, closed))
        if not is_whole and result[plain] == bound:
            result[RULES_KEYWORD] = _append_rule(
                result.get(RULES_KEYWORD), f"{words} {format_number(bound)}"
            )
    return result


def _is_number(value: Any) -> TypeGuard[float]:
    """Return whether a bound is a number; in draft 4 it could be a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _append_rule(rules: str | None, rule: str) -> str:
    return f"{rules}, {rule}" if rules else rule


def _standard_formats(schema: Schema, use: _Use) -> Schema:
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


def _without_unique_items(schema: Schema, use: _Use) -> Schema:
    """Remove `uniqueItems` of results: different values of a set may be written alike."""
    if use.is_input or "uniqueItems" not in schema:
        return schema
    return {key: value for key, value in schema.items() if key != "uniqueItems"}


def _readable_pattern(schema: Schema, use: _Use) -> Schema:
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


def _try_pattern(pattern: str, use: _Use) -> str | UnportablePattern:
    is_ecma = use.source is SchemaSource.BY_HAND
    try:
        return portable_pattern(pattern, exact=not use.is_input, is_ecma=is_ecma)
    except UnportablePattern as exc:
        return exc


def _pattern_says(schema: Schema, use: _Use) -> str:
    written = _try_pattern(schema["pattern"], use)
    if isinstance(written, str):
        return f"the pattern {schema['pattern']!r} is written as {written!r}"
    return f"the pattern {schema['pattern']!r} is left out, because {written}"


def _readable_pattern_properties(schema: Schema, use: _Use) -> Schema:
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


def _null_for_nullable(schema: Schema, use: _Use) -> Schema:
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


def _without_identifiers(schema: Schema, use: _Use) -> Schema:
    """Remove names of schemas: two tools with the same `$id` would share one validator."""
    if use.is_input or _IDENTIFIERS.isdisjoint(schema):
        return schema
    return {
        key: value
        for key, value in schema.items()
        if key not in {"$id", "$recursiveAnchor"} and not (key == "id" and isinstance(value, str))
    }


_IDENTIFIERS: Final = frozenset({"$id", "id", "$recursiveAnchor"})


def _items_for_lists(schema: Schema, use: _Use) -> Schema:
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


def _choices_in_words(schema: Schema, use: _Use) -> Schema:
    """Move choices that are lists or objects to the description."""
    keyword = "const" if "const" in schema else "enum"
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if use.is_input or not any(isinstance(value, dict | list) for value in values):
        return schema
    result = {key: value for key, value in schema.items() if key != keyword}
    rule = " or ".join(to_json_text(value) for value in values)
    result[RULES_KEYWORD] = _append_rule(result.get(RULES_KEYWORD), rule)
    return result


def _without_optional_contains(schema: Schema, use: _Use) -> Schema:
    """Remove `contains` with `minContains: 0`, which draft-07 does not have."""
    if use.is_input or schema.get("minContains") != 0:
        return schema
    return {
        key: value
        for key, value in schema.items()
        if key not in {"contains", "minContains", "maxContains"}
    }


def _whole_multiples(schema: Schema, use: _Use) -> Schema:
    """Move a fractional `multipleOf` of results to the description: 19.99 / 0.01 is not whole."""
    step = schema.get("multipleOf")
    if use.is_input or not isinstance(step, float) or step.is_integer():
        return schema
    result = {key: value for key, value in schema.items() if key != "multipleOf"}
    rule = f"a multiple of {format_number(step)}"
    result[RULES_KEYWORD] = _append_rule(result.get(RULES_KEYWORD), rule)
    return result


def _header_bounds(schema: Schema, use: _Use) -> Schema:
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


def _digits_for_integers(schema: Schema, use: _Use) -> Schema:
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
        if key not in notes and not (_is_number(value) and abs(value) > MAX_SAFE_INTEGER)
    }
    return {"anyOf": [values, DIGITS], **notes}


def _may_be_integers(use: _Use) -> frozenset[str]:
    """Return the types under which integers are sent; pydantic writes floats under `number`."""
    if use.source is not SchemaSource.BY_HAND:
        return _INTEGER
    return _NO_TYPES if use.is_input else _NUMBERS


_NO_TYPES: Final[frozenset[str]] = frozenset()
_INTEGER: Final = frozenset({"integer"})
_NUMBERS: Final = frozenset({"integer", "number"})


def _digits_in_type_lists(schema: Schema, use: _Use) -> Schema:
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


def _without_optional_null(schema: Schema) -> Schema:
    """Remove `null` from optional members, for which it means the same as omitting them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    required = schema.get("required", ())
    return schema | {
        "properties": {
            name: member if name in required else _remove_null(member)
            for name, member in properties.items()
        }
    }


def _remove_null(schema: Any) -> Any:
    # With a default other than null, `null` and omitting the member are different.
    if not isinstance(schema, dict) or schema.get("default") is not None:
        return schema
    result = dict(schema)
    if "anyOf" in result:
        members = [member for member in result.pop("anyOf") if member != {"type": "null"}]
        if len(members) == 1:
            return _remove_null(merge_schemas(members[0], result))
        result["anyOf"] = members
    if not accepts_null(result, result):
        result.pop("default", None)
    return result


# The table of rules -------------------------------------------------------------------------------

_GENERATED: Final = frozenset({SchemaSource.TYPE, SchemaSource.COLUMNS})
_ALL: Final = frozenset(SchemaSource)
_BY_HAND: Final = frozenset({SchemaSource.BY_HAND})


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewriting step, with the sources of schemas that get it and the clients that need it.

    `clients` is empty for a step that only makes schemas shorter or plainer for hosts. `says`
    describes the change to the developer, in ``mcp inspect`` and in the admin.
    """

    rewrite: Callable[[Schema, _Use], Schema]
    sources: frozenset[SchemaSource] = _GENERATED
    says: str | Callable[[Schema, _Use], str] = ""
    clients: str = ""

    def change(self, before: Schema, use: _Use) -> str:
        """Return the text that describes the change of a schema, or an empty text."""
        text = self.says if isinstance(self.says, str) else self.says(before, use)
        return f"{text} (for {self.clients})" if text else ""


def _plain(step: Callable[[Schema], Schema]) -> Callable[[Schema, _Use], Schema]:
    return lambda schema, use: step(schema)


_BOOLEANS: Final = "for TypeScript SDK 1.32, which requires objects"
_TYPESCRIPT: Final = "TypeScript SDK 1.32 and 2.4, Ajv 8"
_DIGITS_SAYS: Final = "integers beyond 2^53-1 are digits in text"
_JAVASCRIPT: Final = "hosts in JavaScript, which round them"

RULES: tuple[Rule, ...] = (
    Rule(_plain(_drop_keywords)),
    Rule(
        _null_for_nullable,
        _ALL,
        "nullable is written as an alternative",
        f"{_TYPESCRIPT}, which need a type beside it, and Python SDK 1.30 and 2.3, which ignore it",
    ),
    Rule(_without_identifiers, _BY_HAND, "the id is left out", f"{_TYPESCRIPT}, which share it"),
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
        _without_optional_contains,
        _BY_HAND,
        "contains with minContains 0 is left out",
        "TypeScript SDK 1.32, which reads draft-07",
    ),
    Rule(_without_unique_items),
    Rule(_plain(_add_items)),
    Rule(_plain(_inclusive_bounds)),
    Rule(
        _whole_multiples,
        _ALL,
        "the fractional multipleOf is in the description",
        f"Python SDK 1.30 and 2.3, {_TYPESCRIPT}, which divide floats",
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
    Rule(_readable_pattern, _ALL, _pattern_says, f"{_TYPESCRIPT} with the flag u"),
    Rule(
        _readable_pattern_properties,
        _ALL,
        "the patterns of names are written anew or left out",
        f"{_TYPESCRIPT} with the flag u",
    ),
    Rule(
        _standard_formats,
        _ALL,
        lambda schema, use: (
            f"the format {schema['format']} is in the description"
            if not use.is_input and schema["format"] in _FORMATS
            else ""
        ),
        f"{_TYPESCRIPT} with ajv-formats 3, which reject values that do not have it",
    ),
    Rule(_plain(_rules_in_words), _ALL),
)
_RULES_BY_SOURCE: Mapping[SchemaSource, tuple[Rule, ...]] = {
    source: tuple(rule for rule in RULES if source in rule.sources) for source in SchemaSource
}


# The strict dialect -------------------------------------------------------------------------------

# Every member is required, and no others are allowed. Some model APIs guarantee arguments that
# match the schema exactly, if every object lists all its members as required and optional ones may
# be ``null``. This is opt-in, because the dialect is less expressive: it has no defaults and no
# maps with free keys.

_NON_STRICT_KEYWORDS = frozenset({"default", "uniqueItems"})


def to_strict(schema: Schema) -> Schema:
    """Return a portable schema in the strict dialect.

    Raises:
        ValueError: the schema has a map with free keys, which the dialect cannot describe.
    """
    for path, member in walk(schema):
        has_free_keys = (
            "properties" not in member
            or member.get("additionalProperties")
            or "patternProperties" in member
        )
        if member.get("type") == "object" and has_free_keys:
            where = "/".join(map(str, path)) or "the root"
            raise ValueError(
                f"The strict dialect cannot describe the object at {where}, because its keys are "
                "not fixed; use a list of objects with a key and a value instead."
            )
    result: Schema = _strict(schema, root=schema)
    return result


def _strict(schema: Any, *, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "object":
        required = schema.get("required", ())
        properties = {
            name: member
            if name in required or not isinstance(member, dict)
            else _nullable(member, root)
            for name, member in schema["properties"].items()
        }
        schema = {**schema, "properties": properties, "additionalProperties": False}
        if properties:
            schema["required"] = list(properties)
    result = map_subschemas(schema, lambda child: _strict(child, root=root))
    return {key: value for key, value in result.items() if key not in _NON_STRICT_KEYWORDS}


def _nullable(member: Schema, root: Schema) -> Schema:
    member = dict(member)
    default = member.pop("default", None)
    shared = {"description": member.pop("description")} if "description" in member else {}
    if default is not None:
        sentence = f"Default: {to_json_text(default)}."
        shared["description"] = append_sentence(shared.get("description", ""), sentence)
    if accepts_null(root, member):
        return {**member, **shared}
    kinds = member.pop("anyOf") if set(member) == {"anyOf"} else [member]
    return {"anyOf": [*kinds, {"type": "null"}], **shared}


# Problems that hosts have with a schema -----------------------------------------------------------

# For hand-written schemas, and for schemas that cannot be rewritten. Each finding is one sentence
# with the place in the schema, for a system check. ``lint`` checks only portability; the schema is
# validated when it is compiled.

MAX_PORTABLE_DEPTH = 10

_COMBINATIONS = ("anyOf", "oneOf", "allOf", "not", "if")

_KEYWORD_FINDINGS: Mapping[str, str] = {
    "$ref": "uses a reference; write the definition where it is used",
    "oneOf": "uses oneOf; write anyOf",
    "allOf": "uses allOf; write one schema with all members",
    "not": "uses not; put the rule into the description",
    "if": "uses if/then/else; put the rule into the description",
    "const": "uses const; write an enum of one value",
    "prefixItems": "uses prefixItems; write items",
    "patternProperties": "uses patternProperties; write additionalProperties",
    "propertyNames": "uses propertyNames; put the rule into the description",
    "unevaluatedProperties": "uses unevaluatedProperties; write additionalProperties",
    "dependentSchemas": "uses dependentSchemas; put the rule into the description",
    "$dynamicRef": "uses a dynamic reference; write the definition where it is used",
}


def lint(schema: Schema) -> list[str]:
    """Return one sentence for each part of the schema that some hosts reject or misread."""
    findings = []
    if schema.get("type") != "object":
        findings.append("root: is not of type object; some hosts drop every tool of the server.")
    if "properties" not in schema:
        findings.append("root: has no properties; write an empty object for none.")
    findings += [
        f"root: combines schemas with {keyword}; some hosts drop the tool."
        for keyword in _COMBINATIONS
        if keyword in schema
    ]
    for path, member in walk(schema):
        where = "/".join(map(str, path)) or "root"
        findings += [f"{where}: {finding}." for finding in _lint_member(path, member)]
    return findings


def _lint_member(path: Path, schema: Schema) -> list[str]:
    findings = [
        text
        for keyword, text in _KEYWORD_FINDINGS.items()
        if keyword in schema and (path or keyword not in _COMBINATIONS)
    ]
    items = schema.get("items")
    inner = items.get("items") if isinstance(items, dict) else None
    bounds = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    structure = {
        "has several types; write anyOf": isinstance(schema.get("type"), list),
        "has an enum without a type": "enum" in schema and "type" not in schema,
        "is an array without items": (
            schema.get("type") == "array" and not isinstance(items, dict)
        ),
        "has an exclusive bound; write minimum or maximum": any(map(_is_number, bounds)),
        "has true or false in place of a schema; write an object": any(
            isinstance(child, bool) and place not in {("additionalProperties",), ("items",)}
            for place, child in subschemas(schema)
        ),
        "is an array of arrays of objects": (
            isinstance(inner, dict) and inner.get("type") == "object"
        ),
    }
    findings += [text for text, applies in structure.items() if applies]
    # How many objects and arrays of a value enclose this place.
    depth = sum(step in {"properties", "items", "additionalProperties"} for step in path)
    if depth == MAX_PORTABLE_DEPTH + 1:
        findings.append(f"is nested deeper than {MAX_PORTABLE_DEPTH} levels")
    return findings
