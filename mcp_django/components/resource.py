"""Resources and resource templates: what a client can read by URI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.component import Component
from mcp_django.context import Context
from mcp_django.protocol.content import Annotations
from mcp_django.protocol.uritemplate import URITemplate, check_uri
from mcp_django.schema.arguments import ArgumentSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableComponent(Component):
    """What resources and templates share.

    ``cache_ttl`` and ``cache_public`` become the cache hints of 2026-07-28 (CCH-1); ``subscribe``
    says whether a client may ask to hear of changes.
    """

    mime_type: str | None = None
    annotations: Annotations | None = None
    subscribe: bool = True
    cache_ttl: timedelta = timedelta(0)
    cache_public: bool = False

    def __post_init__(self) -> None:
        super(ReadableComponent, self).__post_init__()
        self.require(
            isinstance(self.cache_ttl, timedelta),
            f"cache_ttl={self.cache_ttl!r}; write timedelta(seconds=…).",
        )
        self.require(self.cache_ttl >= timedelta(0), f"cache_ttl={self.cache_ttl!r} is negative.")
        self.require(
            self.annotations is None or isinstance(self.annotations, Annotations),
            f"annotations={self.annotations!r}; write Annotations(…).",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(ReadableComponent):
    """One resource with a fixed URI."""

    kind: ClassVar[str] = "resource"

    uri: str
    size: int | None = None

    def __post_init__(self) -> None:
        super(Resource, self).__post_init__()
        for uri in (self.uri, *self.aliases):
            try:
                check_uri(uri)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: {exc}") from None
        self.require(
            self.size is None or self.size >= 0, f"size={self.size}; give the number of bytes."
        )

    @property
    def key(self) -> str:
        """The URI."""
        return self.uri


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One resource of a template's family, as ``resources/list`` shows it."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    """Some entries, and the position of the last one that was looked at.

    ``after`` is ``None`` when nothing is left. It is JSON that goes into a cursor, which is signed
    and not encrypted: only what the caller may see belongs there. A page may have fewer entries
    than were asked for, and still not be the last.
    """

    entries: Sequence[Entry]
    after: list[Any] | None


ListEntries: TypeAlias = Callable[[Context, list[Any] | None, int], EntryPage]
"""Gives at most so many entries behind a position, or from the beginning for ``None``.

It runs in a thread and may use the database. A position that it cannot have given is
``InvalidParams``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate(ReadableComponent):
    """A family of resources; the template's variables are the function's parameters.

    ``entries`` lists those that the caller may read; without it only the template is listed.
    """

    kind: ClassVar[str] = "resource template"

    template: URITemplate
    arguments: ArgumentSource
    entries: ListEntries | None = None
    former: tuple[URITemplate, ...] = field(init=False, repr=False, compare=False, default=())
    """The ``aliases`` as templates."""

    def __post_init__(self) -> None:
        super(ResourceTemplate, self).__post_init__()
        object.__setattr__(self, "former", tuple(map(self._former, self.aliases)))

    def _former(self, alias: str) -> URITemplate:
        try:
            template = URITemplate(alias, is_lookup=self.template.is_lookup)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{self}: aliases: {exc}") from None
        self.require(
            set(template.variables) == set(self.template.variables),
            f"aliases has {alias!r}; a former address has the same variables, "
            f"{', '.join(self.template.variables)}.",
        )
        return template

    @property
    def key(self) -> str:
        """The template as it was written."""
        return self.template.template
