"""``prompts/list``, ``prompts/get`` and ``completion/complete``.

Completion suggests values for one argument of a prompt or template that the caller may use.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from mcp_django.core.component import Completion, Prompt, PromptArgument
from mcp_django.core.resource import ResourceTemplate
from mcp_django.exceptions import InvalidParams
from mcp_django.execution import results
from mcp_django.execution.call import Incoming, Invocation, RoundParams
from mcp_django.execution.handlers.listing import common, page
from mcp_django.execution.interaction import Interaction
from mcp_django.execution.policy import admit
from mcp_django.execution.quotas import spend
from mcp_django.protocol.jsonrpc import encode, read_params
from mcp_django.schema.arguments import InvalidArguments


class GetParams(RoundParams, kw_only=True):
    """Parameters of ``prompts/get``; argument values are strings."""

    name: str
    arguments: dict[str, str] | None = None


def list_prompts(incoming: Incoming) -> dict[str, Any]:
    """Return the prompts that the caller may see."""
    return page(
        incoming, incoming.server.offered.prompts.values(), member="prompts", describe=describe
    )


def describe(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt in its richest wire shape."""
    arguments = [_argument(one) for one in prompt.parameters]
    return {**common(prompt), **({"arguments": arguments} if arguments else {})}


def _argument(argument: PromptArgument) -> dict[str, Any]:
    described: dict[str, Any] = {"name": argument.name, "required": argument.required}
    description = str(argument.schema.get("description", ""))
    if "enum" in argument.schema:
        # Prompt arguments have no schema on the wire, so the description lists the choices.
        choices = "One of: " + ", ".join(map(str, argument.schema["enum"])) + "."
        description = f"{description} {choices}".strip()
    if description:
        described["description"] = description
    return described


def get_prompt(incoming: Incoming) -> Invocation:
    """Authorize a prompt and parse its arguments; unknown arguments are ignored."""
    params = read_params(incoming.request.params, GetParams)
    entry = incoming.entry
    entry.wants(params.name)
    offered = incoming.server.offered
    prompt = offered.find_prompt(params.name)
    if prompt is not None:
        entry.found(prompt)
    is_admitted = admit(incoming.principal, prompt, among=offered.prompts.values(), entry=entry)
    if prompt is None or not is_admitted:
        raise InvalidParams(
            f"No prompt named {params.name[:80]!r} on server {incoming.server.name!r}; "
            "see prompts/list."
        )
    known = {one.name for one in prompt.parameters}
    given = {name: value for name, value in (params.arguments or {}).items() if name in known}
    entry.admitted(given)
    try:
        arguments = prompt.arguments.parse(encode(given))
    except InvalidArguments as exc:
        entry.wrong(exc.problems)
        spend(incoming, prompt)
        raise InvalidParams(str(exc)) from None
    interaction = Interaction(incoming, prompt, encode(given), params)
    spend(incoming, prompt, interaction)
    return Invocation(
        incoming=incoming,
        component=prompt,
        arguments=arguments,
        interaction=interaction,
        conclude=partial(results.prompt_result, prompt),
        excuse=partial(results.component_failure, prompt),
        entry=entry,
    )


# Completion of arguments --------------------------------------------------------------------------


class Ref(msgspec.Struct):
    """The prompt, by name, or the resource template, by URI, to complete an argument of."""

    type: str
    name: str | None = None
    uri: str | None = None


class Argument(msgspec.Struct):
    """The argument that is being typed."""

    name: str
    value: str


class ChosenArguments(msgspec.Struct):
    """The arguments that have values already."""

    arguments: dict[str, str] | None = None


class CompleteParams(msgspec.Struct):
    """Parameters of ``completion/complete``."""

    ref: Ref
    argument: Argument
    context: ChosenArguments | None = None


def complete(incoming: Incoming) -> Invocation | dict[str, Any]:
    """Prepare the call of a completion; an argument without one has no suggestions."""
    params = read_params(incoming.request.params, CompleteParams)
    target = _target(incoming, params.ref)
    spend(incoming, target)
    known = target.arguments.json_schema.get("properties", {})
    if params.argument.name not in known:
        raise InvalidParams(
            f"{target} has no argument {params.argument.name[:80]!r}; "
            f"it has {', '.join(known) or 'none'}."
        )
    key = (target.kind, target.key, params.argument.name)
    completion = incoming.server.offered.completions.get(key)
    if completion is None:
        return results.completion_result([])
    chosen = params.context.arguments if params.context else None
    return Invocation(
        incoming=incoming,
        # The target's settings apply to the completion's function, which cannot ask the client.
        component=replace(target, function=completion.function, atomic=None, slow=False, needs=()),
        arguments=_arguments(completion, params.argument.value, chosen or {}),
        conclude=results.completion_result,
        excuse=partial(results.completion_failure, completion),
        entry=incoming.entry,
    )


def _target(incoming: Incoming, ref: Ref) -> Prompt | ResourceTemplate:
    offered = incoming.server.offered
    target: Prompt | ResourceTemplate | None = None
    among: Mapping[str, Prompt | ResourceTemplate]
    if ref.type == "ref/prompt" and ref.name is not None:
        target, among = offered.find_prompt(ref.name), offered.prompts
    elif ref.type == "ref/resource" and ref.uri is not None:
        target = offered.find_template(ref.uri) or _template_of(incoming, ref.uri)
        among = offered.templates
    else:
        raise InvalidParams(
            "params.ref must be a ref/prompt with a name or a ref/resource with a uri."
        )
    is_admitted = admit(incoming.principal, target, among=among.values())
    if target is None or not is_admitted:
        raise InvalidParams(f"Nothing named {(ref.name or ref.uri or '')[:80]!r} to complete for.")
    return target


def _template_of(incoming: Incoming, uri: str) -> ResourceTemplate | None:
    found = incoming.server.offered.find_resource(uri)
    return found[0] if found and isinstance(found[0], ResourceTemplate) else None


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
