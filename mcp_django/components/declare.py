"""From a decorated function and its options to a component."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from mcp_django import rates
from mcp_django.components.completion import Completion
from mcp_django.components.component import Component
from mcp_django.components.function import ComponentFunction, inspect_function
from mcp_django.components.prompt import Prompt
from mcp_django.components.resource import ReadableComponent, Resource, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.components.ui import UI
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.rates import Rate
from mcp_django.schema.annotations import SignatureArguments
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.output import OutputAdapter, output_adapter
from mcp_django.schema.raw import RawArguments
from mcp_django.schema.raw_output import RawOutput
from mcp_django.schema.signature import read_parameters

SCHEMA_SOURCES = ("input_schema", "form", "serializer")
OWN_OPTIONS = ("output_schema", "strict_schema")
DERIVED = frozenset({"function", "arguments", "output", "mirrored", "rates"})


def tool(function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    """A tool from a function."""
    looked_at = inspect_function(function)
    given = _known(Tool, options, *SCHEMA_SOURCES, *OWN_OPTIONS)
    strict = given.pop("strict_schema", False)
    sources = {name: given.pop(name, None) for name in SCHEMA_SOURCES}
    output_schema = given.pop("output_schema", None)
    given["ui"] = UI.of(given.get("ui"))
    return Tool(
        **_common(looked_at, given),
        arguments=_arguments(looked_at, sources, strict=strict),
        output=_output(looked_at, output_schema),
        **given,
    )


def resource(function: Callable[..., Any], options: Mapping[str, Any]) -> ReadableComponent:
    """A resource, or a resource template when the URI has variables."""
    looked_at = inspect_function(function)
    given = dict(options)
    uri, size = given.pop("uri"), given.pop("size")
    common = _common(looked_at, given)
    try:
        template = URITemplate(uri)
    except ValueError as exc:
        raise ImproperlyConfigured(f"resource {uri!r}: {exc}") from None
    arguments = SignatureArguments(function, skip=looked_at.internal_parameters)
    _match_parameters(looked_at, uri, template, arguments)
    if not template.variables:
        return Resource(**common, **given, uri=uri, size=size)
    if size is not None:
        raise ImproperlyConfigured(f"{uri!r} is a template; size belongs to a fixed resource.")
    return ResourceTemplate(**common, **given, template=template, arguments=arguments)


def prompt(function: Callable[..., Any], options: Mapping[str, Any]) -> Prompt:
    """A prompt from a function."""
    looked_at = inspect_function(function)
    given = _known(Prompt, options)
    arguments = SignatureArguments(function, skip=looked_at.internal_parameters)
    return Prompt(**_common(looked_at, given), arguments=arguments, **given)


def completion(
    target: Prompt | ResourceTemplate, argument: str, function: Callable[..., Any]
) -> Completion:
    """A completion for one argument of a prompt or template."""
    known = tuple(target.arguments.json_schema.get("properties", {}))
    if argument not in known:
        raise ImproperlyConfigured(
            f"{target} has no argument {argument!r}; it has {', '.join(known) or 'none'}."
        )
    looked_at = inspect_function(function)
    names = [one.name for one in read_parameters(function, skip=looked_at.internal_parameters)]
    if not names:
        raise ImproperlyConfigured(
            f"{looked_at.name}() completes {argument!r}: its first parameter is the typed value."
        )
    for name in names[1:]:
        if name not in known:
            raise ImproperlyConfigured(
                f"{looked_at.name}() takes {name!r}, which is no argument of {target}; "
                f"it has {', '.join(known)}."
            )
    return Completion(
        kind="prompt" if isinstance(target, Prompt) else "resource template",
        key=target.key,
        argument=argument,
        function=looked_at,
    )


def _known(kind: type[Component], options: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """The options, each of which the decorator has."""
    known = [*(field.name for field in fields(kind)), "rate", *more]
    for name in options:
        if name not in known or name in DERIVED:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known)}."
            raise ImproperlyConfigured(f"A {kind.kind} has no option {name!r}; {hint}")
    return dict(options)


def _common(function: ComponentFunction, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of every component, taken out of the options or derived from the function."""
    return {
        "function": function,
        "name": given.pop("name", None) or function.name,
        "title": given.pop("title", ""),
        "description": given.pop("description", "") or function.doc,
        "icons": _sequence("icons", given.pop("icons", ())),
        "meta": _mapping("meta", given.pop("meta", None) or {}),
        "permission": given.pop("permission", None),
        "scopes": _sequence("scopes", given.pop("scopes", ())),
        "needs": _sequence("needs", given.pop("needs", ())),
        "rates": _rates(given.pop("rate", ())),
        "sensitive": _sequence("sensitive", given.pop("sensitive", ())),
        "aliases": _sequence("aliases", given.pop("aliases", ())),
    }


