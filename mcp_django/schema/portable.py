"""Conversion of schemas to the subset of JSON Schema that every host supports.

A single schema with a reference, a type array or an array without ``items`` makes some hosts drop a
tool, and others drop the whole server. ``portable_input`` and ``portable_output`` rewrite schemas
from pydantic or other sources; ``to_strict`` converts a portable schema to the dialect in which
every member is required; ``lint`` reports what hosts will still reject.

The functions return new dictionaries and are idempotent. The published schema may accept more than
the original, but not less (except that it may allow only one of ``null`` and omitting an optional
member): arguments are validated by the declared type, not by this schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeGuard

from mcp_django.protocol.headers import map_subschemas, subschemas
from mcp_django.schema.arguments import to_json_text
from mcp_django.schema.structure import (
    JSON_TYPES,
    Path,
    Schema,
    accepts_null,
    inline_references,
    merge_schemas,
    walk,
)


def portable_input(schema: Schema) -> Schema:
    """Return a portable schema for arguments: an object with named members and no others.

    Raises:
        ValueError: the root is not an object, or the schema is too large without references.
    """
    tidy = _rewrite(schema, is_input=True)
    if tidy.get("type") != "object" or "anyOf" in tidy:
        raise ValueError("Arguments have names, so the root of their schema must be an object.")
    kept = {key: tidy[key] for key in ("required", "$defs", "definitions") if tidy.get(key)}
    properties = tidy.get("properties", {})
    return {"type": "object", "properties": properties, **kept, "additionalProperties": False}


def portable_output(schema: Schema) -> Schema:
    """Return a portable schema for results; its root may have any type, and `null` is kept.

    Raises:
        ValueError: the schema is too large without references.
    """
    return _rewrite(schema, is_input=False)


def _rewrite(schema: Schema, *, is_input: bool) -> Schema:
    result: Schema = _rewrite_recursively(inline_references(schema), is_input=is_input)
    # A rewrite may remove the last reference that made a type recursive.
    has_references = "$defs" in result or "definitions" in result
    return _rewrite(result, is_input=is_input) if has_references and result != schema else result


def _rewrite_recursively(schema: Any, *, is_input: bool) -> Any:
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        return schema
    result = map_subschemas(schema, partial(_rewrite_recursively, is_input=is_input))
    # Every dialect supports `additionalProperties: true`, but not every one an empty schema.
    if schema.get("additionalProperties") is True:
        result["additionalProperties"] = True
    for rewrite in _REWRITES:
        result = rewrite(result)
    return _without_optional_null(result) if is_input else result


# Rewriting steps ----------------------------------------------------------------------------------

# Each step rewrites one schema, whose subschemas are already rewritten. All steps together make an
# arbitrary schema portable. ``lint`` describes what hosts do without them.

RULES_KEYWORD: Final = "x-rules"
"""Rules in words that portable keywords cannot express; added to the description."""

_FORMATS: Final = frozenset(
    {
        *("date-time", "date", "time", "duration", "email", "idn-email", "hostname"),
        *("idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid"),
        *("uri-template", "json-pointer", "relative-json-pointer", "regex"),
    }
)
"""JSON Schema 2020-12, "Validation", section 7.3."""

_FORMATS_IN_WORDS: Mapping[str, str] = {
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

_DROPPED_KEYWORDS = frozenset({"title", "$schema", "$comment", "discriminator", "propertyNames"})

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
    members = [_of_type(schema, kind) for kind in types]
    members = [member for member in members if member.get("enum") != []]
    return {**members[0], **shared} if len(members) == 1 else {"anyOf": members, **shared}


def _of_type(schema: Schema, kind: str) -> Schema:
    member: Schema = {"type": kind}
    member |= {key: schema[key] for key in _KEYWORDS_BY_TYPE.get(kind, ()) if key in schema}
    if "enum" in schema and kind != "null":
        member["enum"] = [value for value in schema["enum"] if _is_of_type(value, kind)]
    return member


def _is_of_type(value: Any, kind: str) -> bool:
    own = JSON_TYPES.get(type(value), "string")
    return own == kind or (own, kind) == ("integer", "number")


def _any_of_for_combinations(schema: Schema) -> Schema:
    """Replace `oneOf` and `allOf` by `anyOf` or a single schema where that is possible."""
    result = dict(schema)
    if "oneOf" in result and "anyOf" not in result:
        result["anyOf"] = result.pop("oneOf")
    for keyword in ("allOf", "anyOf"):
        members = _distinct(result.get(keyword, []))
        if len(members) == 1 and isinstance(members[0], dict):
            beside = {key: value for key, value in result.items() if key != keyword}
            merged = merge_schemas(members[0], beside)
            result = merged if "allOf" not in merged else result
        elif members:
            result[keyword] = members
    return result


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
    kinds = _distinct(fixed if is_closed else [*fixed, rest])
    result["items"] = {} if {} in kinds else _any_of(kinds)
    return result


def _any_of(kinds: list[Any]) -> Any:
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}


def _add_items(schema: Schema) -> Schema:
    """Add `items` to an array without it, because some hosts then drop the whole server."""
    is_bare = schema.get("type") == "array" and not isinstance(schema.get("items"), dict | list)
    return {**schema, "items": {}} if is_bare else schema


def _inclusive_bounds(schema: Schema) -> Schema:
    """Replace numeric exclusive bounds, which fail in hosts that use draft 4 (a boolean there)."""
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


def _standard_formats(schema: Schema) -> Schema:
    """Replace a format that JSON Schema does not define by words; validators warn about it."""
    name = schema.get("format")
    if name is None or name in _FORMATS:
        return schema
    result = {key: value for key, value in schema.items() if key != "format"}
    if name == "password":
        return {**result, "writeOnly": True}
    if words := _FORMATS_IN_WORDS.get(str(name)):
        result[RULES_KEYWORD] = (
            f"{words}, {schema[RULES_KEYWORD]}" if RULES_KEYWORD in schema else words
        )
    return result


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


_REWRITES: tuple[Callable[[Schema], Schema], ...] = (
    _drop_keywords,
    _enum_for_const,
    _one_type_each,
    _any_of_for_combinations,
    _items_for_tuples,
    _add_items,
    _inclusive_bounds,
    _standard_formats,
    _rules_in_words,
)


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
        if member.get("type") == "object" and _has_free_keys(member):
            where = "/".join(map(str, path)) or "the root"
            raise ValueError(
                f"The strict dialect cannot describe the object at {where}, because its keys are "
                "not fixed; use a list of objects with a key and a value instead."
            )
    result: Schema = _strict(schema, root=schema)
    return result


def _has_free_keys(schema: Schema) -> bool:
    if "properties" not in schema:
        return True
    return bool(schema.get("additionalProperties")) or "patternProperties" in schema


def _strict(schema: Any, *, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    complete = _all_required(schema, root=root) if schema.get("type") == "object" else schema
    result = map_subschemas(complete, lambda child: _strict(child, root=root))
    return {key: value for key, value in result.items() if key not in _NON_STRICT_KEYWORDS}


def _all_required(schema: Schema, *, root: Schema) -> Schema:
    required = schema.get("required", ())
    properties = {
        name: member
        if name in required or not isinstance(member, dict)
        else _nullable(member, root)
        for name, member in schema["properties"].items()
    }
    result = {**schema, "properties": properties, "additionalProperties": False}
    return {**result, "required": list(properties)} if properties else result


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
    findings = _lint_root(schema)
    for path, member in walk(schema):
        where = "/".join(map(str, path)) or "root"
        findings += [f"{where}: {finding}." for finding in _lint_member(path, member)]
    return findings


def _lint_root(schema: Schema) -> list[str]:
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
    return findings


def _lint_member(path: Path, schema: Schema) -> list[str]:
    findings = [
        text
        for keyword, text in _KEYWORD_FINDINGS.items()
        if keyword in schema and (path or keyword not in _COMBINATIONS)
    ]
    findings += [text for matches, text in _STRUCTURE_FINDINGS if matches(schema)]
    if _depth(path) == MAX_PORTABLE_DEPTH + 1:
        findings.append(f"is nested deeper than {MAX_PORTABLE_DEPTH} levels")
    return findings


def _depth(path: Path) -> int:
    """Return how many objects and arrays of a value enclose this place."""
    return sum(step in {"properties", "items", "additionalProperties"} for step in path)


def _has_bare_array(schema: Schema) -> bool:
    is_array = schema.get("type") == "array"
    return is_array and not isinstance(schema.get("items"), dict)


def _has_boolean_schema(schema: Schema) -> bool:
    return any(
        isinstance(child, bool) and path not in {("additionalProperties",), ("items",)}
        for path, child in subschemas(schema)
    )


def _has_exclusive_bound(schema: Schema) -> bool:
    return _is_number(schema.get("exclusiveMinimum")) or _is_number(schema.get("exclusiveMaximum"))


def _nests_arrays_of_objects(schema: Schema) -> bool:
    items = schema.get("items")
    inner = items.get("items") if isinstance(items, dict) else None
    return isinstance(inner, dict) and inner.get("type") == "object"


_STRUCTURE_FINDINGS: tuple[tuple[Callable[[Schema], bool], str], ...] = (
    (lambda schema: isinstance(schema.get("type"), list), "has several types; write anyOf"),
    (lambda schema: "enum" in schema and "type" not in schema, "has an enum without a type"),
    (_has_bare_array, "is an array without items"),
    (_has_exclusive_bound, "has an exclusive bound; write minimum or maximum"),
    (_has_boolean_schema, "has true or false in place of a schema; write an object"),
    (_nests_arrays_of_objects, "is an array of arrays of objects"),
)
