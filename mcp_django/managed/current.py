"""``Managed``: what one server offers now, kept until code or its owner changes something."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import Error, router, transaction
from django.utils.asyncio import async_unsafe

from mcp_django.core.catalog import Offered
from mcp_django.core.component import Component
from mcp_django.exceptions import Busy
from mcp_django.managed import reading
from mcp_django.managed.exposures import with_exposed
from mcp_django.managed.freshness import NOTHING, UNKEPT, Mark, freshness, has_no_tables
from mcp_django.managed.narrowing import AS_IN_CODE, guards_of, narrowed, with_their_tools
from mcp_django.managed.prompt_texts import with_written
from mcp_django.managed.reading import UNMANAGED, Decisions
from mcp_django.managed.skill_narrowing import with_their_skills
from mcp_django.managed.skill_texts import with_skills
from mcp_django.storage.databases import tables

if TYPE_CHECKING:
    from mcp_django.core.registry import Registry

logger = logging.getLogger("mcp_django")

C = TypeVar("C", bound=Component)


class Shared:
    """The decisions of all servers, read once for each mark; for any thread."""

    def __init__(self) -> None:
        self._known: tuple[Mark, Mapping[str, Decisions]] = NOTHING, {}
        self._lock = threading.Lock()

    def at(self, mark: Mark) -> Mapping[str, Decisions]:
        """The decisions, no older than the mark.

        Raises:
            DatabaseError: they cannot be read.
            SynchronousOnlyOperation: they would have to be, on an event loop.
        """
        if mark == NOTHING:
            return {}
        known, decisions = self._known
        return decisions if mark == known else self._read(mark)

    # A loop must not wait for the lock either, while another thread reads.
    @async_unsafe
    def _read(self, mark: Mark) -> Mapping[str, Decisions]:
        if mark == UNKEPT:
            with transaction.atomic(using=router.db_for_write(tables.Component)):
                return reading.read()
        with self._lock:
            known, decisions = self._known
            if mark == known:
                return decisions
            # Read after the mark was: what changed in between is read once more.
            decisions = reading.read()
            self._known = mark, decisions
            return decisions


class Managed:
    """What one server offers."""

    def __init__(self, name: str, registry: Registry) -> None:
        self._name = name
        self._registry = registry
        self._seen: Mark | None = None
        self._decisions = UNMANAGED
        self._built: tuple[Any, Offered] | None = None

    def refresh(self, *, is_list: bool = False) -> None:
        """See that what is offered is not older than a second, or of this moment for a list.

        Raises:
            Busy: the database cannot say, and never could.
            SynchronousOnlyOperation: it would have to be asked on an event loop.
        """
        mark = freshness.look(is_list=is_list)
        if mark == self._seen != UNKEPT:
            return
        try:
            self._take(shared.at(mark).get(self._name, UNMANAGED), mark)
        except Error as exc:
            self._go_on_without(exc)

    def forget(self) -> None:
        """Take it that nothing is decided, until the next ``refresh``."""
        self._take(UNMANAGED, None)

    def _take(self, decisions: Decisions, mark: Mark | None) -> None:
        # Equal ones are not taken: what is offered by them stands already.
        if decisions != self._decisions:
            self._decisions = decisions
        self._seen = mark

    def _go_on_without(self, exc: Error) -> None:
        if has_no_tables():
            self.forget()
            return
        if self._seen is None:
            raise Busy("The server cannot read its settings; try again in a moment.") from exc
        logger.warning("What the admin says of %s cannot be read (%s).", self._name, exc)

    @property
    def decisions(self) -> Decisions:
        """What the admin says of the server, as of the last ``refresh``."""
        return self._decisions

    @property
    def available(self) -> Offered:
        """What there is before it is narrowed, as of the last ``refresh``."""
        return available(self._registry, self._decisions)

    @property
    def offered(self) -> Offered:
        """What is offered, as of the last ``refresh``; before the first one, what code declares.

        Nothing is served from it before there was one: ``dispatch`` sees to that.
        """
        # Looked at once: another thread may take others meanwhile.
        generation, decisions = self._registry.generation, self._decisions
        built = self._built
        if built is None or built[0][0] != generation or built[0][1] is not decisions:
            state = (generation, decisions)
            built = self._built = (state, offered(self._registry, decisions))
        return built[1]


def available(registry: Registry, decisions: Decisions) -> Offered:
    """What there is before anything is narrowed: what code declares, and what the admin adds."""
    said = [one for one in decisions.prompts if registry.answering("prompt", one.name) is None]
    prompts, completions = with_written(registry.prompts, registry.completions, said)
    declared = Offered(
        tools=dict(registry.tools),
        resources=with_skills(registry.resources, decisions.skills),
        templates=dict(registry.templates),
        prompts=prompts,
        completions=completions,
    )
    return with_exposed(declared, registry, decisions.exposures)


def offered(registry: Registry, decisions: Decisions) -> Offered:
    """What there is, as the decisions narrow it."""
    whole = available(registry, decisions)

    def left(table: Mapping[str, C]) -> dict[str, C]:
        rest = {key: _narrowed(one, decisions) for key, one in table.items()}
        return {key: one for key, one in rest.items() if one is not None}

    tools = left(whole.tools)
    resources = with_their_skills(left(whole.resources), decisions.overrides)
    found = replace(
        whole,
        tools=tools,
        resources=with_their_tools(resources, tools),
        templates=left(whole.templates),
        prompts=left(whole.prompts),
        available=whole,
        is_enabled=decisions.is_enabled,
        guards=guards_of(decisions.groups, decisions.permissions),
        rates=decisions.rates,
        title=decisions.title,
        instructions=decisions.instructions,
    )
    return replace(found, is_guarded=any(one.permission is not None for one in found))


def _narrowed(component: C, decisions: Decisions) -> C | None:
    """As its owner says, of it and of what it was called formerly: a new name opens nothing."""
    found: C | None = component
    # Its own row comes last, so that its words count.
    for name in (*component.aliases, component.key):
        if found is not None:
            said = decisions.overrides.get((component.kind, name), AS_IN_CODE)
            found = narrowed(found, said)
    return found


shared = Shared()
