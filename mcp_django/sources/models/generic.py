"""``GenericSet``: one set of tools for all models of a server, in place of a set for each.

It takes over above a number of models, and again leaves the tools of each when there are fewer. It
decides whenever a model is registered or unregistered, so which it is depends on what there is and
not on the order; the apps' ``mcp`` modules have all been imported before the first client asks. The
set has no way of its own to the rows: each call is handed to the tool of the model, which is the
one that would be offered otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from mcp_django.auth.principal import Principal
from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.execution.policy import visible
from mcp_django.sources.models.tools import ModelTools

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import ModelComponents
    from mcp_django.sources.registering import Registering

MAX_MODELS = 8

Generic: TypeAlias = bool | int | None
Registrations: TypeAlias = Mapping["ModelComponents[Any]", Sequence[Component]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model behind the set; its tools by what they do (``list``, ``get``, …)."""

    declaration: ModelTools[Any]
    tools: Mapping[str, Tool]

    @property
    def name(self) -> str:
        """The value of ``model``."""
        return self.declaration.singular

    def visible(self, principal: Principal) -> dict[str, Tool]:
        """The tools of it that the caller may know of."""
        return {name: tool for name, tool in self.tools.items() if visible(principal, tool)}


class GenericSet:
    """The models of a server that have tools, and which tools are offered for them."""

    def __init__(self, server: Registering, generic: Generic) -> None:
        self._server = server
        self._members: list[Member] = []
        self._own: list[Tool] = []
        self.choose(generic)

    def choose(self, generic: Generic) -> None:
        """Decide differently from the next ``arrange`` on."""
        self._limit = _limit(generic)
        self.generic = generic

    def arrange(self, registrations: Registrations) -> None:
        """Offer the set or the tools of each model, whichever is right for these.

        Raises:
            AlreadyRegistered: the name of a tool, or of a model, is taken.
        """
        members = list(_members(registrations))
        own: list[Tool] = []
        if self._limit is not None and len(members) > self._limit:
            own = self._build(members)
        self._exchange([*_tools(self._members), *self._own], own or [*_tools(members)])
        self._members, self._own = members, own

    def _build(self, members: Sequence[Member]) -> list[Tool]:
        from mcp_django.sources.models.generic_tools import generic_tools

        named: dict[str, Member] = {}
        for member in members:
            other = named.setdefault(member.name, member)
            if other is not member:
                raise AlreadyRegistered(
                    f"{other.declaration} and {member.declaration} are both called "
                    f"{member.name!r}, and one set of tools serves both; give one of them another "
                    "name."
                )
        return generic_tools(named)

    def _exchange(self, offered: Sequence[Tool], wanted: Sequence[Tool]) -> None:
        """Take the ones away and offer the others, or leave everything as it was."""
        known = self._server.tools
        self._server.generation += 1
        before = dict(known)
        kept = {id(tool) for tool in wanted}
        for tool in offered:
            if id(tool) not in kept and known.get(tool.key) is tool:
                del known[tool.key]
        try:
            for tool in wanted:
                if known.get(tool.key) is not tool:
                    self._server.add(tool)
        except BaseException:
            known.clear()
            known.update(before)
            raise


def _limit(generic: Generic) -> int | None:
    """Above how many models the set is offered, ``None`` for never."""
    if generic is None:
        return MAX_MODELS
    if isinstance(generic, bool):
        return 0 if generic else None
    number: Any = generic
    if not isinstance(number, int) or number < 0:
        raise ImproperlyConfigured(
            f"generic={generic!r}; write True or False, or above how many models one set of tools "
            f"serves all of them ({MAX_MODELS} if left out)."
        )
    return generic


def _members(registrations: Registrations) -> Iterator[Member]:
    for declaration, components in registrations.items():
        if not isinstance(declaration, ModelTools):
            continue
        left = {id(component) for component in components}
        tools = {name: one for name, one in declaration.operations.items() if id(one) in left}
        if tools:
            yield Member(declaration=declaration, tools=tools)


def _tools(members: Sequence[Member]) -> Iterator[Tool]:
    for member in members:
        yield from member.tools.values()
