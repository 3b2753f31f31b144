"""The subset of JSON Schema that a form shown by a host may have.

One level of named members, each of them text, a number, a yes or no, a choice or several choices
(MCP 2026-07-28, "Elicitation", requested schema). Hosts validate it strictly, so a keyword too
many costs the question. What is left out here is still checked when the answer comes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mcp_django.schema.arguments import quote
from mcp_django.schema.secrecy import asks_for_secret
from mcp_django.schema.structure import Schema

FORMATS = frozenset({"email", "uri", "date", "date-time"})

# By type, or by the keyword that makes a choice of it.
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "format"}),
    "enum": frozenset({"enum", "enumNames"}),
    "oneOf": frozenset({"oneOf"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"minItems", "maxItems", "items"}),
}
_ALWAYS = frozenset({"type", "title", "description", "default"})
_DEFAULTS: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
}


class NotFlatError(ValueError):
    """A member that no form can show."""


def flat_form(schema: Schema) -> Schema:
    """Return the form for a schema of an object, with what no host knows left out.

    Raises:
        NotFlatError: a member is no text, number, yes or no, or choice, or asks for a secret.
    """
    given = schema.get("properties", {})
    if schema.get("type") != "object" or schema.get("additionalProperties", False) is not False:
        raise NotFlatError("a form has named fields and no others")
    properties = {name: _field(name, member) for name, member in given.items()}
    may_be_null = {name for name, member in given.items() if _without_null(member) != member}
    required = [n for n in schema.get("required", ()) if n in properties and n not in may_be_null]
    form: Schema = {"type": "object", "properties": properties}
    return {**form, "required": required} if required else form


def check_flat(schema: Schema) -> None:
    """Refuse a schema written by hand that is not in the subset already.

    Raises:
        NotFlatError: naming the member and the keyword.
    """
    properties = flat_form(schema)["properties"]
    if "properties" not in schema:
        raise NotFlatError("a form has properties; write {} for none")
    for name, member in schema["properties"].items():
        _check_keywords({*member} - {*properties[name]}, f"{name}: ")
        for keyword, meant in properties[name].items():
            if keyword not in member or member[keyword] != meant:
                raise NotFlatError(f'{name}: write "{keyword}": {quote(meant)}')
    for name in schema.get("required", ()):
        if name not in properties:
            raise NotFlatError(f"{name} is required and has no field")
    _check_keywords({*schema} - {"$schema", "type", "properties", "required"}, "")


def _check_keywords(odd: Iterable[str], place: str) -> None:
    if odd:
        names = ", ".join(sorted(odd))
        raise NotFlatError(f"{place}{names} means nothing in a form; leave it out")


def _field(name: str, member: Any) -> Schema:
    member = _typed(_without_null(member)) if isinstance(member, dict) else {}
    if asks_for_secret(name, member):
        raise NotFlatError(
            f"{name} looks like a secret, which must not pass through the client; send the user "
            "to a page of yours with elicit_url"
        )
    chosen = next((keyword for keyword in ("enum", "oneOf") if keyword in member), "")
    if chosen and not _is_choice(member):
        raise NotFlatError(
            f"{name} is a choice, and what is chosen is text, each with a title where one has a "
            "title"
        )
    kind = str(member.get("type"))
    if kind not in _DEFAULTS or "contentEncoding" in member:
        raise NotFlatError(
            f"{name} is no text, number, yes or no, date, choice or list of choices; a form is flat"
        )
    keywords = _ALWAYS | _KEYWORDS[chosen or kind]
    kept = {key: value for key, value in member.items() if key in keywords}
    if kept.get("format") not in FORMATS:
        kept.pop("format", None)
    if not _is_default(kept.get("default"), kind):
        kept.pop("default", None)
    if kind == "array":
        kept["items"] = _items(name, member.get("items"))
    return _bounded(kept, member) if kind == "integer" else kept


def _without_null(member: Any) -> Any:
    """The one alternative that is left when a form leaves the field empty instead."""
    alternatives = member.get("anyOf", ()) if isinstance(member, dict) else ()
    others = [one for one in alternatives if not _is_null(one)]
    if len(others) != 1 or len(others) == len(alternatives) or not isinstance(others[0], dict):
        return member
    around = {key: value for key, value in member.items() if key != "anyOf"}
    return {**others[0], **around}


def _is_null(alternative: Any) -> bool:
    return isinstance(alternative, dict) and alternative.get("type") == "null"


def _typed(member: Schema) -> Schema:
    """Choices in the one way to write them, with the type that hosts want beside them."""
    if "const" in member:
        member = {**{k: v for k, v in member.items() if k != "const"}, "enum": [member["const"]]}
    return {**member, "type": "string"} if _is_choice(member) else member


def _is_choice(member: Schema) -> bool:
    values = member.get("enum")
    if values is not None:
        return bool(values) and all(isinstance(value, str) for value in values)
    return _are_titled(member.get("oneOf"))


def _are_titled(options: Any) -> bool:
    """Whether these are the choices of a form that have words for what they stand for."""
    return bool(options) and all(
        isinstance(one, dict) and isinstance(one.get("const"), str) and "title" in one
        for one in options
    )


def _items(name: str, items: Any) -> Schema:
    choices = _typed(items) if isinstance(items, dict) else {}
    titled = choices.get("anyOf", choices.get("oneOf"))
    if _are_titled(titled):
        return {"anyOf": titled}
    if "enum" in choices and _is_choice(choices):
        return {"type": "string", "enum": choices["enum"]}
    raise NotFlatError(f"{name} is a list of something else than choices of text")


def _is_default(value: Any, kind: str) -> bool:
    # To Python yes and no are integers.
    return isinstance(value, _DEFAULTS[kind]) and (kind == "boolean") == isinstance(value, bool)


def _bounded(kept: Schema, member: Schema) -> Schema:
    """A whole number has its exclusive bounds said inclusively; others are checked as answers."""
    bounds = dict(kept)
    if isinstance(low := member.get("exclusiveMinimum"), int | float):
        bounds["minimum"] = max(math.floor(low) + 1, kept.get("minimum", -math.inf))
    if isinstance(high := member.get("exclusiveMaximum"), int | float):
        bounds["maximum"] = min(math.ceil(high) - 1, kept.get("maximum", math.inf))
    return bounds
