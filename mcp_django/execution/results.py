"""Converts what a component returned or raised to the result of its method, within a size limit.

Results are built in the format of 2026-07-28, which has all members. Django's exceptions have the
same meaning as in a view. Every other exception is a bug: it is logged with its traceback, and the
client gets an error text without details.

A result that is too large is cut, with a note that states the full size. Hosts reject or drop a
result over their own limit, and then the whole call is lost. So a list or text that is too large
does not fail: a list loses its last items, a text its end.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec
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

from mcp_django.components.catalog import Server
from mcp_django.components.component import Completion, Component, Prompt
from mcp_django.components.resource import ReadableComponent
from mcp_django.components.tool import Tool
from mcp_django.conf import Settings, get_settings
from mcp_django.exceptions import (
    AccessRefused,
    CallTimedOut,
    ElicitationDeclined,
    ExplainedFault,
    InputRequired,
    InternalError,
    InvalidParams,
    MCPError,
    MissingCapability,
    ResourceNotFound,
    ToolError,
)
from mcp_django.protocol import jsonrpc, projection
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
from mcp_django.protocol.headers import JSON
from mcp_django.protocol.revisions import Revision
from mcp_django.schema.arguments import OutputMismatch, ValidationProblem
from mcp_django.schema.output import TypedOutput
from mcp_django.schema.values import exact_integers, jsonable
from mcp_django.signals import component_failed

if TYPE_CHECKING:
    from mcp_django.execution.call import Call, Result

logger = logging.getLogger("mcp_django")

BLOCKS = (Text, Image, Audio, EmbeddedResource, ResourceLink)
MAX_COMPLETIONS = 100


def tool_error(text: str) -> dict[str, Any]:
    """Return a tool result that tells the model what went wrong."""
    return {"content": [Text(cut_text(text)).to_wire()], "isError": True}


def tool_result(tool: Tool, value: Any) -> dict[str, Any]:
    """Return the result of a tool: content, and structured content if the tool declares an output.

    The text is the same JSON as the structured content, since hosts read one or the other. A
    single date or amount has no quotes in the text.
    """
    if type(value) is str and tool.output is None:
        # The most frequent case, with the same result as below.
        is_short = len(value) <= get_settings().max_result_bytes and value.isascii()
        text = value if is_short else cut_text(value)
        return {"content": [{"type": "text", "text": text}]}
    if isinstance(value, ToolResult):
        result = value.to_wire()
        if value.is_error or (tool.output is None and "structuredContent" not in result):
            return result
        if "structuredContent" not in result:
            problem = ValidationProblem(
                path="structured", message="missing, and the tool declares an output"
            )
            raise OutputMismatch([problem])
        dump = _plain if tool.output is None else tool.output.dump
        result["structuredContent"] = dump(result["structuredContent"])
        if not result["content"]:
            result["content"] = [Text(to_text(result["structuredContent"])).to_wire()]
        return result
    if tool.output is not None:
        structured, text, note = cut_structure(tool.output.dump(value))
        if isinstance(structured, str) and isinstance(tool.output, TypedOutput):
            text = structured
        content = [Text(text).to_wire()]
        if note:
            content.append(Text(note).to_wire())
        return {"content": content, "structuredContent": structured}
    return {"content": [block.to_wire() for block in _blocks(value)]}


def _blocks(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, BLOCKS):
        return [value]
    if isinstance(value, str):
        return [Text(cut_text(value))]
    if (
        isinstance(value, (list, tuple))
        and any(isinstance(v, BLOCKS) for v in value)
        and all(isinstance(v, (str, *BLOCKS)) for v in value)
    ):
        # A list of text alone is data.
        return [Text(cut_text(v)) if isinstance(v, str) else v for v in value]
    plain = _plain(value)
    if isinstance(plain, str):
        # A date, an amount or a lazy translation needs no quotes as text.
        return [Text(cut_text(plain))]
    _, text, note = cut_structure(plain)
    return [Text(text), *([Text(note)] if note else [])]


def _plain(value: Any) -> Any:
    return exact_integers(jsonable(value))


def to_text(value: Any) -> str:
    """Return a plain value as JSON without spaces, which would cost tokens, and without escapes.

    Raises:
        ValueError: the value contains NaN, Infinity or a lone surrogate.
    """
    return jsonrpc.encode(value).decode()


def resource_result(
    component: ReadableComponent, uri: str, hints: Mapping[str, Any], value: Any
) -> dict[str, Any]:
    """Return the result of ``resources/read``, with at least one entry."""
    contents = []
    for content in resource_contents(component, value):
        is_text = isinstance(content.content, str)
        mime_type = component.mime_type or ("text/plain" if is_text else "application/octet-stream")
        contents.append(content.to_wire(uri, mime_type))
    return {"contents": contents, **hints}


def resource_contents(component: ReadableComponent, value: Any) -> list[ResourceContents]:
    """Convert what a resource's function returned to a list of contents."""
    if isinstance(value, ResourceContents):
        return [value]
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(content, ResourceContents) for content in value)
    ):
        return list(value)
    if isinstance(value, (str, bytes)):
        return [ResourceContents(value)]
    mime_type = component.mime_type or JSON
    return [ResourceContents(to_text(_plain(value)), mime_type=mime_type)]


