"""The catalog of a server: what code declares, with the site owner's overrides applied.

A ``Collection`` holds what code declares. The site owner adds to that and restricts it in the
admin (``mcp_django.overrides``); the result is ``Offered``, from which callers are served. It is
a snapshot: code that took one goes on with it, however the registry or the rows change meanwhile.
``Server`` is what the runtime asks of the server that they belong to.
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
    resource_of,
    skills_among,
)
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AlreadyRegistered, NotRegistered


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """The components of a server by kind and name, and what its owner says of the whole server.

    ``guards`` are permissions beside the server's own. ``title`` and ``instructions`` are empty
    where they are as in code.
    """

    tools: Mapping[str, Tool]
    resources: Mapping[str, Resource]
    templates: Mapping[str, ResourceTemplate]
    prompts: Mapping[str, Prompt]
    completions: Mapping[tuple[str, str, str], Completion]
    available: Offered | None = field(default=None, repr=False, compare=False)
    """What there is before it is narrowed, if that is more."""
    is_guarded: bool = False
    """Whether any component asks for a permission."""
    is_enabled: bool = True
    guards: tuple[Any, ...] = ()
    rates: tuple[Rate, ...] = ()
    title: str = ""
    instructions: str = ""
    tables: Mapping[str, Mapping[str, Any]] = field(init=False, repr=False, compare=False)
    """The four tables by the kind of component."""
    skills: Skills = field(init=False, repr=False, compare=False)
    """The skills among the resources."""
    former: Mapping[tuple[str, str], Component] = field(init=False, repr=False, compare=False)
    """What answers to a former name, by kind and that name."""
    embeds: bool = field(init=False, repr=False, compare=False)
    """Whether a tool or a prompt says that it puts contents of resources into its answers."""

    def __post_init__(self) -> None:
        tables = {
            "tool": self.tools,
            "resource": self.resources,
            "resource template": self.templates,
            "prompt": self.prompts,
        }
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "skills", skills_among(self.resources.values()))
        former = {(one.kind, alias): one for one in self for alias in one.aliases}
        object.__setattr__(self, "former", former)
        answers = (*self.tools.values(), *self.prompts.values())
        object.__setattr__(self, "embeds", any(one.function.embeds for one in answers))

    def __iter__(self) -> Iterator[Component]:
        for table in self.tables.values():
            yield from table.values()

    def find_tool(self, name: str) -> Tool | None:
        """The tool that answers to a name, its own or a former one."""
        return self.tools.get(name) or self._formerly("tool", name)

    def find_prompt(self, name: str) -> Prompt | None:
        """The prompt that answers to a name, its own or a former one."""
        return self.prompts.get(name) or self._formerly("prompt", name)

    def find_template(self, template: str) -> ResourceTemplate | None:
        """The resource template that is written so, or was formerly."""
        return self.templates.get(template) or self._formerly("resource template", template)

    def _formerly(self, kind: str, name: str) -> Any:
        found = self.former.get((kind, name))
        every = self.available or self
        # What is switched off still has its name.
        return None if found is None or name in every.tables[kind] else found

    def readable(self) -> Iterator[ReadableComponent]:
        """What ``find_resource`` may find."""
        yield from self.resources.values()
        yield from self.templates.values()

    def find_resource(self, uri: str) -> tuple[ReadableComponent, dict[str, str]] | None:
        """The resource that answers for a URI, with the template's variables.

        A fixed resource beats a template and the most specific template wins (RSC-12). What is
        switched off still has its URIs: else a template beside it would answer for them, which
        perhaps lets in more people.
        """
        every = self.available or self
        found = _find(uri, every.resources, every.templates, every.former)
        if found is None:
            return None
        resource, variables = found
        left = self.tables[resource.kind].get(resource.key)
        return None if left is None else (left, variables)


def _find(
    uri: str,
    resources: Mapping[str, Resource],
    templates: Mapping[str, ResourceTemplate],
    former: Mapping[tuple[str, str], Any],
) -> tuple[ReadableComponent, dict[str, str]] | None:
    """The one of these that answers for a URI, with the template's variables."""
    resource = resources.get(uri) or former.get(("resource", uri))
    if resource is not None:
        return resource, {}
    best: tuple[ResourceTemplate, dict[str, str]] | None = None
    how_specific: tuple[int, int, int] | None = None
    for template in templates.values():
        for pattern in (template.template, *template.former):
            variables = pattern.match(uri)
            if variables is None:
                continue
            if how_specific is None or pattern.specificity > how_specific:
                best, how_specific = (template, variables), pattern.specificity
    return best


# Components that code declares --------------------------------------------------------------------


