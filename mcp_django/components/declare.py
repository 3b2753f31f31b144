"""Build components from decorated functions and their options, and parts of generated tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, get_args

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from pydantic import Field

from mcp_django.components.component import (
    Completion,
    ComponentFunction,
    Prompt,
    inspect_function,
)
from mcp_django.components.context import Context
from mcp_django.components.options import PromptOptions, ResourceOptions, ToolOptions
from mcp_django.components.resource import ReadableComponent, Resource, ResourceTemplate
from mcp_django.components.tool import UI, Tool
from mcp_django.conf import parse_rates
from mcp_django.protocol.text import did_you_mean
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.compiled import JSONSchemaArguments, JSONSchemaOutput
from mcp_django.schema.deferred import Deferred, DeferredArguments, runs_own_code
from mcp_django.schema.django_forms import FormArguments, check_constructor
from mcp_django.schema.output import OutputAdapter, output_adapter
from mcp_django.schema.portable import portable_output
from mcp_django.schema.signature import SignatureArguments, read_parameters
from mcp_django.schema.structure import Schema
from mcp_django.schema.vocabulary import SchemaSource

SCHEMA_SOURCES = ("input_schema", "form", "serializer")
LIST_OPTIONS = ("aliases", "icons", "needs", "scopes", "sensitive")


def build_tool(function: Callable[..., Any], options: Mapping[str, Any]) -> Tool:
    """Return the tool of a function."""
    inspected = inspect_function(function)
    tool_options = check_options("A tool", ToolOptions, options)
    strict = tool_options.pop("strict_schema", False)
    sources = {source: tool_options.pop(source, None) for source in SCHEMA_SOURCES}
    output_schema = tool_options.pop("output_schema", None)
    return Tool(
        **_component_fields(inspected, tool_options),
        arguments=_argument_source(inspected, sources, strict=strict),
        output=_output_adapter(inspected, output_schema),
    )


def build_resource(
    function: Callable[..., Any], uri: str, options: Mapping[str, Any]
) -> ReadableComponent:
    """Return the resource of a function, or a resource template if the URI has variables."""
    inspected = inspect_function(function)
    fields = _component_fields(inspected, check_options("A resource", ResourceOptions, options))
    try:
        template = URITemplate(uri)
    except ValueError as exc:
        raise ImproperlyConfigured(f"resource {uri!r}: {exc}") from None
    arguments = SignatureArguments(function, skip=inspected.internal_parameters)
    properties = set(arguments.json_schema.get("properties", {}))
    variables = set(template.variables)
    for name in sorted(variables - properties):
        names = ", ".join(sorted(properties)) or "none"
        raise ImproperlyConfigured(
            f"{uri!r} has a variable {name!r}, but {inspected.name}() has no such parameter; "
            f"it has {names}."
        )
    for name in sorted(set(arguments.json_schema.get("required", ())) - variables):
        raise ImproperlyConfigured(
            f"The parameter {name!r} of {inspected.name}() has no default, and {uri!r} has no such "
            "variable; add one of them."
        )
    if not template.variables:
        return Resource(**fields, uri=uri)
    if fields.pop("size", None) is not None:
        raise ImproperlyConfigured(
            f"{uri!r} is a template; remove size, which only a fixed resource can have."
        )
    return ResourceTemplate(**fields, template=template, arguments=arguments)


def build_prompt(function: Callable[..., Any], options: Mapping[str, Any]) -> Prompt:
    """Return the prompt of a function."""
    inspected = inspect_function(function)
    prompt_options = check_options("A prompt", PromptOptions, options)
    arguments = SignatureArguments(function, skip=inspected.internal_parameters)
    return Prompt(**_component_fields(inspected, prompt_options), arguments=arguments)


def build_completion(
    target: Prompt | ResourceTemplate, argument: str, function: Callable[..., Any]
) -> Completion:
    """Return the completion of one argument of a prompt or template."""
    argument_names = tuple(target.arguments.json_schema.get("properties", {}))
    if argument not in argument_names:
        raise ImproperlyConfigured(
            f"{target} has no argument {argument!r}; it has {', '.join(argument_names) or 'none'}."
        )
    inspected = inspect_function(function)
    names = [
        parameter.name
        for parameter in read_parameters(function, skip=inspected.internal_parameters)
    ]
    if not names:
        raise ImproperlyConfigured(
            f"{inspected.name}() completes {argument!r} but has no parameters; add one for the "
            "typed value."
        )
    for name in names[1:]:
        if name not in argument_names:
            raise ImproperlyConfigured(
                f"{inspected.name}() has a parameter {name!r}, but {target} has no such argument; "
                f"it has {', '.join(argument_names)}."
            )
    return Completion(
        kind="prompt" if isinstance(target, Prompt) else "resource template",
        key=target.key,
        argument=argument,
        function=inspected,
    )


def check_options(what: str, typed_dict: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the options, if ``typed_dict`` declares all of them.

    ``what`` begins the error message, such as ``A tool``.

    Raises:
        ImproperlyConfigured: there is no such option; the message names similar ones.
    """
    names = list(typed_dict.__annotations__)
    for name in options:
        if name not in names:
            hint = did_you_mean(name, names, f"it has {', '.join(names)}.")
            raise ImproperlyConfigured(f"{what} has no option {name!r}; {hint}")
    return dict(options)


