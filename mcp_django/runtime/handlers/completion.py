"""``completion/complete``: suggestions for one argument, only of what the caller may see."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from mcp_django.core.component import Completion, Prompt
from mcp_django.core.resource import ResourceTemplate
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.runtime import failures, results
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.policy import admit
from mcp_django.runtime.throttling import spend


class Ref(msgspec.Struct):
    """What is completed: a prompt by name or a template by URI."""

    type: str
    name: str | None = None
    uri: str | None = None


class Argument(msgspec.Struct):
    """The argument being typed."""

    name: str
    value: str


class ChosenArguments(msgspec.Struct):
    """The arguments chosen already (CMP-3)."""

    arguments: dict[str, str] | None = None


class CompleteParams(msgspec.Struct):
    """Parameters of ``completion/complete``."""

    ref: Ref
    argument: Argument
    context: ChosenArguments | None = None


def complete(incoming: Incoming) -> Invocation | dict[str, Any]:
    """Find the completer; a known argument without one has no suggestions (CMP-6)."""
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
        # The target's rules hold, with the completer as the function to call; it can ask nobody.
        component=replace(target, function=completion.function, atomic=None, slow=False, needs=()),
        arguments=_arguments(completion, params.argument.value, chosen or {}),
        conclude=results.completion_result,
        excuse=partial(failures.completion_failure, completion),
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
        raise InvalidParams("params.ref is a ref/prompt with a name or a ref/resource with a uri.")
    is_admitted = admit(incoming.principal, target, among=among.values())
    if target is None or not is_admitted:
        raise InvalidParams(f"Nothing named {(ref.name or ref.uri or '')[:80]!r} to complete for.")
    return target


def _template_of(incoming: Incoming, uri: str) -> ResourceTemplate | None:
    found = incoming.server.offered.find_resource(uri)
    return found[0] if found and isinstance(found[0], ResourceTemplate) else None


def _arguments(completion: Completion, value: str, chosen: dict[str, str]) -> dict[str, Any]:
    """The value for the first parameter, and the chosen arguments that the function names."""
    internal = completion.function.internal_parameters
    names = [
        name
        for name in inspect.signature(completion.function.function).parameters
        if name not in internal
    ]
    first, *others = names
    return {first: value, **{name: chosen.get(name, "") for name in others}}
