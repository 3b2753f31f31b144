"""Convert a response of the site to the result of a tool, a resource or a prompt.

Only the parts of a response that a component can use are read. Headers and cookies are not passed
on. A streaming response is read only up to the size limit.
"""

from __future__ import annotations

import datetime as dt
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from email.message import Message as EmailMessage
from functools import partial
from time import monotonic
from typing import Any, NoReturn, cast
from urllib.parse import parse_qs, urljoin, urlsplit

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
from mcp_django.execution.thread_sensitive import run_coroutine
from mcp_django.integrations.html_text import html_to_text, strip_markup
from mcp_django.integrations.site_requests import CallerRequest
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
from mcp_django.protocol.headers import JSON
from mcp_django.schema.values import exact_integers, jsonable

GZIP_ENCODINGS = frozenset({"gzip", "x-gzip"})
# With this value, zlib detects the header (gzip or zlib).
DETECT_HEADER = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteResponse:
    """A response that was read to its end, or up to the size limit."""

    url: str
    """The absolute URL of the page."""
    status: int
    reason: str
    mime_type: str
    charset: str
    filename: str
    body: bytes
    is_cut: bool
    is_from_view: bool
    """Whether the view itself returned the response, not a middleware or Django in its place."""
    location: str
    """The target of a redirect: a path, or a URL if it is on another host."""
    messages: tuple[str, ...]
    time_zone: dt.tzinfo
    """The time zone in which the view reads and writes dates and times."""
    context: Any
    """The context of a template response, from which the errors of a form are read."""

    @property
    def text(self) -> str:
        """The body as text without invalid characters; UTF-8 if the charset is not valid."""
        try:
            text = self.body.decode(self.charset, errors="replace")
        except (LookupError, ValueError, Warning):
            # Some of Python's codecs are not text encodings, and fail with other errors.
            text = self.body.decode(errors="replace")
        return text.encode(errors="replace").decode().removeprefix("\ufeff")

    @property
    def is_redirect(self) -> bool:
        """Whether the response is a redirect with a target."""
        return 300 <= self.status < 400 and bool(self.location)

    @property
    def status_line(self) -> str:
        """The status and its reason: ``409 Conflict``."""
        return f"{self.status} {self.reason}".strip()


def read_response(
    request: CallerRequest, response: HttpResponseBase, *, is_over: Callable[[], bool]
) -> SiteResponse:
    """Read a response to its end, up to the size limit, or until ``is_over`` returns true."""
    described = EmailMessage()
    described["Content-Type"] = response.get("Content-Type", "")
    described["Content-Disposition"] = response.get("Content-Disposition", "")
    # If calls run in the thread of their request, nothing else ends an endless stream.
    deadline = monotonic() + get_settings().call_timeout
    body, is_cut = _read_body(
        response, described.get_content_type(), lambda: is_over() or monotonic() > deadline
    )
    if response.get("Content-Encoding", "").lower() in GZIP_ENCODINGS:
        # The request does not accept gzip, but a response may be compressed all the same. It is
        # decompressed up to the size limit.
        unpacking = zlib.decompressobj(DETECT_HEADER)
        with suppress(zlib.error):
            body = unpacking.decompress(body, get_settings().max_body_bytes)
            is_cut = is_cut or bool(unpacking.unconsumed_tail)
    location = response.get("Location", "")
    # Read after the body, because the iterator of a stream may still add messages.
    messages = tuple(_messages(request))
    return SiteResponse(
        url=request.build_absolute_uri(),
        status=response.status_code,
        reason=response.reason_phrase,
        mime_type=described.get_content_type() if described["Content-Type"] else "",
        charset=response.charset or "utf-8",
        filename=described.get_filename() or "",
        body=body,
        is_cut=is_cut,
        is_from_view=response is request.view_response,
        location=_redirect_target(request, location) if location else "",
        messages=messages,
        time_zone=request.time_zone or timezone.get_current_timezone(),
        context=getattr(response, "context_data", None),
    )