def prompt_result(prompt: Prompt, value: Any) -> dict[str, Any]:
    """Return the messages of a prompt; plain text and blocks have the role ``user``."""
    if prompt.template is not None:
        value = _render(prompt.template, value)
    many = value if isinstance(value, (list, tuple)) else [value]
    messages = [_message(part) for part in many]
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
    compiled_template = get_template(template)
    values = dict(context or {})
    if not isinstance(compiled_template, DjangoTemplate) or template.endswith((".html", ".htm")):
        return str(compiled_template.render(values)).strip()
    # A prompt is text: "Tom & Jerry" must not become "Tom &amp; Jerry".
    return str(compiled_template.template.render(TemplateContext(values, autoescape=False))).strip()


def completion_result(values: Iterable[Any]) -> dict[str, Any]:
    """Return at most 100 suggestions, and whether there are more."""
    if isinstance(values, QuerySet):
        # Without a limit it would fetch every row.
        values = values[: MAX_COMPLETIONS + 1]
    suggestions = [str(value) for value in islice(values, MAX_COMPLETIONS + 1)]
    completion: dict[str, Any] = {"values": suggestions[:MAX_COMPLETIONS]}
    if len(suggestions) > MAX_COMPLETIONS:
        completion["hasMore"] = True
    return {"completion": completion}


# Exceptions of the developer's function -----------------------------------------------------------

NOT_FOUND_EXCEPTIONS = (Http404, ObjectDoesNotExist)


class CallAborted(Exception):
    """The function tried to end the process or the task, which counts as a bug."""


def failure_from(exc: BaseException) -> Exception:
    """Return a base exception or an exception group as a failure of this call.

    Raises:
        InputRequired: all exceptions of the group are ``InputRequired``.
    """
    if isinstance(exc, BaseExceptionGroup):
        requests, rest = exc.split(InputRequired)
        if requests is not None and rest is None:
            raise InputRequired from exc
    return wrap_abort(exc)


def wrap_abort(exc: BaseException) -> CallAborted:
    """Wrap an exception that would end more than this call as a failure of the call."""
    failure = CallAborted(f"ended with {type(exc).__name__}")
    failure.__cause__ = exc
    return failure


def tool_failure(tool: Tool, revision: Revision, exc: Exception) -> dict[str, Any]:
    """Return an exception of a tool as a result, so that the model can try something else."""
    if isinstance(exc, MissingCapability) and not revision.stateless:
        # This error code does not exist before 2026-07-28.
        return tool_error(exc.message)
    if isinstance(exc, MCPError) and not isinstance(exc, ResourceNotFound):
        raise exc
    return tool_error(_error_text(tool, exc) or _log_bug(tool, exc))


def resource_failure(component: ReadableComponent, uri: str, exc: Exception) -> NoReturn:
    """Raise the JSON-RPC error of a failed read; missing and forbidden look the same."""
    if isinstance(exc, MCPError):
        raise exc
    if isinstance(exc, (*NOT_FOUND_EXCEPTIONS, PermissionDenied)):
        raise ResourceNotFound(
            "Resource not found; see resources/list and resources/templates/list.",
            data={"uri": uri},
        ) from exc
    _raise_error(component, exc)


def component_failure(component: Component, exc: Exception) -> NoReturn:
    """Raise the JSON-RPC error of a failed prompt or list: invalid arguments or a server error.

    A list without the part that failed would look complete, so the whole list fails.
    """
    if isinstance(exc, MCPError):
        raise exc
    _raise_error(component, exc)


def completion_failure(completion: Completion, exc: Exception) -> dict[str, Any]:
    """Return no suggestions for a failed completion, and log unexpected exceptions."""
    # A completion cannot ask the client, so ``MissingCapability`` is a mistake in its function.
    if isinstance(exc, MCPError) and not isinstance(exc, MissingCapability):
        raise exc
    if not isinstance(exc, (*NOT_FOUND_EXCEPTIONS, PermissionDenied, ValidationError, ToolError)):
        logger.error("The completion of %s failed.", completion.key, exc_info=exc)
    return {"completion": {"values": []}}


