"""From what a component returned or raised to the result of its method, within a size limit.

Results are built in the richest wire shape. Django's exceptions keep the meaning that they have
in a view. Every other exception is a bug: logged with its traceback, answered with a neutral
sentence (ERR-5).

A result that is too large is cut with a note that says how much there was. Hosts refuse or drop a
result over their own limit and then the whole call is lost, so a tool never fails because of
size: a list loses its last items, a text its end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.db.models import QuerySet
from django.http import Http404
from django.template import Context as TemplateContext
from django.template.backends.django import Template as DjangoTemplate
from django.template.loader import get_template

from mcp_django.conf import get_settings
from mcp_django.core.component import Completion, Component, Prompt
from mcp_django.core.resource import ReadableComponent
from mcp_django.core.tool import Tool
from mcp_django.exceptions import (
    AccessRefused,
    ElicitationDeclined,
    InputRequired,
    InternalError,
    InvalidParams,
    MCPError,
    MissingCapability,
    ResourceNotFound,
    ToolError,
)
from mcp_django.execution.query_limits import WriteRefused
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
from mcp_django.protocol.errors import URLElicitationRequired
from mcp_django.protocol.revisions import Revision
from mcp_django.protocol.shapes import project_question
from mcp_django.schema.arguments import Problem
from mcp_django.schema.signature import OutputMismatch, TypedOutput
from mcp_django.schema.values import jsonable
from mcp_django.signals import component_failed

logger = logging.getLogger("mcp_django")

BLOCKS = (Text, Image, Audio, EmbeddedResource, ResourceLink)
MAX_COMPLETIONS = 100


def tool_error(text: str) -> dict[str, Any]:
    """A result that tells the model what went wrong."""
    return {"content": [Text(cut_text(text)).to_wire()], "isError": True}


def tool_result(tool: Tool, value: Any) -> dict[str, Any]:
    """The result of a tool: content always, structured content where the return type has one.

    The text is the same JSON as the structured content, since hosts read one or the other
    (OUT-2); a date or an amount alone needs no quotes there.
    """
    if isinstance(value, ToolResult):
        return _explicit_result(tool, value)
    if tool.output is not None:
        structured, note = cut_structure(tool.output.dump(value))
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
        return [Text(cut_text(value))]
    if _is_content(value):
        return [Text(cut_text(v)) if isinstance(v, str) else v for v in value]
    plain = jsonable(value)
    if isinstance(plain, str):
        # A date, an amount, a lazy translation: as text it needs no quotes.
        return [Text(cut_text(plain))]
    structure, note = cut_structure(plain)
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


# Exceptions of the developer's function -----------------------------------------------------------

MISSING = (Http404, ObjectDoesNotExist)


class CallAborted(Exception):
    """The function wanted to end the process or the task: a bug like any other."""


class CallTimedOut(Exception):
    """The call took longer than its time limit; its thread may still be at it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took longer than {seconds:g} seconds")
        self.seconds = seconds


def failure_in(exc: BaseException) -> Exception:
    """What failed, inside a group of exceptions or not.

    Raises:
        InputRequired: nothing did; tasks of a group asked something.
    """
    if isinstance(exc, BaseExceptionGroup):
        asked, rest = exc.split(InputRequired)
        if asked is not None and rest is None:
            raise InputRequired from exc
    return aborted(exc)


def aborted(exc: BaseException) -> CallAborted:
    """An end that would take more than the call with it, as a failure of the call alone."""
    failure = CallAborted(f"ended with {type(exc).__name__}")
    failure.__cause__ = exc
    return failure


def tool_failure(tool: Tool, revision: Revision, exc: Exception) -> dict[str, Any]:
    """A failed tool answers in-band, so that the model can try something else (TOOL-10)."""
    if isinstance(exc, MissingCapability) and not revision.stateless:
        # There is no such code before 2026-07-28 (VER-18).
        return tool_error(exc.message)
    if isinstance(exc, MCPError) and not isinstance(exc, ResourceNotFound):
        raise exc
    return tool_error(_sentence(tool, exc) or _bug(tool, exc))


def resource_failure(component: ReadableComponent, uri: str, exc: Exception) -> NoReturn:
    """A resource that cannot be read is an error; missing and forbidden look the same."""
    if isinstance(exc, MCPError):
        raise exc
    if isinstance(exc, (*MISSING, PermissionDenied)):
        raise ResourceNotFound(
            "Resource not found; see resources/list and resources/templates/list.",
            data={"uri": uri},
        ) from exc
    _refuse(component, exc)


def component_failure(component: Component, exc: Exception) -> NoReturn:
    """A prompt or a list that cannot be made is an error of the arguments, or ours.

    A list that left out what failed would look whole.
    """
    if isinstance(exc, MCPError):
        raise exc
    _refuse(component, exc)


