"""Pictures, sounds and long texts of an answer, at addresses of their own.

A strict content security policy shows no ``data:``, so the page points to them: for ten minutes,
for the user and the session that the answer was for. They leave as downloads, in a sandbox and with
a type that browsers run nothing of, whatever the component says that they are.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Mapping

from django.db.models.functions import Now
from django.http import Http404, HttpResponse

from mcp_django.admin.pages import Visit
from mcp_django.admin.trying.state import owner_of
from mcp_django.admin.trying.trials import base_url
from mcp_django.models import Attachment
from mcp_django.storage.databases import after, rows

SECONDS = 600
MAX_BYTES = 10 * 1024 * 1024
MAX_COUNT = 30
PREFIX = "attachment/"
# What browsers show and do not run.
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


class Keeper:
    """Keeps what one answer has beside its text, as far as that goes."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit = visit
        self._name = _ODD.sub("-", name).strip("-")[:60] or "answer"
        self._count = self._size = 0

    def keep_encoded(self, encoded: object, media_type: str) -> tuple[str, int]:
        """The address of what is given in base64, and its size; no address for what is too much."""
        try:
            content = base64.b64decode(str(encoded))
        except (ValueError, binascii.Error):
            return "", 0
        return self.keep(content, media_type), len(content)

    def keep(self, content: bytes, media_type: str) -> str:
        """The address of some content, empty for what is too much."""
        self._count += 1
        self._size += len(content)
        if self._count > MAX_COUNT or self._size > MAX_BYTES:
            return ""
        kind = safe_type(media_type)
        row = Attachment(
            owner=owner_of(self._visit.request),
            media_type=kind,
            name=f"{self._name}-{self._count}{_extension(kind)}",
            content=content,
            expires_at=after(SECONDS),
        )
        rows(Attachment).bulk_create([row])
        return f"{base_url(self._visit)}{PREFIX}{row.code}"


def safe_type(media_type: str) -> str:
    """The type to answer with: one that nothing is run of."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind if kind in IMAGES | SOUNDS | {PLAIN} else UNKNOWN


def serve(visit: Visit, code: str) -> HttpResponse:
    """One attachment of an answer that this user got in this session.

    Raises:
        Http404: it is over, belongs to somebody else or never was.
    """
    found = rows(Attachment).filter(code=code, owner=owner_of(visit.request), expires_at__gt=Now())
    row = found.first()
    if row is None:
        raise Http404
    response = HttpResponse(bytes(row.content), content_type=row.media_type, headers=dict(HEADERS))
    response["Content-Disposition"] = f'attachment; filename="{row.name}"'
    return response


def _extension(kind: str) -> str:
    return ".txt" if kind == PLAIN else mimetypes.guess_extension(kind) or ".bin"
