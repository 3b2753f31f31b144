"""A response of the site, and the result of a tool, a resource or a prompt that it becomes.

Only the parts of a response that a component can use are read. Headers and cookies are not passed
on. Of a stream no more is read than may be passed on.
"""

from __future__ import annotations

import datetime as dt
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from email.message import Message as EmailMessage
from time import monotonic
from typing import Any, NoReturn, cast
from urllib.parse import parse_qs, urljoin, urlsplit

from asgiref.sync import async_to_sync
from django import forms
from django.conf import settings as django_settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch
from django.utils import timezone
from django.utils.safestring import SafeData

from mcp_django.conf import get_settings
from mcp_django.exceptions import ToolError
from mcp_django.execution import results
from mcp_django.execution.results import to_text
from mcp_django.integrations.html_text import plain, readable
from mcp_django.integrations.site_requests import FreshRequest
from mcp_django.protocol.content import (
    Audio,
    Block,
    EmbeddedResource,
    Image,
    Message,
    ResourceContents,
    Text,
    ToolResult,
)
from mcp_django.schema.values import jsonable

PACKED = frozenset({"gzip", "x-gzip"})
# What zlib calls finding out by itself.
ANY_HEADER = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response that was read to its end, or as far as it is of any use."""

    url: str
    """Of the page, absolute."""
    status: int
    reason: str
    mime_type: str
    charset: str
    filename: str
    body: bytes
    is_cut: bool
    is_own: bool
    """Whether it is the view's own, and not one that a middleware or Django put in its place."""
    location: str
    """Where a redirect leads: a path, or a URL when that is on another host."""
    messages: tuple[str, ...]
    zone: dt.tzinfo
    """The time zone in which the view reads and writes moments."""
    context: Any
    """The context of a template response, from which the errors of a form are read."""

    @property
    def text(self) -> str:
        """The body as text without half characters; UTF-8 where its charset is none."""
        try:
            text = self.body.decode(self.charset, errors="replace")
        except (LookupError, ValueError, Warning):
            # Some of Python's charsets are none of the web, and fail in ways of their own.
            text = self.body.decode(errors="replace")
        return text.encode(errors="replace").decode().removeprefix("\ufeff")

    @property
    def is_redirect(self) -> bool:
        """Whether it leads elsewhere."""
        return 300 <= self.status < 400 and bool(self.location)

    @property
    def title(self) -> str:
        """The status in words: ``409 Conflict``."""
        return f"{self.status} {self.reason}".strip()


def read_answer(
    request: FreshRequest, response: HttpResponseBase, *, is_over: Callable[[], bool]
) -> Answer:
    """Read a response; ``is_over`` says that nobody waits for the rest of it any more."""
    described = EmailMessage()
    described["Content-Type"] = response.get("Content-Type", "")
    described["Content-Disposition"] = response.get("Content-Disposition", "")
    # Where calls run in the thread of their request, nobody else ends a stream that has no end.
    deadline = monotonic() + get_settings().call_timeout
    body, is_cut = _body(
        response, described.get_content_type(), lambda: is_over() or monotonic() > deadline
    )
    if response.get("Content-Encoding", "").lower() in PACKED:
        body, is_cut = _unpacked(body, is_cut=is_cut)
    location = response.get("Location", "")
    # Read while the answer is: an iterator may still add to them.
    messages = tuple(_messages(request))
    return Answer(
        url=request.build_absolute_uri(),
        status=response.status_code,
        reason=response.reason_phrase,
        mime_type=described.get_content_type() if described["Content-Type"] else "",
        charset=response.charset or "utf-8",
        filename=described.get_filename() or "",
        body=body,
        is_cut=is_cut,
        is_own=response is request.returned,
        location=_target(request, location) if location else "",
        messages=messages,
        zone=request.zone or timezone.get_current_timezone(),
        context=getattr(response, "context_data", None),
    )


def _body(
    response: HttpResponseBase, mime_type: str, is_over: Callable[[], bool]
) -> tuple[bytes, bool]:
    """The body, and whether there was more of it."""
    limit = get_settings().max_body_bytes
    if not isinstance(response, StreamingHttpResponse):
        content = cast(HttpResponse, response).content
        return content[:limit], len(content) > limit
    if mime_type.startswith("text/") and mime_type != "text/html":
        # It is passed on as it is, so the limit of a result is that of the reading; HTML shrinks.
        limit = get_settings().max_result_bytes
    if response.is_async:
        return async_to_sync(_aread)(response, limit, is_over)
    return _read(iter(response), limit, is_over)


