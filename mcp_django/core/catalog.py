"""The catalog of a server: what code declares, with the site owner's overrides applied.

A ``Registry`` contains the components that code declares. In the admin the site owner adds
components and overrides declared ones (``mcp_django.overrides``); the result is ``Catalog``, from
which callers are served. It is an immutable snapshot: code that uses one is not affected by later
changes of the registry or the override rows. ``Server`` is the interface that the runtime requires
of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp_django.conf import Rate
from mcp_django.core.component import Completion, Component, Prompt
from mcp_django.core.resource import (
    ReadableComponent,
    Resource,
    ResourceTemplate,
    Skills,
    find_skills,
)
from mcp_django.core.tool import Tool
from mcp_django.protocol.uritemplate import lower_scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The catalog: the components of a server by kind and name, and the overrides of the server.

    ``extra_permissions`` are permissions required in addition to the server's own. ``title`` and
    ``instructions`` are empty unless they are overridden.
    """

    tools: Mapping[str, Tool]
    resources: Mapping[str, Resource]
    templates: Mapping[str, ResourceTemplate]
    prompts: Mapping[str, Prompt]
    completions: Mapping[tuple[str, str, str], Completion]
    declared_catalog: Catalog | None = field(default=None, repr=False, compare=False)
    """The catalog without overrides, if it contains more components."""
    has_permissions: bool = False
    """Whether any component requires a permission."""
    is_enabled: bool = True
    extra_permissions: tuple[Any, ...] = ()
    rates: tuple[Rate, ...] = ()
    title: str = ""
    instructions: str = ""
    by_kind: Mapping[str, Mapping[str, Any]] = field(init=False, repr=False, compare=False)
    """The four mappings above, by the kind of component."""
    skills: Skills = field(init=False, repr=False, compare=False)
    """The skills among the resources."""
    aliases: Mapping[tuple[str, str], Component] = field(init=False, repr=False, compare=False)
    """Components by kind and alias (a former name)."""
    embeds_resources: bool = field(init=False, repr=False, compare=False)
    """Whether a tool or a prompt declares that it embeds resource contents in its results."""
    capabilities: frozenset[str] = field(init=False, repr=False, compare=False)
    """The capabilities that methods depend on: kinds with a component, and completions."""
    plans: dict[Any, Any] = field(init=False, repr=False, compare=False, default_factory=dict)
    """What ``execution.plan`` has prepared for calls of the components."""

    def __post_init__(self) -> None:
        tables = {
            "tool": self.tools,
            "resource": self.resources,
            "resource template": self.templates,
            "prompt": self.prompts,
        }
        object.__setattr__(self, "by_kind", tables)
        object.__setattr__(self, "skills", find_skills(self.resources.values()))
        former = {(one.kind, alias): one for one in self for alias in one.aliases}
        object.__setattr__(self, "aliases", former)
        answers = (*self.tools.values(), *self.prompts.values())
        object.__setattr__(
            self, "embeds_resources", any(one.function.embeds_resources for one in answers)
        )
        has = {
            "tools": self.tools,
            "resources": self.resources or self.templates or self.embeds_resources,
            "prompts": self.prompts,
            "completions": self.completions,
        }
        object.__setattr__(self, "capabilities", frozenset(name for name in has if has[name]))

    def __iter__(self) -> Iterator[Component]:
        for table in self.by_kind.values():
            yield from table.values()

    def find_tool(self, name: str) -> Tool | None:
        """Return the tool with this name or alias."""
        return self.tools.get(name) or self._find_by_alias("tool", name)

    def find_prompt(self, name: str) -> Prompt | None:
        """Return the prompt with this name or alias."""
        return self.prompts.get(name) or self._find_by_alias("prompt", name)

    def find_template(self, template: str) -> ResourceTemplate | None:
        """Return the resource template with this URI template or alias."""
        template = lower_scheme(template)
        return self.templates.get(template) or self._find_by_alias("resource template", template)

    def _find_by_alias(self, kind: str, name: str) -> Any:
        found = self.aliases.get((kind, name))
        every = self.declared_catalog or self
        # A disabled component keeps its name.
        return None if found is None or name in every.by_kind[kind] else found

    def readable_components(self) -> Iterator[ReadableComponent]:
        """Yield the resources and templates that ``find_resource`` searches."""
        yield from self.resources.values()
        yield from self.templates.values()

    def find_resource(self, uri: str) -> tuple[ReadableComponent, dict[str, str]] | None:
        """Return the resource or template that serves a URI, with the template's variables.

        The scheme of the URI may be in any case. A fixed resource takes precedence over a template,
        and the most specific template wins. A disabled component keeps its URIs: otherwise another
        template that matches them would serve them, perhaps with a weaker permission.
        """
        every = self.declared_catalog or self
        uri = lower_scheme(uri)
        found = _match_uri(uri, every.resources, every.templates, every.aliases)
        if found is None:
            return None
        resource, variables = found
        left = self.by_kind[resource.kind].get(resource.key)
        return None if left is None else (left, variables)


