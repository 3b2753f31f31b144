"""Requests as hosts send them and answers as they read them, whatever carries them."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

MAX_BYTES = 1_000_000
PARAMETER = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')


class DoorError(Exception):
    """Nothing answered; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request; ``url`` is absolute."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer; names of headers are lower case, and the body at most ``MAX_BYTES`` long."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The media type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def location(self) -> str:
        """Where a redirect leads; empty without one."""
        return self.headers.get("location", "") if 300 <= self.status < 400 else ""

    def json(self) -> dict[str, Any] | None:
        """The body as a JSON object; ``None`` if it is none."""
        try:
            found = json.loads(self._plain())
        except (ValueError, zlib.error, EOFError, OSError):
            return None
        return found if isinstance(found, dict) else None

    def _plain(self) -> bytes:
        if self.headers.get("content-encoding", "").lower() != "gzip":
            return self.body
        return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(self.body, MAX_BYTES)

    def challenge(self) -> dict[str, str] | None:
        """The parameters of a Bearer challenge (RFC 6750, section 3); ``None`` without one."""
        value = self.headers.get("www-authenticate", "")
        if not re.search(r"(^|[ ,])bearer\b", value, re.IGNORECASE):
            return None
        return {name.lower(): found for name, found in PARAMETER.findall(value)}


class Door(Protocol):
    """How requests reach the site."""

    def send(self, request: Request) -> Answer:
        """The answer; a redirect is not followed.

        Raises:
            DoorError: there is no answer.
        """


def get(url: str, **headers: str) -> Request:
    """A GET; ``_`` in the name of a header stands for ``-``."""
    return Request(method="GET", url=url, headers=_headers(headers))


def post_json(url: str, body: Any, **headers: str) -> Request:
    """A POST of JSON."""
    given = {"Content-Type": "application/json", "Accept": "application/json", **_headers(headers)}
    return Request(method="POST", url=url, headers=given, body=json.dumps(body).encode())


def post_form(url: str, body: str, **headers: str) -> Request:
    """A POST of a form that is already encoded."""
    given = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
        **_headers(headers),
    }
    return Request(method="POST", url=url, headers=given, body=body.encode())


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in given.items()}
