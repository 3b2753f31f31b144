"""Resources and resource templates: what a client can read by URI."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.component import Component
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
        try:
            check_uri(self.uri)
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
class ResourceTemplate(ReadableComponent):
    """A family of resources; the template's variables are the function's parameters."""

    kind: ClassVar[str] = "resource template"

    template: URITemplate
    arguments: ArgumentSource

    @property
    def key(self) -> str:
        """The template as it was written."""
        return self.template.template