def _read_body(
    response: HttpResponseBase, mime_type: str, is_over: Callable[[], bool]
) -> tuple[bytes, bool]:
    """Return the body, and whether it was cut."""
    limit = get_settings().max_body_bytes
    if not isinstance(response, StreamingHttpResponse):
        content = cast(HttpResponse, response).content
        return content[:limit], len(content) > limit
    if mime_type.startswith("text/") and mime_type != "text/html":
        # The text is passed on unchanged, so the limit of a result applies; HTML becomes
        # shorter.
        limit = get_settings().max_result_bytes
    if response.is_async:
        return run_coroutine(partial(_aread, response, limit, is_over))
    return _read(iter(response), limit, is_over)


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


def _redirect_target(request: CallerRequest, location: str) -> str:
    """Return the target of a redirect, without the host if that is the site's own."""
    try:
        absolute = urljoin(request.build_absolute_uri(), location)
        here, there = urlsplit(request.build_absolute_uri()), urlsplit(absolute)
    except ValueError:
        # It is not a valid URL, so it is reported unchanged.
        return location
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        return absolute
    return there._replace(scheme="", netloc="").geturl() or "/"


def _messages(request: CallerRequest) -> Iterator[str]:
    """Yield the messages that Django's message framework would have shown on the next page."""
    storage = getattr(request, "_messages", None)
    if storage is None or storage.used:
        # The page itself has shown them.
        return
    for message in storage:
        yield message_text(message)


def message_text(message: Any) -> str:
    """Return the text of a message of Django's message framework, without tags."""
    text = str(message)
    return strip_markup(text) if isinstance(message.message, SafeData) else text


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


def check_status(answer: SiteResponse, *, method: str) -> None:
    """Raise an exception for a response that is not a result.

    Raises:
        Http404: the status is 404 or 410.
        PermissionDenied: the status is 403.
        ToolError: any other error status, a redirect to sign in, or any redirect of a GET; the
            message names the target of a redirect.
    """
    if answer.is_redirect:
        _check_redirect(answer, method)
    elif answer.status in {404, 410}:
        # From a middleware or an admin action, because a view's own is raised before.
        raise Http404("Not found.")
    elif answer.status == 403:
        raise PermissionDenied
    elif answer.status >= 400:
        _raise_error(answer)


def _check_redirect(answer: SiteResponse, verb: str) -> None:
    target = answer.location[:MAX_LOCATION]
    if _is_sign_in(answer):
        raise ToolError(
            f"You may not do this: the site redirects to its sign-in page, {target}. The redirect "
            "was not followed." + messages_suffix(answer)
        )
    if verb == "GET":
        raise ToolError(
            f"This URL has no page: the site redirects to {target}. The redirect was not "
            "followed." + messages_suffix(answer)
        )


def _raise_error(answer: SiteResponse) -> NoReturn:
    """Raise an error with the status, and with the body only if the view itself returned it.

    Django's own error page may show the site's settings and code.
    """
    text = ""
    if answer.is_from_view and answer.mime_type == "text/html":
        text = html_to_text(answer.text)
    elif answer.is_from_view and _is_text(answer.mime_type):
        text = answer.text
    raise ToolError(
        f"The site answered {answer.status_line}.{messages_suffix(answer)}" + (text and f"\n{text}")
    )


def messages_suffix(answer: SiteResponse) -> str:
    """Return the messages of Django's message framework as text, each after a space."""
    return "".join(f" Message: {text}" for text in answer.messages)


def tool_result(answer: SiteResponse, *, is_readable: bool) -> ToolResult:
    """Return the result of a tool."""
    notes = [Text(f"Message: {text}") for text in answer.messages]
    if answer.is_redirect:
        done = (
            f"Done. The site redirects to {answer.location[:MAX_LOCATION]}. The redirect was not "
            "followed."
        )
        return ToolResult(done, *notes)
    if not answer.body:
        return ToolResult(
            f"Done: the site answered {answer.status_line}, with an empty body.", *notes
        )
    is_json, value = _json(answer)
    if is_json:
        structure, text, note = results.cut_structure(exact_integers(value))
        if note and isinstance(structure, dict) and structure.get("next"):
            structure = {**structure, "next": None}
            text = to_text(structure)
            note += " The link to the next page would skip what was cut; request smaller pages."
        explained = [Text(note)] if note else []
        return ToolResult(Text(text), *explained, *notes, structured=structure)
    return ToolResult(*_blocks(answer, is_readable=is_readable), *notes)