def _unpacked(body: bytes, *, is_cut: bool) -> tuple[bytes, bool]:
    """A body that was compressed without our asking, as far as it may be long."""
    unpacking = zlib.decompressobj(ANY_HEADER)
    try:
        found = unpacking.decompress(body, get_settings().max_body_bytes)
    except zlib.error:
        return body, is_cut
    return found, is_cut or bool(unpacking.unconsumed_tail)


def _read(chunks: Iterator[bytes], limit: int, is_over: Callable[[], bool]) -> tuple[bytes, bool]:
    read = bytearray()
    for chunk in chunks:
        read += chunk
        if len(read) > limit or is_over():
            return bytes(read[:limit]), True
    return bytes(read), False


async def _aread(
    response: StreamingHttpResponse, limit: int, is_over: Callable[[], bool]
) -> tuple[bytes, bool]:
    read = bytearray()
    async with aclosing(response.__aiter__()) as chunks:  # type: ignore[type-var]  # a generator, which the stubs hide
        async for chunk in chunks:
            read += chunk
            if len(read) > limit or is_over():
                return bytes(read[:limit]), True
    return bytes(read), False


def _target(request: FreshRequest, location: str) -> str:
    """Where a redirect leads, without the host where that is the site's own."""
    try:
        absolute = urljoin(request.build_absolute_uri(), location)
        here, there = urlsplit(request.build_absolute_uri()), urlsplit(absolute)
    except ValueError:
        # No address, so it is said as it was written.
        return location
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        return absolute
    return there._replace(scheme="", netloc="").geturl() or "/"


def _messages(request: FreshRequest) -> Iterator[str]:
    """What Django's message framework would have shown on the next page."""
    storage = getattr(request, "_messages", None)
    if storage is None or storage.used:
        # A page that shows them has them already.
        return
    for message in storage:
        yield message_text(message)


def message_text(message: Any) -> str:
    """What a message of Django's framework says, without tags."""
    text = str(message)
    return plain(text) if isinstance(message.message, SafeData) else text


# From a response to a result ----------------------------------------------------------------------

MAX_LOCATION = 500
TEXT_TYPES = frozenset(
    {
        "application/ecmascript",
        "application/javascript",
        "application/x-ndjson",
        "application/xml",
        "application/yaml",
    }
)


def check(answer: Answer, *, verb: str) -> None:
    """Refuse an answer that is not what was asked for.

    Raises:
        Http404: the site found nothing.
        PermissionDenied: the site refused.
        ToolError: anything else that went wrong, with its status and reason.
    """
    if answer.is_redirect:
        _check_redirect(answer, verb)
    elif answer.status in {404, 410}:
        # Not the view's own, which is raised before, but a middleware's.
        raise Http404("Not found.")
    elif answer.status == 403:
        raise PermissionDenied
    elif answer.status >= 400:
        _refuse(answer)


def _check_redirect(answer: Answer, verb: str) -> None:
    target = answer.location[:MAX_LOCATION]
    if _is_sign_in(answer):
        raise ToolError(
            f"You may not do this: the site asks for a sign-in at {target}, which was not followed."
            + said(answer)
        )
    if verb == "GET":
        raise ToolError(
            f"There is no page here: the site redirects to {target}, which was not followed."
            + said(answer)
        )


def _refuse(answer: Answer) -> NoReturn:
    """Say the status; what else is said only where the view itself said it.

    Django's own page of an error may show the site's settings and code.
    """
    told = _plain(answer) if answer.is_own else ""
    raise ToolError(f"The site answered {answer.title}.{said(answer)}" + (told and f"\n{told}"))


def _plain(answer: Answer) -> str:
    """What an error says of itself, as text."""
    if answer.mime_type == "text/html":
        return readable(answer.text)
    return answer.text if _is_text(answer.mime_type) else ""


def said(answer: Answer) -> str:
    """What the site said to its user on the way (Django's messages), behind a space."""
    return "".join(f" Message: {text}" for text in answer.messages)


def tool_result(answer: Answer, *, is_readable: bool) -> ToolResult:
    """The result of a tool."""
    notes = [Text(f"Message: {text}") for text in answer.messages]
    if answer.is_redirect:
        done = (
            f"Done. The site goes on to {answer.location[:MAX_LOCATION]}, which was not followed."
        )
        return ToolResult(done, *notes)
    if not answer.body:
        return ToolResult(f"Done: the site answered {answer.title}, with nothing in it.", *notes)
    found, value = _json(answer)
    if found:
        structure, note = _fitting(value)
        cut = [Text(note)] if note else []
        return ToolResult(Text(to_text(structure)), *cut, *notes, structured=structure)
    return ToolResult(*_blocks(answer, is_readable=is_readable), *notes)


def _fitting(value: Any) -> tuple[Any, str]:
    """The value cut to size, and a note of it; a page that was cut leads to no next one."""
    structure, note = results.cut_structure(value)
    if note and isinstance(structure, dict) and structure.get("next"):
        structure = {**structure, "next": None}
        note += " The link to the next page leads past what was cut: ask for smaller pages."
    return structure, note


