"""What the site answered: the parts of a response that a component has a use for.

Headers and cookies stay here; of a stream no more is read than may be passed on.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from email.message import Message
from time import monotonic
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from asgiref.sync import async_to_sync
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.safestring import SafeData

from mcp_django.conf import get_settings
from mcp_django.sources.site.fresh import FreshRequest
from mcp_django.sources.site.markup import plain

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
    described = Message()
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
