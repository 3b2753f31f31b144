"""The catalog of a server: what code declares, with the site owner's overrides applied.

A ``Registry`` contains the components that code declares. In the admin the site owner adds
components and overrides declared ones (``mcp_django.overrides``); the result is ``Catalog``, from
which callers are served. It is an immutable snapshot: code that uses one is not affected by later
changes of the registry or the override rows. ``Server`` is the interface that the runtime requires
of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from mcp_django.components.component import Completion, Component, Prompt
from mcp_django.components.resource import (
    ReadableComponent,
    Resource,
    ResourceTemplate,
    Skills,
    find_skills,
)
from mcp_django.components.tool import Tool
from mcp_django.conf import Rate
from mcp_django.protocol.uritemplate import lower_scheme


class Catalog:
    """The catalog: the components of a server by kind and name, and the overrides of the server.

    It never changes, except for the data that ``execution`` caches on it (``plans`` and below):
    computed at its first use, read by all threads, and dropped together with the catalog. Every
    override in the admin and every registration creates a new catalog. A forked child keeps the
    cached data.

    ``extra_permissions`` are permissions required in addition to the server's own. ``title`` and
    ``instructions`` are empty unless they are overridden. ``declared_catalog`` is the catalog
    without overrides, if it may contain more components.
    """

    __slots__ = (
        "__weakref__",
        "access",
        "aliases",
        "by_kind",
        "capabilities",
        "completions",
        "declared_catalog",
        "embeds_resources",
        "encoded_identity",
        "extra_permissions",
        "has_permissions",
        "instructions",
        "is_enabled",
        "lists",
        "plans",
        "prompts",
        "rates",
        "resources",
        "skills",
        "templates",
        "title",
        "tools",
    )

    def __init__(
        self,
        *,
        tools: Mapping[str, Tool],
        resources: Mapping[str, Resource],
        templates: Mapping[str, ResourceTemplate],
        prompts: Mapping[str, Prompt],
        completions: Mapping[tuple[str, str, str], Completion],
        declared_catalog: Catalog | None = None,
        is_enabled: bool = True,
        extra_permissions: tuple[Any, ...] = (),
        rates: tuple[Rate, ...] = (),
        title: str = "",
        instructions: str = "",
    ) -> None:
        self.tools: Final = tools
        self.resources: Final = resources
        self.templates: Final = templates
        self.prompts: Final = prompts
        self.completions: Final = completions
        self.declared_catalog: Final = declared_catalog
        self.is_enabled: Final = is_enabled
        self.extra_permissions: Final = extra_permissions
        self.rates: Final = rates
        self.title: Final = title
        self.instructions: Final = instructions
        self.by_kind: Final[Mapping[str, Mapping[str, Any]]] = {
            "tool": tools,
            "resource": resources,
            "resource template": templates,
            "prompt": prompts,
        }
        """The four mappings above, by the kind of component."""
        self.skills: Final[Skills] = find_skills(resources.values())
        """The skills among the resources."""
        self.aliases: Final[Mapping[tuple[str, str], Component]] = {
            (component.kind, alias): component for component in self for alias in component.aliases
        }
        """Components by kind and alias (a former name)."""
        self.has_permissions: Final = any(component.permission is not None for component in self)
        """Whether any component requires a permission."""
        self.embeds_resources: Final = any(
            component.function.embeds_resources
            for component in (*tools.values(), *prompts.values())
        )
        """Whether a tool or a prompt declares that it embeds resource contents in its results."""
        has = {
            "tools": tools,
            "resources": resources or templates or self.embeds_resources,
            "prompts": prompts,
            "completions": completions,
        }
        self.capabilities: Final = frozenset(name for name in has if has[name])
        """The capabilities that methods depend on: kinds with a component, and completions."""
        self.plans: Final[dict[tuple[str, str | None, str], Any]] = {}
        """The plan of each method, component and revision (``execution.plan``)."""
        self.access: Any = None
        """Who may use the server, as far as an event loop can decide it (``execution.plan``)."""
        self.lists: Final[dict[str, Any]] = {}
        """The data that all pages of a list method depend on (``execution.handlers.listing``)."""
        self.encoded_identity: Any = None
        """``serverInfo``, encoded, if it is the same in every language (``execution.results``)."""

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
        component = self.aliases.get((kind, name))
        catalog = self.declared_catalog or self
        # A disabled component keeps its name.
        return None if component is None or name in catalog.by_kind[kind] else component

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
        catalog = self.declared_catalog or self
        uri = lower_scheme(uri)
        variables: dict[str, str] = {}
        resource: Any = catalog.resources.get(uri) or catalog.aliases.get(("resource", uri))
        if resource is None:
            matches = [
                (pattern.specificity, template, values)
                for template in catalog.templates.values()
                for pattern in (template.template, *template.alias_templates)
                if (values := pattern.match(uri)) is not None
            ]
            if not matches:
                return None
            _, resource, variables = max(matches, key=lambda match: match[0])
        enabled_resource = self.by_kind[resource.kind].get(resource.key)
        return None if enabled_resource is None else (enabled_resource, variables)


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