class Collection:
    """What code declares of one server: its components, by kind and name."""

    name = "default"
    """What the server is called, in the addresses that are made of it."""

    def __init__(self) -> None:
        self.tools: dict[str, Tool] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        self.prompts: dict[str, Prompt] = {}
        self.completions: dict[tuple[str, str, str], Completion] = {}
        self._former: dict[tuple[str, str], Component] = {}
        self.generation = 0
        """Counts what was added and taken away, for who keeps something made of the tables."""

    def add(self, component: Component) -> None:
        """Offer a component; with a tool comes the page of its view.

        Raises:
            AlreadyRegistered: one of this kind and name is offered, or answers to the name.
        """
        if isinstance(component, Tool) and component.ui is not None:
            component = replace(component, ui=component.ui.on(self.name, component.name))
        table = self._table(component)
        if component.key in table:
            raise AlreadyRegistered(
                f"There is a {component.kind} {component.key!r} already, from "
                f"{table[component.key].origin}, and now another from {component.origin}; give one "
                "of them another name (a class of a model has name and plural for it), or "
                "unregister the first."
            )
        for name in (component.key, *component.aliases):
            other = self.answering(component.kind, name)
            if other is not None:
                raise AlreadyRegistered(
                    f"The {other} from {other.origin} answers to {name!r} already, and the "
                    f"{component} from {component.origin} would as well; give it another name, or "
                    "take the name out of aliases=."
                )
        table[component.key] = component
        for alias in component.aliases:
            self._former[component.kind, alias] = component
        self.generation += 1
        page = resource_of(component, self.name) if isinstance(component, Tool) else None
        if page is not None:
            self.add(page)

    def answering(self, kind: str, name: str) -> Component | None:
        """The component of a kind that has a name or address, or had it formerly."""
        found: Component | None = self._tables().get(kind, {}).get(name)
        return found or self._former.get((kind, name))

    def addresses_of(self, uri: str) -> Iterator[str]:
        """A URI, and those at which the same resource is read by its former addresses."""
        yield uri
        if (resource := self.resources.get(uri)) is not None:
            yield from resource.aliases
        for template in self.templates.values():
            values = template.template.match(uri) if template.former else None
            for former in template.former if values is not None else ():
                # A value that a former template cannot say was not at any former address.
                with suppress(ValueError):
                    yield former.expand(values or {})

    def add_completion(self, completion: Completion) -> None:
        """Suggest values for an argument.

        Raises:
            AlreadyRegistered: something suggests values for it already.
        """
        key = (completion.kind, completion.key, completion.argument)
        if key in self.completions:
            raise AlreadyRegistered(f"{key[0]} {key[1]!r} completes {key[2]!r} already.")
        self.completions[key] = completion
        self.generation += 1

    def unregister(self, target: Callable[..., Any] | Component) -> None:
        """Take a component away, given itself or its function, with its completions.

        Raises:
            NotRegistered: it is not offered.
        """
        found = [c for c in self if _is_meant(c, target)]
        if not found:
            raise NotRegistered(f"{target!r} is not registered here.")
        self.generation += 1
        tools = {c.name for c in found if isinstance(c, Tool)}
        for component in [*found, *(c for c in self.pages if c.tool in tools and c not in found)]:
            del self._table(component)[component.key]
            for alias in component.aliases:
                del self._former[component.kind, alias]
            for key in [k for k in self.completions if k[:2] == (component.kind, component.key)]:
                del self.completions[key]

    def __iter__(self) -> Iterator[Component]:
        yield from self.tools.values()
        yield from self.resources.values()
        yield from self.templates.values()
        yield from self.prompts.values()

    @property
    def pages(self) -> list[UIResource]:
        """The pages of the views that tools declare."""
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


def _is_meant(component: Component, target: Callable[..., Any] | Component) -> bool:
    if isinstance(target, Component):
        # A tool with a view is kept with the address of that, which is another object.
        same = component.function is target.function and component.key == target.key
        return component is target or (same and component.kind == target.kind)
    # Equal, not identical: each look at a bound method makes a new object.
    return bool(component.callable == target)


# The ``Server`` protocol --------------------------------------------------------------------------


class Server(Protocol):
    """The components of a server and what it says of itself.

    ``mcp_django.server.MCPServer`` implements it.
    """

    name: str
    permission: Any
    scopes: tuple[str, ...]
    """What an OAuth token needs for whatever it does here."""
    resource_url: str
    """The URL that tokens are issued for; empty where the URLconf has it."""
    upstream: str
    """The provider that a token for it stands on; empty for none."""

    @property
    def namespace(self) -> str:
        """The namespace of its URLs."""

    @property
    def itself(self) -> Server:
        """The server as its code knows it, where something else stands before it."""

    @property
    def rates(self) -> tuple[Rate, ...]:
        """How often anything of it may be used."""

    @property
    def log_arguments(self) -> bool:
        """Whether the call log gets the values of arguments."""

    @property
    def offered(self) -> Offered:
        """What it offers: what code declares, as its owner narrowed it."""

    def refresh(self, *, is_list: bool = False) -> None:
        """See that ``offered`` is not older than a second, or of this moment for a list."""

    @property
    def auth(self) -> tuple[str, ...]:
        """The authentication backends in use."""

    @property
    def instructions(self) -> str:
        """What a model should know of the server."""

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The revisions served."""

    @property
    def page_size(self) -> int:
        """Entries per page of a list."""

    def identity(self) -> dict[str, Any]:
        """Name, version and the rest of ``serverInfo``."""

    def read_resource(self, incoming: Any, uri: str, interaction: Any) -> Any:
        """Read a resource on behalf of a running call, whose questions it may go on with."""
