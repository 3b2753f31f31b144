"""``resources/list`` of a server whose templates list what they hold.

The list has sections, one behind the other: the fixed resources, then each template with its
entries. A cursor names the section and the place in it. Entries come from the site's database, so
this is a call that runs where the others of its kind do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied

from mcp_django.auth.principal import Principal, missing
from mcp_django.core.component import Component, ComponentFunction
from mcp_django.core.context import Context
from mcp_django.core.resource import Entry, Resource, ResourceTemplate
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.cursors import decode_cursor, encode_cursor
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.runtime import failures
from mcp_django.runtime.handlers.paging import ListParams, scope_of
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.policy import visible
from mcp_django.runtime.signer import CURSORS

FIXED = ""

Describe = Callable[[Resource], dict[str, Any]]
Position = list[Any] | None
Part = tuple[list[dict[str, Any]], Position]


def are_shown(principal: Principal, template: ResourceTemplate) -> bool:
    """Whether a template's entries are for this caller: rows need what reading them needs."""
    return visible(principal, template) and not missing(principal.scopes, template.scopes)


def list_entries(
    incoming: Incoming, templates: Sequence[ResourceTemplate], *, describe: Describe
) -> Invocation:
    """Admit the making of one page.

    Raises:
        InvalidParams: the cursor is none of this list.
    """
    book = Book(incoming, templates, describe)
    section, after = book.opened_at(read_params(incoming.request.params, ListParams).cursor)
    return Invocation(
        incoming=incoming,
        component=LISTING,
        arguments={"book": book, "section": section, "after": after},
        conclude=book.result,
        excuse=partial(failures.list_failure, LISTING),
        entry=incoming.entry,
    )


class Book:
    """The list as one caller sees it."""

    def __init__(
        self, incoming: Incoming, templates: Sequence[ResourceTemplate], describe: Describe
    ) -> None:
        self._incoming = incoming
        self._templates = {one.key: one for one in templates}
        self._describe = describe
        self.sections = [FIXED, *sorted(self._templates)]
        self.size = incoming.server.page_size

    def opened_at(self, cursor: str | None) -> tuple[str, Position]:
        """The section and the place in it behind which a page begins."""
        if cursor is None:
            return FIXED, None
        key = decode_cursor(cursor, scope=scope_of(self._incoming), signer=CURSORS)
        if len(key) == 2 and key[0] in self.sections:
            section, after = key
            if after is None or isinstance(after, list):
                return section, after
        # A cursor from before this process was deployed, or of a template that is hidden by now.
        raise InvalidParams("The cursor is not valid here; begin again without one")

    def part(self, ctx: Context, section: str, after: Position, limit: int) -> Part:
        """At most so many members of a section, and the position behind which it goes on."""
        if section == FIXED:
            return self._fixed(after, limit)
        template = self._templates[section]
        assert template.entries is not None
        try:
            page = template.entries(ctx, after, limit)
        except (*failures.MISSING, PermissionDenied):
            # Rows that the caller may not see are rows that are not there.
            return [], None
        return [_described(one) for one in page.entries], page.after

    def _fixed(self, after: Position, limit: int) -> Part:
        principal = self._incoming.principal
        resources = self._incoming.server.offered.resources.values()
        shown = [one for one in resources if visible(principal, one)]
        shown.sort(key=lambda one: one.key)
        start = bisect_right(shown, after[0], key=lambda one: one.key) if after else 0
        kept = shown[start : start + limit]
        more = start + limit < len(shown)
        return [self._describe(one) for one in kept], [kept[-1].key] if more else None

    def result(self, page: tuple[list[dict[str, Any]], list[Any] | None]) -> dict[str, Any]:
        """The result; other callers have other rows, so nobody else may be given it."""
        found, place = page
        result = {"resources": found, "ttlMs": 0, "cacheScope": "private"}
        if place is not None:
            scope = scope_of(self._incoming)
            result["nextCursor"] = encode_cursor(place, scope=scope, signer=CURSORS)
        return result


def _described(entry: Entry) -> dict[str, Any]:
    """An entry in its richest shape."""
    optional: dict[str, Any] = {
        "title": entry.title,
        "description": entry.description,
        "mimeType": entry.mime_type,
        "annotations": entry.annotations.to_wire() if entry.annotations is not None else None,
    }
    described: dict[str, Any] = {"uri": entry.uri, "name": entry.name}
    described.update({name: value for name, value in optional.items() if value})
    return described if entry.size is None else {**described, "size": entry.size}


def _fill(ctx: Context, book: Book, section: str, after: Position) -> Part:
    """One page: section after section until it is full."""
    found: list[dict[str, Any]] = []
    for name in book.sections[book.sections.index(section) :]:
        if len(found) >= book.size:
            return found, [name, None]
        part, after = book.part(ctx, name, after, book.size - len(found))
        found.extend(part)
        if after is not None:
            return found, [name, after]
    return found, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Component):
    """What the runtime knows of a call that lists; nobody declares one."""

    kind: ClassVar[str] = "list"


LISTING = Listing(
    name="resources/list",
    read_only=True,
    function=ComponentFunction(function=_fill, is_async=False, context_parameter="ctx"),
)
