"""Conversion of schemas to the subset of JSON Schema that every host and client supports.

A single schema with a reference, a type array or an array without ``items`` makes some hosts drop a
tool, and others drop the whole server; the validators of clients reject results because of a
pattern, a format or a fraction. ``portable_input`` and ``portable_output`` rewrite schemas from
pydantic or other sources by the table ``RULES`` of ``rewriting``; ``to_strict`` of ``signature``
converts a portable schema to the dialect in which every member is required; ``lint`` reports what
hosts will still reject.

The functions return new dictionaries and are idempotent. The published schema may accept more than
the original, but not less (except that it may allow only one of ``null`` and omitting an optional
member): arguments are validated by the declared type, not by this schema, and a result that fits
the declared type fits this schema in every client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from mcp_django.protocol.headers import map_placed_subschemas, map_subschemas
from mcp_django.schema.rewriting import (
    RULES_BY_SOURCE,
    TYPESCRIPT,
    SchemaChange,
    Use,
    null_for_nullable,
)
from mcp_django.schema.structure import (
    Path,
    Schema,
    accepts_null,
    inline_references,
    is_annotation,
    merge_schemas,
    walk,
)
from mcp_django.schema.vocabulary import SchemaSource


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
    tidy, changes = _rewrite(schema, Use(is_input=True, source=source))
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
    return PortableSchema(*_rewrite(schema, Use(is_input=False, source=source)))


def readable_by_clients(schema: Schema, *, is_input: bool) -> PortableSchema:
    """Return an author's schema, changed only where the validators of clients reject it."""
    use = Use(is_input=is_input, source=SchemaSource.BY_HAND)
    # No known client validates arguments.
    plain = schema if is_input else _plain_references(schema)
    if plain != schema:
        text = "references are pointers into $defs, or written out"
        use.changes.append(SchemaChange((), f"{text} (for {TYPESCRIPT}, and FastMCP 4)"))
    changed: Schema = _apply(plain, use, ())
    if not is_input and changed != plain:
        changed = _without_stricter_rules(changed)
    return PortableSchema(changed, use.changes)


def without_nullable(schema: Schema) -> Schema:
    """Return an author's schema with alternatives for `nullable`, which validators do not know."""
    use = Use(is_input=True, source=SchemaSource.BY_HAND)

    def rewrite(member: Any) -> Any:
        if not isinstance(member, dict):
            return member
        return null_for_nullable(map_subschemas(member, rewrite), use)

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


def _rewrite(schema: Schema, use: Use) -> tuple[Schema, tuple[SchemaChange, ...]]:
    result: Schema = _apply(inline_references(schema), use, ())
    changes = (*getattr(schema, "changes", ()), *use.changes)
    # A rewrite may remove the last reference that made a type recursive.
    has_references = "$defs" in result or "definitions" in result
    if not has_references or result == schema:
        return result, changes
    again, more = _rewrite(result, Use(is_input=use.is_input, source=use.source))
    return again, (*changes, *more)


def _apply(schema: Any, use: Use, path: Path, place: Path = ()) -> Any:
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
    for rule in RULES_BY_SOURCE[use.source]:
        changed = rule.rewrite(result, use)
        if changed is result:
            continue
        if changed != result and (text := rule.change(result, use)):
            use.changes.append(SchemaChange(path, text))
        result = changed
    properties, required = result.get("properties"), result.get("required", ())
    is_generated_input = use.is_input and use.source is not SchemaSource.BY_HAND
    if not is_generated_input or not isinstance(properties, dict):
        return result
    # For an optional member, ``null`` means the same as omitting it.
    members = {
        name: member if name in required else _remove_null(member)
        for name, member in properties.items()
    }
    return {**result, "properties": members}


_FLAGS: Final = frozenset(
    (keyword,)
    for keyword in (
        *("additionalProperties", "items", "unevaluatedProperties", "unevaluatedItems"),
        *("additionalItems", "propertyNames"),
    )
)
"""Where a schema may be a boolean: TypeScript SDK 1.32 requires objects below `properties`."""
_BOOLEANS: Final = "for TypeScript SDK 1.32, which requires objects"


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