def contents(answer: Answer, *, is_readable: bool) -> ResourceContents:
    """The contents of a resource; notes have no place in it."""
    found, value = _json(answer)
    if found:
        return ResourceContents(to_text(value), mime_type=answer.mime_type)
    mime_type = answer.mime_type or None
    if _is_text(answer.mime_type):
        is_reduced = is_readable and answer.mime_type == "text/html"
        mime_type = "text/markdown" if is_reduced else mime_type
        return ResourceContents(_text(answer, is_readable=is_readable), mime_type=mime_type)
    _check_size(answer)
    return ResourceContents(answer.body, mime_type=mime_type)


def messages(answer: Answer, *, is_readable: bool) -> list[Message]:
    """The messages of a prompt."""
    return [Message(block) for block in _blocks(answer, is_readable=is_readable)]


def _blocks(answer: Answer, *, is_readable: bool) -> list[Block]:
    if _is_text(answer.mime_type):
        return [Text(_text(answer, is_readable=is_readable))]
    _check_size(answer)
    family = answer.mime_type.partition("/")[0]
    if family == "image" and "svg" not in answer.mime_type:
        return [Image(answer.body, mime_type=answer.mime_type)]
    if family == "audio":
        return [Audio(answer.body, mime_type=answer.mime_type)]
    mime_type = answer.mime_type or "application/octet-stream"
    name = f"{answer.filename}: " if answer.filename else ""
    return [
        Text(f"{name}{mime_type}, {len(answer.body)} bytes."),
        EmbeddedResource(answer.url, data=answer.body, mime_type=mime_type),
    ]


def _text(answer: Answer, *, is_readable: bool) -> str:
    text = answer.text
    if is_readable and answer.mime_type == "text/html":
        text = readable(text)
    if answer.is_cut:
        text += "\n\n[Cut: there is more, and no more was read. Ask for a part of it.]"
    return results.cut_text(text)


def _is_text(mime_type: str) -> bool:
    return (
        mime_type.startswith("text/")
        or mime_type in TEXT_TYPES
        or _is_json(mime_type)
        or mime_type.endswith("+xml")
    )


def _is_json(mime_type: str) -> bool:
    return mime_type == "application/json" or mime_type.endswith("+json")


def _json(answer: Answer) -> tuple[bool, Any]:
    """Whether the body is JSON, and what it says."""
    if not _is_json(answer.mime_type):
        return False, None
    _check_size(answer)
    try:
        # What cannot be sent as data, being too deep or half a character, is sent as text.
        value = jsonable(json.loads(answer.text))
        to_text(value).encode()
    except (ValueError, RecursionError):
        return False, None
    return True, value


def _check_size(answer: Answer) -> None:
    if answer.is_cut:
        raise ToolError(
            f"The answer has more than the {get_settings().max_body_bytes} bytes that are allowed; "
            "ask for less."
        )


def _is_sign_in(answer: Answer) -> bool:
    """Whether a redirect leads to where one signs in: by the setting, or as it comes back here."""
    try:
        there = urlsplit(answer.location)
    except ValueError:
        return False
    sign_in = urlsplit(_login_url())
    if sign_in.path and (there.netloc, there.path) == (sign_in.netloc, sign_in.path):
        return True
    here = urlsplit(answer.url)
    back = (urlsplit(one) for one in parse_qs(there.query).get(REDIRECT_FIELD_NAME, ()))
    return any(one.path == here.path for one in back)


def _login_url() -> str:
    """Where the settings say that one signs in; a site may have no such page."""
    try:
        return resolve_url(django_settings.LOGIN_URL) if django_settings.LOGIN_URL else ""
    except NoReverseMatch:
        return ""


# Initial values of a form -------------------------------------------------------------------------


def is_shown(field: forms.Field) -> bool:
    """Whether the value goes out again with the rest, as with all but passwords.

    One that came back would be taken for a new one, and stored as the hash of a hash.
    """
    widget = field.widget
    return not isinstance(widget, forms.PasswordInput) or widget.render_value


def shown_value(form: forms.BaseForm, name: str) -> Any:
    """The value of a field; a moment as it is stored, with what its input has no room for."""
    field = form.fields[name]
    value = form.get_initial_for_field(field, name)
    stored = form.initial.get(name, field.initial)
    if isinstance(stored, dt.datetime | dt.time) and stored.replace(microsecond=0) == value:
        value = stored
    # As text it would be in a time zone that ended with the request.
    is_moment = isinstance(value, dt.datetime | dt.time) and (value.tzinfo or value.microsecond)
    return value if is_moment else form[name].value()