def _raise_error(component: Component, exc: Exception) -> NoReturn:
    sentence = _error_text(component, exc)
    if sentence is None:
        raise InternalError(_log_bug(component, exc)) from exc
    if isinstance(exc, CallTimedOut):
        raise InternalError(sentence) from exc
    raise InvalidParams(sentence) from exc


def _error_text(component: Component, exc: Exception) -> str | None:
    """Return the error text for the model, ``None`` for a bug."""
    if isinstance(exc, (ToolError, AccessRefused, ElicitationDeclined)):
        return str(exc)
    if isinstance(exc, ResourceNotFound):
        # From a resource that the component read on behalf of its caller.
        return f"{exc.message} (URI: {dict(exc.data or {}).get('uri', '')})"
    if isinstance(exc, CallTimedOut):
        return f"{component} {exc}. Ask for less, or try again later."
    if isinstance(exc, ValidationError):
        if not hasattr(exc, "error_dict"):
            return " ".join(exc.messages)
        return "\n".join(f"{name}: {' '.join(texts)}" for name, texts in exc.message_dict.items())
    if isinstance(exc, NOT_FOUND_EXCEPTIONS):
        return str(exc) or "Not found."
    if isinstance(exc, PermissionDenied):
        return str(exc) or "You may not do this."
    if isinstance(exc, SuspiciousOperation):
        logger.warning("%s rejected a suspicious request: %s", component, exc)
        return "The request was refused."
    return None


def _log_bug(component: Component, exc: Exception) -> str:
    logger.error("%s failed.", component, exc_info=exc)
    component_failed.send(sender=type(component), component=component, exception=exc)
    if isinstance(exc, ExplainedFault):
        return exc.client_message
    return f"{component} failed because of a server error. The error was logged."


# Encoding -----------------------------------------------------------------------------------------


def encode_response(call: Call, result: Result) -> bytes:
    """Return a result as the bytes of its JSON-RPC response, in the revision of its request.

    A tool result that is too large for an event is replaced by an error result.

    Raises:
        InternalError: the site's function returned something that cannot be encoded as JSON, or
            another result is too large for an event.
    """
    try:
        body = encode_result(call, result)
        if call.stream is not None and is_too_large(call, len(body)):
            size, limit = len(body), get_settings().max_event_bytes
            logger.warning(
                "The result of %s on server %r has %d bytes, and was replaced by an error: an "
                "event has at most %d (MAX_EVENT_BYTES). Return a ResourceLink instead of the "
                "content, or raise the setting if your clients accept larger events.",
                f"{call.request.method} {call.name}".strip(),
                call.server.name,
                size,
                limit,
            )
            text = (
                f"The result has {size} bytes; at most {limit} can be sent on a stream. Make the "
                "request more specific, or send it again without a progress token and a log "
                "level, so that it is answered without a stream."
            )
            if call.request.method not in ("tools/call", "tasks/result"):
                raise InternalError(text)
            error = tool_error(text)
            if call.request.method == "tasks/result" and "_meta" in result:
                error["_meta"] = result["_meta"]
            body = encode_result(call, error)
        return jsonrpc.RESULT % (jsonrpc.encode_id(call.request.id), body)
    except (TypeError, ValueError) as exc:
        # From the site's function: a lone surrogate in a text, an object in a block's meta.
        logger.exception("The result of %s cannot be encoded as JSON.", call.request.method)
        raise InternalError("The result cannot be encoded as JSON. The error was logged.") from exc


def encode_result(call: Call, result: Result) -> bytes:
    """Return the JSON of a result in the revision of its request; a result is encoded only once.

    Raises:
        TypeError, ValueError: the result cannot be encoded.
    """
    if call.encoded is not None and call.encoded[0] is result:
        return call.encoded[1]
    revision, schema = call.envelope.revision, None
    identity: Any = None
    if revision.stateless:
        identity = _identity(call)
    elif (
        "structuredContent" in result
        and call.request.method == "tools/call"
        and call.plan is not None
    ):
        # The output schema decides how older revisions wrap the value.
        output = getattr(call.plan.component, "output", None)
        schema = None if output is None else output.json_schema
    projected = projection.project_result(
        call.request.method, result, revision, identity=identity, output_schema=schema
    )
    body = jsonrpc.encode(projected)
    call.encoded = result, body
    return body


# The bytes for the rest of an event: its other fields, and the id of the request.
EVENT_ROOM = 1024


def is_too_large(call: Call, size: int) -> bool:
    """Return whether a message of so many bytes is too large for an event of the call's stream.

    Always false for one JSON document, and on transports whose messages are not events.
    """
    return call.stream is not None and call.stream.has_begun and size > largest_message()