def _sequence(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ImproperlyConfigured(f"{name} is a list: write {name}=[{value!r}].")
    return tuple(value)


def _rates(value: str | Sequence[str]) -> tuple[Rate, ...]:
    try:
        return rates.parse_all(value)
    except ValueError as exc:
        raise ImproperlyConfigured(f"rate: {exc}.") from None


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"{name} is a dictionary, not {value!r}.")
    return dict(value)


def _arguments(
    function: ComponentFunction, sources: Mapping[str, Any], *, strict: bool
) -> ArgumentSource:
    used = [name for name, source in sources.items() if source is not None]
    if len(used) > 1:
        raise ImproperlyConfigured(
            f"{function.name}() has several schemas ({', '.join(used)}); keep one."
        )
    if not used:
        return SignatureArguments(
            function.function, skip=function.internal_parameters, strict=strict
        )
    parameters = inspect.signature(function.function).parameters
    if used == ["input_schema"]:
        schema = _mapping("input_schema", sources["input_schema"])
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        return RawArguments(schema, closed=not takes_any)
    if used[0] not in parameters:
        raise ImproperlyConfigured(
            f"{function.name}() has no parameter {used[0]!r}, which takes the valid {used[0]}."
        )
    if used == ["form"]:
        from mcp_django.schema.forms import FormArguments

        return FormArguments(sources["form"])
    # Django REST framework is optional and cannot be imported before settings exist.
    from mcp_django.schema.serializers import SerializerArguments

    return SerializerArguments(sources["serializer"])


def _output(function: ComponentFunction, schema: Mapping[str, Any] | None) -> OutputAdapter | None:
    if schema is not None:
        return RawOutput(_mapping("output_schema", schema))
    _refuse_models(function)
    return output_adapter(function.returns)


def _refuse_models(function: ComponentFunction) -> None:
    """Say now what would fail at every call: which fields of a model go out is not guessed."""
    for hint in (function.returns, *get_args(function.returns)):
        if isinstance(hint, type) and issubclass(hint, Model):
            raise ImproperlyConfigured(
                f"{function.name}() returns {hint.__name__}, a model, which has fields that are "
                "nobody's business; return a dataclass, a dict or .values('id', …) of the fields "
                "that callers may see."
            )


def _match_parameters(
    function: ComponentFunction, uri: str, template: URITemplate, arguments: SignatureArguments
) -> None:
    properties = set(arguments.json_schema.get("properties", {}))
    variables = set(template.variables)
    for name in sorted(variables - properties):
        known = ", ".join(sorted(properties)) or "none"
        raise ImproperlyConfigured(
            f"{uri!r} has a variable {name!r}, and {function.name}() has no such parameter; "
            f"it has {known}."
        )
    for name in sorted(set(arguments.json_schema.get("required", ())) - variables):
        raise ImproperlyConfigured(
            f"The parameter {name!r} of {function.name}() has no default and {uri!r} has no such "
            "variable."
        )
