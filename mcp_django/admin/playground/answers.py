"""The result of a playground call as the page shows it: parts, attachments and raw messages.

Text of a component is never rendered as markup, and long text is truncated.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.db.models.functions import Now
from django.http import Http404, HttpResponse
from django.urls import reverse

from mcp_django.admin.base import ServerPageRequest
from mcp_django.admin.playground.playground import (
    PlaygroundTarget,
    RequestOutcome,
    base_url,
    url_for,
)
from mcp_django.admin.playground.questions import session_digest
from mcp_django.models import Approval, Attachment
from mcp_django.schema.secrets import FORM, MESSAGE, PAGE, MaskLimits, mask
from mcp_django.storage.databases import rows, rows_of_tenant, seconds_from_now
from mcp_django.tenants import of_tenant

Wire = Mapping[str, Any]

# Characters of a text that the page shows; the download has all of it.
MAX_TEXT_SHOWN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPart:
    """One part of a result: text, image, audio, file or link.

    ``source`` is the URL of its content, and ``form_url`` the URL of the form for its resource.
    """

    kind: str
    role: str = ""
    text: str = ""
    is_cut: bool = False
    source: str = ""
    size: int = 0
    name: str = ""
    uri: str = ""
    media_type: str = ""
    form_url: str = ""


class NotificationLine(NamedTuple):
    """A progress notification or a log message."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaygroundAnswer:
    """The outcome of a round, as the template shows it."""

    refusal: str = ""
    error: Wire = field(default_factory=dict)
    error_data: str = ""
    is_error: bool = False
    approval_url: str = ""
    """The page of the approval that the call waits for, if it waits for one."""
    parts: Sequence[ResultPart] = ()
    structured: ResultPart | None = None
    notes: Sequence[NotificationLine] = ()
    dropped: int = 0


APPROVAL_PAGE = re.compile(r"/approvals/([\w-]{8,32})\b")


def build_answer(target: PlaygroundTarget, outcome: RequestOutcome) -> PlaygroundAnswer:
    """Return the answer of a round without further client requests."""
    attachments = AttachmentStore(target.page_request, target.component.name)
    error, result = outcome.response.get("error") or {}, outcome.result
    structured = result.get("structuredContent")
    approval_url = ""
    if result.get("isError"):
        # The error for the model names the page of the approval.
        texts = (str(block.get("text", "")) for block, _role in _blocks(result))
        codes = [code for text in texts for code in APPROVAL_PAGE.findall(text)]
        approvals = of_tenant(Approval).filter(
            code__in=codes, server=target.page_request.server.name, component=target.component.key
        )
        row = approvals.filter(state=Approval.State.PENDING).first() if codes else None
        user: Any = target.page_request.request.user
        if row is not None and user.has_perm("mcp_django.view_approval"):
            approval_url = reverse("admin:mcp_django_approval_change", args=[row.pk])
    return PlaygroundAnswer(
        refusal=outcome.refusal,
        error=error,
        error_data=_indent_json(error["data"]) if error.get("data") is not None else "",
        is_error=bool(result.get("isError")),
        approval_url=approval_url,
        parts=[_build_part(target, block, role, attachments) for block, role in _blocks(result)],
        structured=None
        if structured is None
        else _text_part(_indent_json(structured), attachments),
        notes=[format_notification(message) for message in outcome.notes.kept],
        dropped=outcome.notes.dropped,
    )


def format_notification(message: Wire) -> NotificationLine:
    """Return a notification as a ``NotificationLine``."""
    params = message.get("params") or {}
    if message.get("method") == "notifications/progress":
        total = f" / {params['total']:g}" if "total" in params else ""
        detail = f" {params['message']}" if params.get("message") else ""
        return NotificationLine("progress", f"{params.get('progress', 0):g}{total}{detail}")
    data = params.get("data")
    logger = f"{params['logger']}: " if params.get("logger") else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return NotificationLine(str(params.get("level", "")), f"{logger}{text}"[:MAX_TEXT_SHOWN])