def largest_message() -> float:
    """Return how many bytes a message in an event may have."""
    limit = get_settings().max_event_bytes
    return math.inf if limit is None else limit - EVENT_ROOM


class _Identity(NamedTuple):
    """The encoded ``serverInfo`` of a server whose texts are the same in every language."""

    encoded: msgspec.Raw
    attributes: tuple[object, ...]
    server: Server
    settings: Settings


def _identity(call: Call) -> Any:
    """Return ``serverInfo``; if it is always the same, it is cached in the catalog, encoded."""
    server, settings, catalog = call.server, get_settings(), call.catalog
    if catalog is None:
        return server.identity()
    attributes = server.identity_attributes
    cached: _Identity | None = catalog.encoded_identity
    if (
        cached is not None
        and cached.attributes == attributes
        and cached.server is server
        and cached.settings is settings
    ):
        return cached.encoded
    identity = server.identity()
    if all(isinstance(attribute, str | tuple) for attribute in attributes):
        encoded = msgspec.Raw(jsonrpc.encode(identity))
        catalog.encoded_identity = _Identity(encoded, attributes, server, settings)
    return identity


# Size limits --------------------------------------------------------------------------------------


def cut_text(text: str) -> str:
    """Return the text, cut to the size limit with a line that says how much is missing."""
    limit = get_settings().max_result_bytes
    # A lone surrogate cannot be encoded; it becomes a question mark.
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return raw.decode()
    prefix = raw[:limit].decode(errors="ignore")
    return (
        f"{prefix}\n\n[Cut: the first {len(prefix)} of {len(text)} characters. "
        "Ask for less, or for one part at a time.]"
    )


class CutStructure(NamedTuple):
    """A JSON value that was cut to the size limit."""

    value: Any
    text: str
    """Its JSON."""
    note: str
    """How much is missing, empty if nothing was cut."""


def cut_structure(value: Any) -> CutStructure:
    """Return the JSON value, cut to the size limit.

    Only a list at the root is cut, or the largest list directly under it; the rest of the value
    stays complete, so it still fits its schema.

    Raises:
        ToolError: the result has no list to cut; the message asks for a more specific call.
    """
    limit, text = get_settings().max_result_bytes, to_text(value)
    size = _bytes(text)
    if size <= limit:
        return CutStructure(value, text, "")
    if isinstance(value, list):
        count = _count_fitting(value, limit)
        if count:
            return _cut(value[:count], _cut_note(count, len(value)))
    if isinstance(value, dict):
        name = max(
            (k for k, v in value.items() if isinstance(v, list)),
            key=lambda k: _size(value[k]),
            default=None,
        )
        if name is not None:
            items = value[name]
            count = _count_fitting(items, limit - (size - _size(items)))
            if count:
                return _cut(
                    {**value, name: items[:count]}, f"{name}: {_cut_note(count, len(items))}"
                )
    raise ToolError(
        f"The result has {size} bytes; at most {limit} are allowed. Make the request more specific."
    )


def _cut(value: Any, note: str) -> CutStructure:
    return CutStructure(value, to_text(value), note)


def count_fitting(items: list[Any]) -> int:
    """Return how many items, from the beginning, fit into a result.

    For tools with their own pagination: if ``cut_structure`` cut a page, its cursor would skip the
    rows that were cut.
    """
    return _count_fitting(items, get_settings().max_result_bytes)


def fits(value: Any) -> bool:
    """Return whether a value is not too large for a result."""
    return _size(value) <= get_settings().max_result_bytes


def _count_fitting(items: list[Any], limit: int) -> int:
    """Return how many items fit into the limit in bytes."""
    used, count = 2, 0
    for element in items:
        used += _size(element) + 2
        if used > limit:
            break
        count += 1
    return count


def _cut_note(count: int, total: int) -> str:
    return f"[Cut: the first {count} of {total}. Filter the request, or ask for the next part.]"


def _size(value: Any) -> int:
    return _bytes(to_text(value))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def url_elicitation_error(
    questions: Mapping[str, Mapping[str, Any]], revision: Revision, id_of: Callable[[str], str]
) -> URLElicitationRequired:
    """Return the error that lists the pages of these questions, each with its elicitation id.

    For a client of 2025-11-25 that the server cannot send a request to.
    """
    elicitations = [
        projection.project_client_request(
            question["method"], question["params"], revision, elicitation_id=id_of(key)
        )
        for key, question in questions.items()
    ]
    return URLElicitationRequired(
        "The user must visit a page first; call again afterwards.",
        data={"elicitations": elicitations},
    )
