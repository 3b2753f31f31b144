"""From what a function returned to the result of its method, in the richest wire shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from django.db.models import QuerySet
from django.template import Context as TemplateContext
from django.template.backends.django import Template as DjangoTemplate
from django.template.loader import get_template

from mcp_django.core.component import Prompt
from mcp_django.core.resource import ReadableComponent
from mcp_django.core.tool import Tool
from mcp_django.protocol.content import (
    Audio,
    EmbeddedResource,
    Image,
    Message,
    ResourceContents,
    ResourceLink,
    Text,
    ToolResult,
)
from mcp_django.runtime import budget
from mcp_django.schema.arguments import Problem
from mcp_django.schema.signature import OutputMismatch, TypedOutput
from mcp_django.schema.values import jsonable

BLOCKS = (Text, Image, Audio, EmbeddedResource, ResourceLink)
MAX_COMPLETIONS = 100


def tool_error(text: str) -> dict[str, Any]:
    """A result that tells the model what went wrong."""
    return {"content": [Text(budget.cut_text(text)).to_wire()], "isError": True}


def tool_result(tool: Tool, value: Any) -> dict[str, Any]:
    """The result of a tool: content always, structured content where the return type has one.

    The text is the same JSON as the structured content, since hosts read one or the other
    (OUT-2); a date or an amount alone needs no quotes there.
    """
    if isinstance(value, ToolResult):
        return _explicit_result(tool, value)
    if tool.output is not None:
        structured, note = budget.cut_structure(tool.output.dump(value))
        is_plain = isinstance(structured, str) and isinstance(tool.output, TypedOutput)
        text = structured if is_plain else to_text(structured)
        content = [Text(text).to_wire()]
        if note:
            content.append(Text(note).to_wire())
        return {"content": content, "structuredContent": structured}
    return {"content": [block.to_wire() for block in _blocks(value)]}


def _explicit_result(tool: Tool, value: ToolResult) -> dict[str, Any]:
    result = value.to_wire()
    if value.is_error or (tool.output is None and "structuredContent" not in result):
        return result
    if "structuredContent" not in result:
        problem = Problem(path="structured", message="missing, and the tool declares an output")
        raise OutputMismatch([problem])
    dump = jsonable if tool.output is None else tool.output.dump
    result["structuredContent"] = dump(result["structuredContent"])
    if not result["content"]:
        result["content"] = [Text(to_text(result["structuredContent"])).to_wire()]
    return result


def _blocks(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, BLOCKS):
        return [value]
    if isinstance(value, str):
        return [Text(budget.cut_text(value))]
    if _is_content(value):
        return [Text(budget.cut_text(v)) if isinstance(v, str) else v for v in value]
    plain = jsonable(value)
    if isinstance(plain, str):
        # A date, an amount, a lazy translation: as text it needs no quotes.
        return [Text(budget.cut_text(plain))]
    structure, note = budget.cut_structure(plain)
    return [Text(to_text(structure)), *([Text(note)] if note else [])]


def _is_content(value: Any) -> bool:
    """Whether a list mixes content blocks and text; one of text alone is data."""
    if not isinstance(value, (list, tuple)) or not any(isinstance(v, BLOCKS) for v in value):
        return False
    return all(isinstance(v, (str, *BLOCKS)) for v in value)


def to_text(value: Any) -> str:
    """A JSON value as text; characters stay as they are, numbers that are not JSON are refused."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def resource_result(
    component: ReadableComponent, uri: str, hints: Mapping[str, Any], value: Any
) -> dict[str, Any]:
    """The contents of a resource, one entry at least (RSC-5)."""
    contents = [
        one.to_wire(uri, component.mime_type or _mime_type(one))
        for one in resource_contents(component, value)
    ]
    return {"contents": contents, **hints}


def resource_contents(component: ReadableComponent, value: Any) -> list[ResourceContents]:
    """What a resource's function returned, as contents: several of them, or one."""
    if isinstance(value, ResourceContents):
        return [value]
    if isinstance(value, (list, tuple)) and value and _all_contents(value):
        return list(value)
    if isinstance(value, (str, bytes)):
        return [ResourceContents(value)]
    mime_type = component.mime_type or "application/json"
    return [ResourceContents(to_text(jsonable(value)), mime_type=mime_type)]


def _all_contents(values: Iterable[Any]) -> bool:
    return all(isinstance(value, ResourceContents) for value in values)


def _mime_type(contents: ResourceContents) -> str:
    return "text/plain" if isinstance(contents.content, str) else "application/octet-stream"


def prompt_result(prompt: Prompt, value: Any) -> dict[str, Any]:
    """The messages of a prompt; text and blocks alone are said by the user."""
    if prompt.template is not None:
        value = _render(prompt.template, value)
    many = value if isinstance(value, (list, tuple)) else [value]
    messages = [_message(one) for one in many]
    result: dict[str, Any] = {"messages": [message.to_wire() for message in messages]}
    if prompt.description:
        result["description"] = str(prompt.description)
    return result


def _message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, (str, *BLOCKS)):
        return Message(value)
    raise TypeError(f"A prompt returned {value!r}; return text, a Message or a list of them.")


def _render(template: str, context: Any) -> str:
    found = get_template(template)
    values = dict(context or {})
    if not isinstance(found, DjangoTemplate) or template.endswith((".html", ".htm")):
        return str(found.render(values)).strip()
    # A prompt is text: "Tom & Jerry" must not become "Tom &amp; Jerry".
    return str(found.template.render(TemplateContext(values, autoescape=False))).strip()


def completion_result(values: Iterable[Any]) -> dict[str, Any]:
    """At most a hundred suggestions, and whether there were more (CMP-2, CMP-6)."""
    if isinstance(values, QuerySet):
        # Left whole it would fetch every row.
        values = values[: MAX_COMPLETIONS + 1]
    found = [str(value) for value in islice(values, MAX_COMPLETIONS + 1)]
    completion: dict[str, Any] = {"values": found[:MAX_COMPLETIONS]}
    if len(found) > MAX_COMPLETIONS:
        completion["hasMore"] = True
    return {"completion": completion}
