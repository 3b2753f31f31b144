"""``Collection``: the components of one server, by kind and name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mcp_django.components.completion import Completion
from mcp_django.components.component import Component
from mcp_django.components.prompt import Prompt
from mcp_django.components.resource import Resource, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.components.ui_resource import UIResource, resource_of
from mcp_django.exceptions import AlreadyRegistered, NotRegistered


class Collection:
    """What code declares of one server."""

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
