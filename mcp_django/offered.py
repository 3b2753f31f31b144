"""``Offered``: what a server offers at this moment: what code declares, as its owner narrowed it.

A registry holds what code declares. Its owner adds to that and narrows it in the admin
(``mcp_django.managed``); what is left of both is what callers are served from. It is a picture:
whoever took it goes on with it, however the registry or the rows change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_django.components.resource import Resource, ResourceTemplate
from mcp_django.components.skill import Skills, skills_among

if TYPE_CHECKING:
    from mcp_django.components.completion import Completion
    from mcp_django.components.component import Component
    from mcp_django.components.prompt import Prompt
    from mcp_django.components.resource import ReadableComponent
    from mcp_django.components.tool import Tool
    from mcp_django.rates import Rate


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