def resource_contents(answer: SiteResponse, *, is_readable: bool) -> ResourceContents:
    """Return the contents of a resource; it cannot contain messages of the site."""
    is_json, value = _json(answer)
    if is_json:
        return ResourceContents(to_text(exact_integers(value)), mime_type=answer.mime_type)
    mime_type = answer.mime_type or None
    if _is_text(answer.mime_type):
        is_reduced = is_readable and answer.mime_type == "text/html"
        mime_type = "text/markdown" if is_reduced else mime_type
        return ResourceContents(_body_text(answer, is_readable=is_readable), mime_type=mime_type)
    _check_size(answer)
    return ResourceContents(answer.body, mime_type=mime_type)


def prompt_messages(answer: SiteResponse, *, is_readable: bool) -> list[Message]:
    """Return the messages of a prompt."""
    return [Message(block) for block in _blocks(answer, is_readable=is_readable)]


def _blocks(answer: SiteResponse, *, is_readable: bool) -> list[Block]:
    if _is_text(answer.mime_type):
        return [Text(_body_text(answer, is_readable=is_readable))]
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


def _body_text(answer: SiteResponse, *, is_readable: bool) -> str:
    text = answer.text
    if is_readable and answer.mime_type == "text/html":
        text = html_to_text(text)
    if answer.is_cut:
        text += "\n\n[Cut: the rest of the response was not read. Request a smaller part of it.]"
    return results.cut_text(text)


def _is_text(mime_type: str) -> bool:
    return (
        mime_type.startswith("text/")
        or mime_type in TEXT_TYPES
        or _is_json(mime_type)
        or mime_type.endswith("+xml")
    )


def _is_json(mime_type: str) -> bool:
    return mime_type == JSON or mime_type.endswith("+json")


def _json(answer: SiteResponse) -> tuple[bool, Any]:
    """Return whether the body is JSON, and its value."""
    if not _is_json(answer.mime_type):
        return False, None
    _check_size(answer)
    try:
        # A value that is nested too deeply or has half a surrogate pair is sent as text.
        value = jsonable(json.loads(answer.text))
        to_text(value).encode()
    except (ValueError, RecursionError):
        return False, None
    return True, value


def _check_size(answer: SiteResponse) -> None:
    if answer.is_cut:
        raise ToolError(
            f"The response is larger than the allowed {get_settings().max_body_bytes} bytes; "
            "request less."
        )


def _is_sign_in(answer: SiteResponse) -> bool:
    """Return whether a redirect leads to ``LOGIN_URL``, or names this page as its ``next`` page."""
    try:
        there = urlsplit(answer.location)
    except ValueError:
        return False
    login_url = ""
    # The site may have no such page.
    with suppress(NoReverseMatch):
        login_url = resolve_url(django_settings.LOGIN_URL) if django_settings.LOGIN_URL else ""
    sign_in = urlsplit(login_url)
    if sign_in.path and (there.netloc, there.path) == (sign_in.netloc, sign_in.path):
        return True
    here = urlsplit(answer.url)
    targets = (urlsplit(url) for url in parse_qs(there.query).get(REDIRECT_FIELD_NAME, ()))
    return any(target.path == here.path for target in targets)


def is_value_resent(field: forms.Field) -> bool:
    """Return whether the current value of a field is sent again; that of a password is not.

    A stored password hash would be taken for a new password and hashed again.
    """
    widget = field.widget
    return not isinstance(widget, forms.PasswordInput) or widget.render_value


def current_value(form: forms.BaseForm, name: str) -> Any:
    """Return the value of a field; a datetime or time keeps microseconds that its input omits."""
    field = form.fields[name]
    value = form.get_initial_for_field(field, name)
    stored = form.initial.get(name, field.initial)
    if isinstance(stored, dt.datetime | dt.time) and stored.replace(microsecond=0) == value:
        value = stored
    # As text, the value would depend on a time zone that is active only during the request.
    is_moment = isinstance(value, dt.datetime | dt.time) and (value.tzinfo or value.microsecond)
    return value if is_moment else form[name].value()
