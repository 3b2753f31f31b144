"""Signed pagination cursors of list methods; each cursor is valid for one list only.

A cursor contains the key of the last item, not its position. If items are added or removed between
two pages, no other item is skipped or repeated. MCP 2026-07-28, "Pagination".
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from mcp_django.protocol.errors import InvalidParams

T = TypeVar("T")

MAX_CURSOR_LENGTH = 4096


class Signer(Protocol):
    """Signs text and verifies signatures; the implementation manages keys and their rotation."""

    def sign(self, value: str) -> str:
        """Return the text with its signature."""
        ...

    def unsign(self, value: str) -> str:
        """Return the text that was signed.

        Raises:
            ValueError: the signature is not valid.
        """
        ...


def encode_cursor(key: list[Any], *, scope: str, signer: Signer) -> str:
    """Return a cursor for the page after the item with `key`.

    `scope` identifies the list and the caller who sees it; any other scope rejects the cursor.
    """
    payload = msgspec.json.encode([_digest(scope), key])
    return signer.sign(base64.urlsafe_b64encode(payload).decode())


def decode_cursor(cursor: str, *, scope: str, signer: Signer) -> list[Any]:
    """Return the key of the last item of the previous page.

    Raises:
        InvalidParams: the cursor is malformed, was altered, or belongs to another list.
    """
    if len(cursor) > MAX_CURSOR_LENGTH:
        raise _invalid_cursor()
    try:
        payload = base64.urlsafe_b64decode(signer.unsign(cursor))
        digest, key = msgspec.json.decode(payload, type=tuple[str, list[Any]])
    except (ValueError, msgspec.MsgspecError) as exc:
        raise _invalid_cursor() from exc
    if digest != _digest(scope):
        raise _invalid_cursor()
    return key


def paginate(
    items: Sequence[T],
    *,
    cursor: str | None,
    size: int,
    scope: str,
    key: Callable[[T], str],
    signer: Signer,
) -> tuple[list[T], str | None]:
    """Return the page after `cursor`, ordered by `key`, and the cursor of the next page.

    Keys must be unique. The next cursor is `None` on the last page.

    Raises:
        InvalidParams: the cursor is not valid for this list.
    """
    ordered = sorted(items, key=key)
    start = 0
    if cursor is not None:
        last = decode_cursor(cursor, scope=scope, signer=signer)
        if len(last) != 1 or not isinstance(last[0], str):
            raise _invalid_cursor()
        start = bisect_right(ordered, last[0], key=key)
    page = ordered[start : start + size]
    if start + size >= len(ordered):
        return page, None
    return page, encode_cursor([key(page[-1])], scope=scope, signer=signer)


def _digest(scope: str) -> str:
    # The scope may identify the caller, so the cursor contains only a digest of it.
    return hashlib.sha256(scope.encode()).hexdigest()[:16]


def _invalid_cursor() -> InvalidParams:
    return InvalidParams("The cursor is not valid here; start again without one")
