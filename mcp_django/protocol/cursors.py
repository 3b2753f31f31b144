"""Signed pagination cursors of list methods; each cursor is valid for one list only.

A cursor contains the key of the last item, not its position. If items are added or removed between
two pages, no other item is skipped or repeated. MCP 2026-07-28, "Pagination".
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from mcp_django.protocol.errors import InvalidParams

T = TypeVar("T")

MAX_CURSOR_LENGTH = 4096

Position = list[Any]
"""The key of the last item of a page, in JSON values: the next page begins after it."""


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


@dataclass(frozen=True, slots=True)
class Pager:
    """Reads and builds the cursors of one list, and cuts its pages.

    `scope` identifies the list and the caller who sees it; a cursor of any other scope is rejected.
    A page has at most `size` items.
    """

    scope: str
    size: int
    signer: Signer

    def position(self, cursor: str | None) -> Position | None:
        """Return the position after which the page begins; `None` for the first page.

        Raises:
            InvalidParams: the cursor is malformed, was altered, or belongs to another list.
        """
        if not cursor:
            # Clients that always send the member write "" for the first page; no cursor is empty.
            return None
        if len(cursor) > MAX_CURSOR_LENGTH:
            raise invalid_cursor()
        try:
            payload = base64.urlsafe_b64decode(self.signer.unsign(cursor))
            digest, position = msgspec.json.decode(payload, type=tuple[str, Position])
        except (ValueError, msgspec.MsgspecError) as exc:
            raise invalid_cursor() from exc
        if digest != self._digest():
            raise invalid_cursor()
        return position

    def next(self, position: Position) -> str:
        """Return the cursor of the page after a position."""
        payload = msgspec.json.encode([self._digest(), position])
        return self.signer.sign(base64.urlsafe_b64encode(payload).decode())

    def page(self, items: Sequence[T], key: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
        """Return the first page of `items`, and the cursor of the next page.

        The next cursor is `None` on the last page. To detect more pages, `items` needs only one
        item more than `size`.
        """
        page = items[: self.size]
        return page, self.next([key(page[-1])]) if len(items) > self.size else None

    def _digest(self) -> str:
        # The scope may identify the caller, so the cursor contains only a digest of it.
        return hashlib.sha256(self.scope.encode()).hexdigest()[:16]


def items_after(items: Iterable[T], position: Position | None, key: Callable[[T], str]) -> list[T]:
    """Return the items after a position, ordered by `key`, which is unique for each item.

    Raises:
        InvalidParams: the position is not valid for this kind of list.
    """
    ordered = sorted(items, key=key)
    if position is None:
        return ordered
    if len(position) != 1 or not isinstance(position[0], str):
        raise invalid_cursor()
    return ordered[bisect_right(ordered, position[0], key=key) :]


def invalid_cursor() -> InvalidParams:
    """Return the error for a cursor that is not valid for this list."""
    return InvalidParams("The cursor is not valid here; start again without one")