def _component_fields(function: ComponentFunction, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a component that follow from its options and its function."""
    fields = dict(options)
    for name in LIST_OPTIONS:
        if name in fields:
            value = fields[name]
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise ImproperlyConfigured(f"{name} is not a list; write {name}=[{value!r}].")
            fields[name] = tuple(value)
    if "rate" in fields:
        try:
            fields["rates"] = parse_rates(fields.pop("rate"))
        except ValueError as exc:
            raise ImproperlyConfigured(f"rate: {exc}.") from None
    if "ui" in fields:
        fields["ui"] = UI.from_option(fields["ui"])
    return {
        **fields,
        "function": function,
        "name": fields.get("name") or function.name,
        "description": fields.get("description") or function.doc,
        "meta": _to_dict("meta", fields.get("meta") or {}),
    }


def _to_dict(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"{name} is {value!r}; write a dictionary.")
    return dict(value)


def _argument_source(
    function: ComponentFunction, sources: Mapping[str, Any], *, strict: bool
) -> ArgumentSource:
    used = [name for name, source in sources.items() if source is not None]
    if len(used) > 1:
        raise ImproperlyConfigured(
            f"{function.name}() has more than one schema ({', '.join(used)}); keep one."
        )
    if not used:
        return SignatureArguments(
            function.function, skip=function.internal_parameters, strict=strict
        )
    parameters = inspect.signature(function.function).parameters
    if used == ["input_schema"]:
        schema = _to_dict("input_schema", sources["input_schema"])
        takes_any = any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        return JSONSchemaArguments(schema, closed=not takes_any)
    if used[0] not in parameters:
        raise ImproperlyConfigured(
            f"{function.name}() has no parameter {used[0]!r} for the validated {used[0]}; add it."
        )
    (kind,) = used
    source = sources[kind]
    build: Callable[[Any], ArgumentSource] = FormArguments
    if kind == "serializer":
        # Django REST framework is optional and cannot be imported before settings exist.
        from mcp_django.schema.serializers import SerializerArguments

        build = SerializerArguments
    else:
        check_constructor(source)
    if runs_own_code(source, "__init__", "get_fields"):
        return DeferredArguments(Deferred(partial(build, source), what=function.name))
    return build(source)


def _output_adapter(
    function: ComponentFunction, schema: Mapping[str, Any] | None
) -> OutputAdapter | None:
    if schema is not None:
        return JSONSchemaOutput(_to_dict("output_schema", schema))
    for hint in (function.returns, *get_args(function.returns)):
        # Model instances are not converted to JSON, so every call would fail.
        if isinstance(hint, type) and issubclass(hint, Model):
            raise ImproperlyConfigured(
                f"{function.name}() returns the model {hint.__name__}, which would expose all of "
                "its fields; return a dataclass, a dict or .values('id', …) with the fields that "
                "callers may see."
            )
    try:
        return output_adapter(function.returns)
    except ImproperlyConfigured as exc:
        raise ImproperlyConfigured(f"{function.name}(): {exc}") from exc


# A generated tool consists of arguments, a function, and an output adapter for plain JSON.

# Django does not allow field names that end with an underscore, so no argument has this name.
CONTEXT_PARAMETER: Final = "ctx_"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedArgument:
    """One argument of a generated tool; if it is not required, its default is ``None``."""

    annotation: Any
    description: str = ""
    required: bool = False
    default: Any = None

    def to_parameter(self, name: str) -> Parameter:
        """Return the argument as a function parameter."""
        hint = self.annotation
        if self.description:
            hint = Annotated[hint, Field(description=self.description)]
        default = Parameter.empty if self.required else self.default
        return Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def build_arguments(
    function_name: str, arguments: Mapping[str, GeneratedArgument]
) -> SignatureArguments:
    """Return the arguments of a generated function with the name ``function_name``."""

    def declared() -> None:
        """Do nothing; only the signature is used."""

    declared.__name__ = declared.__qualname__ = function_name
    signature = Signature([argument.to_parameter(name) for name, argument in arguments.items()])
    declared.__signature__ = signature  # type: ignore[attr-defined]
    return SignatureArguments(declared)


def build_function(
    call: Callable[[Context, dict[str, Any]], Any], *, name: str
) -> ComponentFunction:
    """Return the component function of ``call(ctx, arguments)``."""

    def generated(ctx_: Context, **arguments: Any) -> Any:
        return call(ctx_, arguments)

    generated.__name__ = generated.__qualname__ = name
    return ComponentFunction(
        function=generated, is_async=False, context_parameter=CONTEXT_PARAMETER
    )


def set_declaration(function: Callable[..., Any], declaration: object) -> None:
    """Set the declaration that a generated function belongs to, for ``Component.origin``."""
    function.declared_by = declaration  # type: ignore[attr-defined]


class TrustedOutput:
    """The output of generated tools, which conforms to its schema and is not validated again."""

    def __init__(self, schema: Schema) -> None:
        self.json_schema = portable_output(schema, SchemaSource.COLUMNS)

    def dump(self, value: Any) -> Any:
        """Return the value, which is plain JSON."""
        return value
