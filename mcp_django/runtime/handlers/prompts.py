"""``prompts/list`` and ``prompts/get``."""

from __future__ import annotations

from functools import partial
from typing import Any

from mcp_django.core.component import Prompt, PromptArgument
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.jsonrpc import encode, read_params
from mcp_django.runtime import failures, results
from mcp_django.runtime.handlers.paging import common, page
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.input_responses import RoundParams
from mcp_django.runtime.interaction import Interaction
from mcp_django.runtime.policy import admit
from mcp_django.runtime.throttling import spend
from mcp_django.schema.arguments import InvalidArguments


class GetParams(RoundParams, kw_only=True):
    """Parameters of ``prompts/get``; argument values are strings (PRM-2)."""

    name: str
    arguments: dict[str, str] | None = None


def list_prompts(incoming: Incoming) -> dict[str, Any]:
    """The prompts that the caller may see."""
    return page(
        incoming, incoming.server.offered.prompts.values(), member="prompts", describe=describe
    )


def describe(prompt: Prompt) -> dict[str, Any]:
    """A prompt in its richest shape."""
    arguments = [_argument(one) for one in prompt.parameters]
    return {**common(prompt), **({"arguments": arguments} if arguments else {})}


def _argument(argument: PromptArgument) -> dict[str, Any]:
    described: dict[str, Any] = {"name": argument.name, "required": argument.required}
    description = str(argument.schema.get("description", ""))
    if "enum" in argument.schema:
        # Arguments have no schema on the wire, so what may be chosen is said in words.
        choices = "One of: " + ", ".join(map(str, argument.schema["enum"])) + "."
        description = f"{description} {choices}".strip()
    if description:
        described["description"] = description
    return described


def get_prompt(incoming: Incoming) -> Invocation:
    """Admit a prompt and read its arguments; unknown ones are ignored (PRM-7)."""
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
        excuse=partial(failures.prompt_failure, prompt),
        entry=entry,
    )