def _match_uri(
    uri: str,
    resources: Mapping[str, Resource],
    templates: Mapping[str, ResourceTemplate],
    aliases: Mapping[tuple[str, str], Any],
) -> tuple[ReadableComponent, dict[str, str]] | None:
    """Return the resource or template that matches a URI, with the template's variables."""
    resource = resources.get(uri) or aliases.get(("resource", uri))
    if resource is not None:
        return resource, {}
    best: tuple[ResourceTemplate, dict[str, str]] | None = None
    how_specific: tuple[int, int, int] | None = None
    for template in templates.values():
        for pattern in (template.template, *template.alias_templates):
            variables = pattern.match(uri)
            if variables is None:
                continue
            if how_specific is None or pattern.specificity > how_specific:
                best, how_specific = (template, variables), pattern.specificity
    return best


# The ``Server`` protocol --------------------------------------------------------------------------


class Server(Protocol):
    """The interface of a server that the runtime uses.

    ``mcp_django.server.MCPServer`` implements it.
    """

    name: str
    permission: Any
    scopes: tuple[str, ...]
    """The scopes that an OAuth token needs for any request to this server."""
    resource_url: str
    """The URL that tokens are issued for; empty: derived from the URLconf."""
    upstream: str
    """The upstream provider that users must connect before a token is issued; empty: none."""

    @property
    def namespace(self) -> str:
        """The URL namespace."""

    @property
    def unwrapped(self) -> Server:
        """The server that code declares, also when called on a wrapper of it."""

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rate limits of the whole server."""

    @property
    def log_arguments(self) -> bool:
        """Whether the call log contains the values of arguments."""

    @property
    def declared_catalog(self) -> Catalog:
        """The catalog before overrides."""

    @property
    def catalog(self) -> Catalog:
        """The catalog: what code declares, with the site owner's overrides applied."""

    def refresh(self, *, is_list: bool = False) -> None:
        """Reload overrides: ``catalog`` is at most one second old, and current for a list."""

    def fresh_catalog(self, *, is_list: bool = False) -> Catalog | None:
        """Return the catalog if it is recent, or recent enough for a list, without a query."""

    @property
    def auth(self) -> tuple[str, ...]:
        """The authentication backends in use."""

    @property
    def instructions(self) -> str:
        """The instructions that models get for the server."""

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The protocol revisions that the server supports."""

    @property
    def page_size(self) -> int:
        """The number of resources per page of their list."""

    def identity(self) -> dict[str, Any]:
        """Return ``serverInfo``: name, version and the optional members."""

    @property
    def identity_attributes(self) -> tuple[object, ...]:
        """The attributes that ``identity`` shows: text, possibly translated lazily, and icons."""

    def read_resource(self, call: Any, uri: str, interaction: Any) -> Any:
        """Read a resource for a running call, as part of the same interaction."""