def _indent_json(value: Any) -> str:
    """Return a JSON value as indented text."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _blocks(result: Wire) -> Iterator[tuple[Wire, str]]:
    for block in result.get("content", ()):
        yield block, ""
    for contents in result.get("contents", ()):
        yield {"type": "resource", "resource": contents}, ""
    for message in result.get("messages", ()):
        yield message["content"], str(message["role"])


def _build_part(
    target: PlaygroundTarget, block: Wire, role: str, attachments: AttachmentStore
) -> ResultPart:
    kind = block.get("type")
    if kind == "text":
        return _text_part(str(block.get("text", "")), attachments, role=role)
    if kind in ("image", "audio"):
        return _media_part(
            str(block.get("mimeType", "")), block.get("data"), attachments, role=role
        )
    if kind == "resource":
        resource = block.get("resource") or {}
        uri, media_type = str(resource.get("uri", "")), str(resource.get("mimeType", ""))
        details = {"role": role, "uri": uri, "form_url": _resource_form_url(target, uri)}
        if "blob" in resource:
            return _media_part(media_type, resource["blob"], attachments, **details)
        text = str(resource.get("text", ""))
        if media_type.partition(";")[0].strip().endswith("json"):
            with suppress(ValueError, RecursionError):
                text = _indent_json(json.loads(text))
        return _text_part(text, attachments, media_type=media_type, **details)
    if kind == "resource_link":
        uri = str(block.get("uri", ""))
        return ResultPart(
            kind="link",
            role=role,
            uri=uri,
            name=str(block.get("title") or block.get("name") or uri),
            text=str(block.get("description", "")),
            media_type=str(block.get("mimeType", "")),
            form_url=_resource_form_url(target, uri),
        )
    return _text_part(_indent_json(block), attachments, role=role)


def _text_part(text: str, attachments: AttachmentStore, **details: Any) -> ResultPart:
    if len(text) <= MAX_TEXT_SHOWN:
        return ResultPart(kind="text", text=text, size=len(text), **details)
    source = attachments.store(text.encode(errors="replace"), PLAIN)
    excerpt = text[:MAX_TEXT_SHOWN]
    return ResultPart(
        kind="text", text=excerpt, is_cut=True, size=len(text), source=source, **details
    )


def _media_part(
    media_type: str, encoded: Any, attachments: AttachmentStore, **details: Any
) -> ResultPart:
    source, size = attachments.store_base64(encoded, media_type)
    base = media_type.partition(";")[0].strip().lower()
    kind = "image" if base in IMAGES else "audio" if base in SOUNDS else "file"
    return ResultPart(kind=kind, source=source, size=size, media_type=media_type, **details)


def _resource_form_url(target: PlaygroundTarget, uri: str) -> str:
    """Return the URL of the form for a resource, empty if this server does not have it."""
    try:
        scheme = urlsplit(uri).scheme
    except ValueError:
        return ""
    if not scheme or target.page_request.server.catalog.find_resource(uri) is None:
        return ""
    return url_for(target.page_request, target.caller, target.revision, kind="resource", key=uri)


# Attachments at their own addresses ---------------------------------------------------------------

# Images, audio and long texts of a result. A strict content security policy blocks ``data:`` URLs,
# so the page links to them: for ten minutes, and only for the user and session that got the
# result. They are served as downloads, in a sandbox and with a media type that browsers do not
# execute, whatever type the component declares.

SECONDS = 600
MAX_ATTACHMENT_BYTES = 10 * 1024 * 1024
MAX_COUNT = 30
PREFIX = "attachment/"
# Media types that browsers display but do not execute.
IMAGES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"}
)
SOUNDS = frozenset(
    {"audio/mpeg", "audio/mp4", "audio/ogg", "audio/wav", "audio/x-wav", "audio/webm", "audio/flac"}
)
PLAIN = "text/plain"
UNKNOWN = "application/octet-stream"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


class AttachmentStore:
    """Stores the attachments of one answer, up to ``MAX_COUNT`` and ``MAX_ATTACHMENT_BYTES``."""

    def __init__(self, page_request: ServerPageRequest, name: str) -> None:
        self._visit = page_request
        self._name = _ODD.sub("-", name).strip("-")[:60] or "answer"
        self._count = self._size = 0

    def store_base64(self, encoded: object, media_type: str) -> tuple[str, int]:
        """Store base64 content; return its URL, empty above the limits, and its size."""
        try:
            content = base64.b64decode(str(encoded))
        except (ValueError, binascii.Error):
            return "", 0
        return self.store(content, media_type), len(content)

    def store(self, content: bytes, media_type: str) -> str:
        """Store content and return its URL, empty above the limits."""
        self._count += 1
        self._size += len(content)
        if self._count > MAX_COUNT or self._size > MAX_ATTACHMENT_BYTES:
            return ""
        kind = safe_media_type(media_type)
        extension = ".txt" if kind == PLAIN else mimetypes.guess_extension(kind) or ".bin"
        row = Attachment(
            owner=session_digest(self._visit.request),
            media_type=kind,
            name=f"{self._name}-{self._count}{extension}",
            content=content,
            expires_at=seconds_from_now(SECONDS),
        )
        rows(Attachment).bulk_create([row])
        return f"{base_url(self._visit)}{PREFIX}{row.code}"


def safe_media_type(media_type: str) -> str:
    """Return the media type to serve: one that browsers do not execute."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind if kind in IMAGES | SOUNDS | {PLAIN} else UNKNOWN


def serve_attachment(page_request: ServerPageRequest, code: str) -> HttpResponse:
    """Serve one attachment of an answer to the user and session that got the answer.

    Raises:
        Http404: it has expired, belongs to another user or session, or does not exist.
    """
    owner = session_digest(page_request.request)
    row = rows_of_tenant(Attachment).filter(code=code, owner=owner, expires_at__gt=Now()).first()
    if row is None:
        raise Http404
    response = HttpResponse(bytes(row.content), content_type=row.media_type, headers=dict(HEADERS))
    response["Content-Disposition"] = f'attachment; filename="{row.name}"'
    return response


# The JSON-RPC messages of a round -----------------------------------------------------------------


def _params_for_display(target: PlaygroundTarget, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request for display: truncated, with secrets masked."""
    masked_params: dict[str, Any] = mask(params, {}, limits=MESSAGE)
    if isinstance(arguments := params.get("arguments"), Mapping):
        masked_params["arguments"] = _mask_arguments(target, arguments, PAGE)
    return masked_params


def remove_secrets(target: PlaygroundTarget, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for a refilled form without secrets, which must be entered again."""
    return _mask_arguments(target, values, FORM)


def _mask_arguments(
    target: PlaygroundTarget, values: Mapping[str, Any], limits: MaskLimits
) -> dict[str, Any]:
    arguments: dict[str, Any] = mask(
        values, target.schema, sensitive=target.component.sensitive, limits=limits
    )
    return arguments


def format_arguments(target: PlaygroundTarget, params: Mapping[str, Any]) -> str:
    """Return the arguments of a request as text for the confirmation page."""
    masked_params = _params_for_display(target, params)
    return _indent_json(masked_params.get("arguments", {}))


def format_exchanges(
    target: PlaygroundTarget, exchanges: Iterable[tuple[Any, Any]]
) -> list[list[str]]:
    """Return requests with their responses as text."""
    return [
        [
            _indent_json({**request, "params": _params_for_display(target, request["params"])}),
            _indent_json(mask(response, {}, limits=MESSAGE)),
        ]
        for request, response in exchanges
    ]