def completion_failure(completion: Completion, exc: Exception) -> dict[str, Any]:
    """Suggestions are a convenience: what fails has none, and the log says why."""
    # A completion can ask nobody, whatever the client declared: that is the function's mistake.
    if isinstance(exc, MCPError) and not isinstance(exc, MissingCapability):
        raise exc
    if not isinstance(exc, (*MISSING, PermissionDenied, ValidationError, ToolError)):
        logger.error("The completion of %s failed.", completion.key, exc_info=exc)
    return {"completion": {"values": []}}


def _refuse(component: Component, exc: Exception) -> NoReturn:
    sentence = _sentence(component, exc)
    if sentence is None:
        raise InternalError(_bug(component, exc)) from exc
    if isinstance(exc, CallTimedOut):
        raise InternalError(sentence) from exc
    raise InvalidParams(sentence) from exc


def _sentence(component: Component, exc: Exception) -> str | None:
    """What to tell the model, ``None`` for a bug."""
    if isinstance(exc, (ToolError, AccessRefused, ElicitationDeclined)):
        return str(exc)
    if isinstance(exc, ResourceNotFound):
        # Read by the component itself, on behalf of its caller.
        return f"{exc.message} (URI: {dict(exc.data or {}).get('uri', '')})"
    if isinstance(exc, CallTimedOut):
        return f"{component} {exc}. Ask for less, or try again later."
    if isinstance(exc, ValidationError):
        return _validation_text(exc)
    if isinstance(exc, MISSING):
        return str(exc) or "Not found."
    if isinstance(exc, PermissionDenied):
        return str(exc) or "You may not do this."
    if isinstance(exc, SuspiciousOperation):
        logger.warning("%s refused a suspicious request: %s", component, exc)
        return "The request was refused."
    return None


def _validation_text(exc: ValidationError) -> str:
    if not hasattr(exc, "error_dict"):
        return " ".join(exc.messages)
    return "\n".join(f"{name}: {' '.join(texts)}" for name, texts in exc.message_dict.items())


def _bug(component: Component, exc: Exception) -> str:
    logger.error("%s failed.", component, exc_info=exc)
    component_failed.send(sender=type(component), component=component, exception=exc)
    if isinstance(exc, WriteRefused):
        return exc.told
    return f"{component} failed for a reason that is no fault of the request; it was logged."


# Size limits --------------------------------------------------------------------------------------


def cut_text(text: str) -> str:
    """The text, or its beginning with a line that says what is missing."""
    limit = get_settings().max_result_bytes
    # Half a surrogate pair cannot be sent; a question mark can.
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return raw.decode()
    kept = raw[:limit].decode(errors="ignore")
    return (
        f"{kept}\n\n[Cut: the first {len(kept)} of {len(text)} characters. "
        "Ask for less, or for one part at a time.]"
    )


def cut_structure(value: Any) -> tuple[Any, str]:
    """The JSON value and an empty note, or a shorter one and a note that says what is missing.

    Cut is a list at the root, or the longest list directly under it; the rest of the value stays
    whole, so it still fits its schema.

    Raises:
        ToolError: there is no list to cut; the message asks for a narrower call.
    """
    limit = get_settings().max_result_bytes
    size = _size(value)
    if size <= limit:
        return value, ""
    if isinstance(value, list):
        kept = _fitting(value, limit)
        if kept:
            return value[:kept], _note(kept, len(value))
    if isinstance(value, dict):
        name = max(
            (k for k, v in value.items() if isinstance(v, list)),
            key=lambda k: _size(value[k]),
            default=None,
        )
        if name is not None:
            items = value[name]
            kept = _fitting(items, limit - (size - _size(items)))
            if kept:
                return {**value, name: items[:kept]}, f"{name}: {_note(kept, len(items))}"
    raise ToolError(
        f"The answer has {size} bytes and {limit} are allowed; narrow the request and try again."
    )


def fitting(items: list[Any]) -> int:
    """How many items fit into an answer, from the beginning.

    A tool that pages by itself asks, since a page cut by ``cut_structure`` would keep a cursor
    behind rows that it lost.
    """
    return _fitting(items, get_settings().max_result_bytes)


def fits(value: Any) -> bool:
    """Whether an answer may be as long as this."""
    return _size(value) <= get_settings().max_result_bytes


def _fitting(items: list[Any], limit: int) -> int:
    """How many items fit into so many bytes."""
    used, kept = 2, 0
    for item in items:
        used += _size(item) + 2
        if used > limit:
            break
        kept += 1
    return kept


def _note(kept: int, total: int) -> str:
    return f"[Cut: the first {kept} of {total}. Narrow the request, or ask for the next part.]"


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())


# Pages that the user has to visit -----------------------------------------------------------------


def pages_to_visit(
    questions: Mapping[str, Mapping[str, Any]], revision: Revision, id_of: Callable[[str], str]
) -> URLElicitationRequired:
    """The error that names the pages of these questions, each with the id of its key.

    It is for a client that does not take questions (ASK-18).
    """
    asked = [
        project_question(one["method"], one["params"], revision, elicitation_id=id_of(key))
        for key, one in questions.items()
    ]
    return URLElicitationRequired(
        "The user has to visit a page first; call again afterwards.",
        data={"elicitations": asked},
    )
