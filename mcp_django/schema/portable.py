"""The subset of JSON Schema that every host understands.

One schema with a reference, a type array or an array without `items` makes some host drop a tool,
and others drop the whole server. `portable_input` and `portable_output` rewrite what pydantic (or
anything else) produced; `strict` goes on to the dialect in which every member is required; `lint`
names what is left for hosts to choke on.

Pure: dictionaries in, new dictionaries out, and a second run changes nothing. The published schema
may accept more than the original, never less (but for `null` instead of leaving an optional member
out): what validates arguments is the declared type, not this.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mcp_django.schema.lint import lint
from mcp_django.schema.references import inline
from mcp_django.schema.rewriting import REWRITES, RULES, without_optional_null
from mcp_django.schema.strict import strict
from mcp_django.schema.structure import Schema, map_children

__all__ = ["RULES", "lint", "portable_input", "portable_output", "strict"]


def portable_input(schema: Schema) -> Schema:
    """Return a schema for arguments: a plain object with named members and nothing else.

    Raises:
        ValueError: the root is no object, or the schema is too large without references.
    """
    tidy = _rewrite(schema, is_input=True)
    if tidy.get("type") != "object" or "anyOf" in tidy:
        raise ValueError("Arguments have names, so the root of their schema has to be an object.")
    kept = {key: tidy[key] for key in ("required", "$defs", "definitions") if tidy.get(key)}
    properties = tidy.get("properties", {})
    return {"type": "object", "properties": properties, **kept, "additionalProperties": False}


def portable_output(schema: Schema) -> Schema:
    """Return a schema for results; its root may be anything, and `null` stays where it was.

    Raises:
        ValueError: the schema is too large without references.
    """
    return _rewrite(schema, is_input=False)


def _rewrite(schema: Schema, *, is_input: bool) -> Schema:
    result: Schema = _tidy(inline(schema), is_input=is_input)
    # A rewrite may drop the last reference that made a type recursive.
    has_references = "$defs" in result or "definitions" in result
    return _rewrite(result, is_input=is_input) if has_references and result != schema else result


def _tidy(schema: Any, *, is_input: bool) -> Any:
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        return schema
    result = map_children(schema, partial(_tidy, is_input=is_input))
    # Every dialect knows `additionalProperties: true`; not every one knows an empty schema.
    if schema.get("additionalProperties") is True:
        result["additionalProperties"] = True
    for rewrite in REWRITES:
        result = rewrite(result)
    return without_optional_null(result) if is_input else result
