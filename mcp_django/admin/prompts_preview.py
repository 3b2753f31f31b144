"""What a preview shows of a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_django.exceptions import InvalidParams
from mcp_django.execution.handlers.prompts import describe
from mcp_django.models import PromptText
from mcp_django.overrides.texts import (
    PROMPT_COLUMNS,
    TextArgument,
    arguments_of,
    build_prompt,
    written_prompt,
)
from mcp_django.protocol import shapes
from mcp_django.protocol.content import Message, Text
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.revisions import LATEST
from mcp_django.schema.arguments import InvalidArguments

SAMPLE = "sample-"
# What the form sends and a preview of it has no use for.
_NOT_KEPT = ("csrfmiddlewaretoken", "_save", "_continue", "_addanother", "_again")


def previewed(prompt: PromptText, data: Any) -> dict[str, Any]:
    """Its messages with values to try, and its entry in the list."""
    offered = build_prompt(
        written_prompt({name: getattr(prompt, name) for name in PROMPT_COLUMNS})
    ).prompt
    arguments = arguments_of(prompt.arguments)
    values = {one.name: data.get(f"{SAMPLE}{one.name}", _sample(one)) for one in arguments}
    refused, shown = "", []
    try:
        parsed = offered.arguments.parse(encode(values))
        shown = list(map(_shown, offered.callable(**parsed)))
    except (InvalidArguments, InvalidParams) as exc:
        refused = str(exc)
    wire = shapes.project_prompt(describe(offered), LATEST)
    return {
        "kept": list(_kept(data)),
        "samples": [
            {
                "field": f"{SAMPLE}{one.name}",
                "name": one.name,
                "description": one.description,
                "required": one.required,
                "choices": one.choices,
                "value": values[one.name],
            }
            for one in arguments
        ],
        "refused": refused,
        "messages_shown": shown,
        "entry": json.dumps(wire, indent=2, ensure_ascii=False),
    }


def _sample(argument: TextArgument) -> str:
    """A value that shows where it went."""
    return argument.choices[0] if argument.choices else f"«{argument.name}»"


def _shown(message: Message) -> Mapping[str, str]:
    content = message.content
    return {"role": message.role, "text": content if isinstance(content, str) else _text(content)}


def _text(content: Any) -> str:
    return content.text if isinstance(content, Text) else str(content)


def _kept(data: Any) -> Iterator[tuple[str, str]]:
    """What the form has sent, to be sent again with other values."""
    for name, values in data.lists():
        if name not in _NOT_KEPT and not name.startswith(SAMPLE):
            yield from ((name, value) for value in values)
