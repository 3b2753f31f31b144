"""``prompts/list``, ``prompts/get`` and ``completion/complete``.

Completion suggests values for one argument of a prompt or template that the caller may use.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import msgspec

from mcp_django.components.catalog import Catalog
from mcp_django.components.component import Completion, Prompt
from mcp_django.components.resource import ResourceTemplate
from mcp_django.exceptions import InvalidParams
from mcp_django.execution import results
from mcp_django.execution.call import Call, ComponentMethod, RetryParams
from mcp_django.execution.handlers.listing import common_members, list_page
from mcp_django.execution.policy import authorize
from mcp_django.execution.quotas import consume
from mcp_django.protocol.jsonrpc import encode, read_params
from mcp_django.schema.arguments import InvalidArguments


class GetPromptParams(RetryParams, kw_only=True):
    """Parameters of ``prompts/get``; argument values are strings."""

    name: str
    arguments: dict[str, str] | None = None


def list_prompts(call: Call) -> dict[str, Any]:
    """Return the prompts that the caller may see."""
    assert call.catalog is not None
    return list_page(
        call,
        call.catalog.prompts.values(),
        member="prompts",
        describe=describe,
    )


def describe(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt in the format of 2026-07-28, which has all members."""
    arguments: list[dict[str, Any]] = []
    for argument in prompt.parameters:
        described = {"name": argument.name, "required": argument.required}
        description = str(argument.schema.get("description", ""))
        if "enum" in argument.schema:
            # Prompt arguments have no schema on the wire, so the description lists the choices.
            choices = "One of: " + ", ".join(map(str, argument.schema["enum"])) + "."
            description = f"{description} {choices}".strip()
        if description:
            described["description"] = description
        arguments.append(described)
    return {**common_members(prompt), **({"arguments": arguments} if arguments else {})}


def _read_arguments(call: Call) -> None:
    """Read the arguments; unknown ones are ignored."""
    prompt, params = cast(Prompt, call.component), cast(GetPromptParams, call.params)
    names = {parameter.name for parameter in prompt.parameters}
    arguments = {name: value for name, value in (params.arguments or {}).items() if name in names}
    call.record.note_authorized(arguments)
    call.raw_arguments = encode(arguments)
    try:
        call.arguments = prompt.arguments.parse(call.raw_arguments)
    except InvalidArguments as exc:
        call.record.note_invalid_arguments(exc.problems)
        consume(call)
        raise InvalidParams(str(exc)) from None
    call.to_result = partial(results.prompt_result, prompt)
    call.to_error = partial(results.component_failure, prompt)


GET = ComponentMethod(
    name="prompts/get",
    params=GetPromptParams,
    name_parameter="name",
    find=Catalog.find_prompt,
    siblings=lambda catalog: catalog.prompts.values(),
    unknown=lambda call: InvalidParams(
        f"No prompt named {call.name[:80]!r} on server {call.server.name!r}; see prompts/list."
    ),
    read_arguments=_read_arguments,
)


class CompletionRef(msgspec.Struct):
    """The prompt (by name) or resource template (by URI) whose argument is completed."""

    type: str
    name: str | None = None
    uri: str | None = None


class CompletedArgument(msgspec.Struct):
    """The argument that is being typed."""

    name: str
    value: str


class ChosenArguments(msgspec.Struct):
    """The arguments that have values already."""

    arguments: dict[str, str] | None = None


class CompleteParams(msgspec.Struct):
    """Parameters of ``completion/complete``."""

    ref: CompletionRef
    argument: CompletedArgument
    context: ChosenArguments | None = None


def complete(call: Call) -> dict[str, Any] | None:
    """Prepare the call of a completion; an argument without a completion has no suggestions."""
    params = read_params(call.request.params, CompleteParams, lenient=not call.revision.stateless)
    target = call.component = _completion_target(call, params.ref)
    consume(call)
    properties = target.arguments.json_schema.get("properties", {})
    if params.argument.name not in properties:
        raise InvalidParams(
            f"{target} has no argument {params.argument.name[:80]!r}; "
            f"it has {', '.join(properties) or 'none'}."
        )
    key = (target.kind, target.key, params.argument.name)
    completion = call.server.catalog.completions.get(key)
    if completion is None:
        return results.completion_result([])
    chosen = params.context.arguments if params.context else None
    call.prepare(
        # The target's settings apply to the completion's function, which cannot ask the client.
        replace(target, function=completion.function, atomic=None, slow=False, needs=()),
        _arguments(completion, params.argument.value, chosen or {}),
        to_result=results.completion_result,
        to_error=partial(results.completion_failure, completion),
    )
    return None


def _completion_target(call: Call, ref: CompletionRef) -> Prompt | ResourceTemplate:
    catalog = call.server.catalog
    target: Prompt | ResourceTemplate | None = None
    among: Mapping[str, Prompt | ResourceTemplate]
    if ref.type == "ref/prompt" and ref.name is not None:
        target, among = catalog.find_prompt(ref.name), catalog.prompts
    elif ref.type == "ref/resource" and ref.uri is not None:
        target, among = catalog.find_template(ref.uri), catalog.templates
        if target is None and (match := catalog.find_resource(ref.uri)) is not None:
            target = match[0] if isinstance(match[0], ResourceTemplate) else None
    else:
        raise InvalidParams(
            "params.ref must be a ref/prompt with a name or a ref/resource with a uri."
        )
    is_authorized = authorize(call.principal, target, siblings=among.values())
    if target is None or not is_authorized:
        raise InvalidParams(f"Nothing named {(ref.name or ref.uri or '')[:80]!r} to complete for.")
    return target


def _arguments(completion: Completion, value: str, chosen: dict[str, str]) -> dict[str, Any]:
    """Return the value for the first parameter, and the chosen arguments for the others."""
    internal = completion.function.internal_parameters
    names = [
        name
        for name in inspect.signature(completion.function.function).parameters
        if name not in internal
    ]
    first, *others = names
    return {first: value, **{name: chosen.get(name, "") for name in others}}
