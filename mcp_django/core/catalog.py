"""The catalog of a server: what code declares, with the site owner's overrides applied.

A ``ComponentCollection`` contains the components that code declares. In the admin the site owner
adds components and overrides declared ones (``mcp_django.overrides``); the result is ``Catalog``,
from which callers are served. It is an immutable snapshot: code that uses one is not affected by
later changes of the registry or the override rows. ``Server`` is the interface that the runtime
requires of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from mcp_django.conf import Rate
from mcp_django.core.component import Completion, Component, Prompt
from mcp_django.core.resource import (
    ReadableComponent,
    Resource,
    ResourceTemplate,
    Skills,
    UIResource,
    build_app_page,
    find_skills,
)
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AlreadyRegistered, NotRegistered


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

        A fixed resource takes precedence over a template, and the most specific template wins. A
        disabled component keeps its URIs: otherwise another template that matches them would serve
        them, perhaps with a weaker permission.
        """
        every = self.declared_catalog or self
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


# Components that code declares --------------------------------------------------------------------


class ComponentCollection:
    """The components of one server that code declares, by kind and name."""

    name = "default"
    """The server's name, which is part of generated URIs."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str, str], Completion] = {}
        self._aliases: dict[tuple[str, str], Component] = {}
        self.generation = 0
        """Incremented by each change, so that caches derived from the tables can detect it."""

    def add(self, component: Component) -> None:
        """Register a component; for a tool with an MCP App, register the app page too.

        Raises:
            AlreadyRegistered: a component of this kind has the same name or alias.
        """
        if isinstance(component, Tool) and component.ui is not None:
            component = replace(
                component, ui=component.ui.with_default_uri(self.name, component.name)
            )
        table = self._table(component)
        if component.key in table:
            raise AlreadyRegistered(
                f"The {component.kind} {component.key!r} is already registered, from "
                f"{table[component.key].origin}, and {component.origin} declares another one. "
                "Rename one of them (in a ModelTools class, set name and plural), or unregister "
                "the first."
            )
        for name in (component.key, *component.aliases):
            other = self.find_by_name(component.kind, name)
            if other is not None:
                raise AlreadyRegistered(
                    f"The {other} from {other.origin} already has the name or alias {name!r}, "
                    f"which the {component} from {component.origin} also declares. Rename one of "
                    "them, or remove the name from aliases=."
                )
        table[component.key] = component
        for alias in component.aliases:
            self._aliases[component.kind, alias] = component
        self.generation += 1
        page = build_app_page(component, self.name) if isinstance(component, Tool) else None
        if page is not None:
            self.add(page)

    def find_by_name(self, kind: str, name: str) -> Component | None:
        """Return the component of a kind with this name, URI or alias."""
        found: Component | None = self._tables().get(kind, {}).get(name)
        return found or self._aliases.get((kind, name))

    def uris_of(self, uri: str) -> Iterator[str]:
        """Yield a URI and the former URIs (aliases) of the same resource."""
        yield uri
        if (resource := self.resources.get(uri)) is not None:
            yield from resource.aliases
        for template in self.templates.values():
            values = template.template.match(uri) if template.alias_templates else None
            for former in template.alias_templates if values is not None else ():
                # If a former template cannot express the values, the resource had no such URI.
                with suppress(ValueError):
                    yield former.expand(values or {})

    def add_completion(self, completion: Completion) -> None:
        """Register a completion, which suggests values for an argument.

        Raises:
            AlreadyRegistered: the argument already has a completion.
        """
        key = (completion.kind, completion.key, completion.argument)
        if key in self.completions:
            raise AlreadyRegistered(
                f"The argument {key[2]!r} of {key[0]} {key[1]!r} already has a completion."
            )
        self.completions[key] = completion
        self.generation += 1

    def unregister(self, target: Callable[..., Any] | Component) -> None:
        """Unregister a component, given itself or its function, and its completions.

        Raises:
            NotRegistered: it is not registered.
        """
        found = [c for c in self if _matches_target(c, target)]
        if not found:
            raise NotRegistered(f"{target!r} is not registered on this server.")
        self.generation += 1
        tools = {c.name for c in found if isinstance(c, Tool)}
        for component in [
            *found,
            *(c for c in self.app_pages if c.tool in tools and c not in found),
        ]:
            del self._table(component)[component.key]
            for alias in component.aliases:
                del self._aliases[component.kind, alias]
            for key in [k for k in self.completions if k[:2] == (component.kind, component.key)]:
                del self.completions[key]

    def __iter__(self) -> Iterator[Component]:
        yield from self.tools.values()
        yield from self.resources.values()
        yield from self.templates.values()
        yield from self.prompts.values()

    @property
    def app_pages(self) -> list[UIResource]:
        """The MCP App pages that tools declare."""
        return [one for one in self.resources.values() if isinstance(one, UIResource)]

    def _table(self, component: Component) -> dict[str, Any]:
        return self._tables()[component.kind]

    def _tables(self) -> dict[str, dict[str, Any]]:
        return {
            "tool": self.tools,
            "resource": self.resources,
            "resource template": self.templates,
            "prompt": self.prompts,
        }


def _matches_target(component: Component, target: Callable[..., Any] | Component) -> bool:
    if isinstance(target, Component):
        # ``add`` stores a copy of a tool with an MCP App, which has the URI of the app page.
        same = component.function is target.function and component.key == target.key
        return component is target or (same and component.kind == target.kind)
    # Equal, not identical: each access to a bound method creates a new object.
    return bool(component.callable == target)


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
        """The number of entries per page of a list."""

    def identity(self) -> dict[str, Any]:
        """Return ``serverInfo``: name, version and the optional members."""

    @property
    def identity_attributes(self) -> tuple[object, ...]:
        """The attributes that ``identity`` shows: text, possibly translated lazily, and icons."""

    def read_resource(self, call: Any, uri: str, interaction: Any) -> Any:
        """Read a resource for a running call, as part of the same interaction."""
