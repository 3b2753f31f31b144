"""The catalog of a server: declared components with the site owner's overrides applied.

``Managed`` caches the catalog of one server until code or the site owner changes something. Every
change in the admin increments the version of one topic in the database. A process reads that
version at most once a second, and always before it returns a list: a client that was notified of a
change requests the list immediately, perhaps from another process.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from django.db import Error, connections, router, transaction
from django.utils.asyncio import async_unsafe

from mcp_django.conf import Rate, parse_all
from mcp_django.core.catalog import Offered
from mcp_django.core.component import SCOPE, Component
from mcp_django.core.resource import SKILL_MD, Resource, SkillFile, parents
from mcp_django.core.tool import Approval
from mcp_django.exceptions import Busy
from mcp_django.overrides.exposures import with_exposed
from mcp_django.overrides.override_values import (
    AS_IN_CODE,
    ExposureSpec,
    Override,
    guards_of,
    is_names,
    narrowed,
    read_exposures,
    with_their_tools,
)
from mcp_django.overrides.texts import (
    WrittenPrompt,
    WrittenSkill,
    read_prompts,
    read_skills,
    with_skills,
    with_written,
)
from mcp_django.storage.databases import tables
from mcp_django.storage.pubsub import announce
from mcp_django.storage.versions import MANAGED, Topic, touch

if TYPE_CHECKING:
    from mcp_django.core.registry import Registry

logger = logging.getLogger("mcp_django")

# Reading the overrides of all servers -------------------------------------------------------------

Said: TypeAlias = Mapping[str, Any]
"""The columns of a row."""

KEY = ("server", "kind", "key")
NARROWING = ("is_enabled", "title", "groups", "permissions", "rate")
COMPONENT_NARROWING = ("description", "scopes", "approval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The overrides and additions that the admin makes to one server."""

    is_enabled: bool = True
    title: str = ""
    instructions: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    overrides: dict[tuple[str, str], Override] = field(default_factory=dict)
    """By kind and key; empty overrides are left out."""
    prompts: tuple[WrittenPrompt, ...] = ()
    """The prompts that are written in the admin."""
    skills: tuple[WrittenSkill, ...] = ()
    """The skills that are written in the admin."""
    exposures: tuple[ExposureSpec, ...] = ()
    """The models and views that are exposed in the admin."""


UNMANAGED = Decisions()


def read() -> dict[str, Decisions]:
    """Return the admin's overrides and additions by server name; unchanged servers are left out."""
    overrides = _overrides()
    found = {
        said["name"]: decisions_of(said, overrides.pop(said["name"], {}))
        for said in _rows(tables.Server, "name", "instructions", *NARROWING)
    }
    found.update({name: Decisions(overrides=rest) for name, rest in overrides.items()})
    for name, prompts in read_prompts().items():
        found[name] = replace(found.get(name, UNMANAGED), prompts=prompts)
    for name, skills in read_skills().items():
        found[name] = replace(found.get(name, UNMANAGED), skills=skills)
    for name, exposures in read_exposures().items():
        found[name] = replace(found.get(name, UNMANAGED), exposures=exposures)
    return {name: one for name, one in found.items() if one != UNMANAGED}


def decisions_of(said: Said, overrides: dict[tuple[str, str], Override]) -> Decisions:
    """Return the overrides in a server row; an invalid row switches the server off."""
    try:
        return Decisions(**_narrowing(said), instructions=said["instructions"], overrides=overrides)
    except ValueError as exc:
        told = "The server %r is disabled, since its overrides are invalid: %s."
        # The message is sufficient without a traceback.
        logger.error(told, said["name"], exc)  # noqa: TRY400
        return Decisions(is_enabled=False, overrides=overrides)


def _overrides() -> dict[str, dict[tuple[str, str], Override]]:
    found: dict[str, dict[tuple[str, str], Override]] = defaultdict(dict)
    for said in _rows(tables.Component, *KEY, *NARROWING, *COMPONENT_NARROWING):
        server, kind, key = (said[name] for name in KEY)
        override = override_of(said, name=key)
        if override != AS_IN_CODE:
            found[server][kind, key] = override
    return found


def override_of(said: Said, *, name: str) -> Override:
    """Return the override in a component row; an invalid row switches the component off."""
    try:
        return Override(
            **_narrowing(said),
            description=said["description"],
            scopes=_names("scope", said["scopes"], SCOPE.fullmatch),
            approval=_meant("approval", [said["approval"]], get_args(Approval).__contains__)[0],
        )
    except ValueError as exc:
        told = "The component %r is disabled, since its override is invalid: %s."
        logger.error(told, name, exc)  # noqa: TRY400
        return Override(is_enabled=False)


def _narrowing(said: Said) -> dict[str, Any]:
    """Return the overrides that servers and components have in common.

    Raises:
        ValueError: the row has invalid data, which the admin cannot have written.
    """
    return {
        "is_enabled": said["is_enabled"],
        "title": said["title"],
        "groups": _names("group", said["groups"], bool),
        "permissions": _names("codename", said["permissions"], lambda one: one.count(".") == 1),
        "rates": parse_all(said["rate"]),
    }


def _names(what: str, value: Any, is_one: Callable[[str], Any]) -> tuple[str, ...]:
    # Invalid data must not be read as an empty list, which would give every user access.
    if not is_names(value):
        raise ValueError(f"{value!r:.80} is not a list of names, each a {what}")
    return _meant(what, value, is_one)


def _meant(what: str, values: Iterable[Any], is_one: Callable[[str], Any]) -> tuple[Any, ...]:
    found = tuple(values)
    if wrong := [one for one in found if not is_one(one)]:
        raise ValueError(f"{wrong[0]!r} is not a valid {what}")
    return found


def _rows(model: Any, *columns: str) -> Any:
    return model._default_manager.using(router.db_for_write(model)).values(*columns)


# Whether the known overrides are still current ----------------------------------------------------

FRESH_SECONDS = 1.0

Mark: TypeAlias = tuple[int, Any, int]
"""The topic's version, its time of change (an opaque database value, only compared for equality),
and how often this process has started over."""

NOTHING: Mark = (0, None, 0)
"""Without a database or its tables, overrides do not exist."""
UNTOLD = -1
"""No change has been published yet; rows may still exist, for example after ``loaddata``."""
UNKEPT: Mark = (-2, None, 0)
"""The caller is in a transaction; what it reads may be rolled back, so it is not cached."""


class Freshness:
    """The newest version of the overrides that this process has seen; thread-safe."""

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self._looked_at = -math.inf
        self._is_pinned = False
        self._is_blind = False
        self._starts = 0
        self.forgotten = 0
        """The number of changes published by this process."""

    def look(self, *, is_list: bool = False) -> Mark:
        """Return the version, at most ``FRESH_SECONDS`` old, or read now for a list.

        While the database is unavailable, return the last known version.

        Raises:
            Busy: the database is unavailable and no version is known: disabled components must
                stay disabled.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        mark = self.mark
        if mark is not None and self._is_pinned:
            return mark
        if is_in_transaction():
            return UNKEPT
        began = time.monotonic()
        if mark is not None and not is_list and began - self._looked_at < FRESH_SECONDS:
            return mark
        try:
            mark = self._read()
        except Error as exc:
            return self._last_known(exc)
        self._is_blind = False
        self.mark, self._looked_at = mark, began
        return mark

    def expire(self) -> None:
        """Query the version again at the next use."""
        self._looked_at = -math.inf

    def start_over(self) -> None:
        """Query the version and reload the overrides at the next use; for tests."""
        self.expire()
        self.mark = None
        self._starts += 1

    def forget(self) -> None:
        """Query the version at the next use, since this process has published a change."""
        self.forgotten += 1
        self.expire()
        self._is_pinned = False

    def pin(self) -> None:
        """Assume that overrides do not exist, without queries; for tests."""
        self.mark, self._is_pinned = NOTHING, True

    @property
    def is_fresh(self) -> bool:
        """Whether the version is at most ``FRESH_SECONDS`` old."""
        is_young = time.monotonic() - self._looked_at < FRESH_SECONDS
        return self._is_pinned or (self.mark is not None and is_young)

    @property
    def is_pinned(self) -> bool:
        """Whether the database is never queried."""
        return self._is_pinned

    def _read(self) -> Mark:
        connection = connections[_alias()]
        if connection.settings_dict["ENGINE"] == "django.db.backends.dummy":
            # A site without a database has no overrides.
            return NOTHING
        with connection.cursor() as cursor:
            cursor.execute(*_question(connection.alias))
            version, at = cursor.fetchone() or (UNTOLD, None)
        return version, at, self._starts

    def _last_known(self, exc: Error) -> Mark:
        if not self._is_blind:
            logger.warning("Cannot load the overrides of the admin (%s).", exc)
        self._is_blind = True
        if self.mark is None and has_no_tables():
            # Overrides do not exist yet. Checked again each time, since the site may be migrated.
            return NOTHING
        if self.mark is None:
            raise Busy("The server cannot read its settings; try again in a moment.") from exc
        # Do not retry with every request: a database that is down can be slow to fail.
        self._looked_at = time.monotonic()
        return self.mark


def has_no_tables() -> bool:
    """Return whether the tables are missing; false if the database is unavailable."""
    connection = connections[_alias()]
    try:
        return tables.Component._meta.db_table not in connection.introspection.table_names()
    except Error:
        return False


@cache
def _question(alias: str) -> tuple[str, Any]:
    """Return the compiled query for the version; compiling takes ten times as long as running."""
    found = tables.Topic._default_manager.using(alias).filter(pk=MANAGED.digest)
    query: Any = found.values_list("version", "changed_at").query
    sql, parameters = query.get_compiler(alias).as_sql()
    return sql, parameters


def _alias() -> str:
    return router.db_for_write(tables.Topic)


def is_in_transaction() -> bool:
    """Return whether this thread is in a transaction of the database with the overrides."""
    # Looking up a connection by alias would create one, for each task on an event loop.
    entered = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    return bool(entered) and _alias() in entered


freshness = Freshness()


# The catalog of a server --------------------------------------------------------------------------

C = TypeVar("C", bound=Component)


class Shared:
    """The overrides of all servers, read once for each version; thread-safe."""

    def __init__(self) -> None:
        self._known: tuple[Mark, Mapping[str, Decisions]] = NOTHING, {}
        self._lock = threading.Lock()

    def at(self, mark: Mark) -> Mapping[str, Decisions]:
        """Return the overrides by server name, at least as new as the version.

        Raises:
            DatabaseError: they cannot be read.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        if mark == NOTHING:
            return {}
        known, decisions = self._known
        return decisions if mark == known else self._read(mark)

    # An event loop must also not wait for the lock while another thread reads.
    @async_unsafe
    def _read(self, mark: Mark) -> Mapping[str, Decisions]:
        if mark == UNKEPT:
            with transaction.atomic(using=router.db_for_write(tables.Component)):
                return read()
        with self._lock:
            known, decisions = self._known
            if mark == known:
                return decisions
            # Read after the version, so a change in between only causes another read.
            decisions = read()
            self._known = mark, decisions
            return decisions


class Managed:
    """The catalog of one server, with the admin's overrides and additions."""

    def __init__(self, name: str, registry: Registry) -> None:
        self._name = name
        self._registry = registry
        self._seen: Mark | None = None
        self._decisions = UNMANAGED
        self._built: tuple[Any, Offered] | None = None

    def refresh(self, *, is_list: bool = False) -> None:
        """Update the catalog if it is older than a second, or in any case for a list.

        Raises:
            Busy: the database is unavailable, and no overrides are known.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        mark = freshness.look(is_list=is_list)
        if mark == self._seen != UNKEPT:
            return
        try:
            self._take(shared.at(mark).get(self._name, UNMANAGED), mark)
        except Error as exc:
            self._go_on_without(exc)

    def forget(self) -> None:
        """Assume that overrides do not exist, until the next ``refresh``."""
        self._take(UNMANAGED, None)

    def _take(self, decisions: Decisions, mark: Mark | None) -> None:
        # Equal overrides are not replaced, so that the cached catalog stays valid.
        if decisions != self._decisions:
            self._decisions = decisions
        self._seen = mark

    def _go_on_without(self, exc: Error) -> None:
        if has_no_tables():
            self.forget()
            return
        if self._seen is None:
            raise Busy("The server cannot read its settings; try again in a moment.") from exc
        logger.warning("Cannot load the overrides of the server %s (%s).", self._name, exc)

    @property
    def decisions(self) -> Decisions:
        """The overrides and additions of the server, as of the last ``refresh``."""
        return self._decisions

    @property
    def available(self) -> Offered:
        """The catalog before overrides, as of the last ``refresh``."""
        return available(self._registry, self._decisions)

    @property
    def offered(self) -> Offered:
        """The catalog, as of the last ``refresh``; before the first one, what code declares.

        ``dispatch`` calls ``refresh`` before any request is served.
        """
        # Read once: another thread may replace the overrides in the meantime.
        generation, decisions = self._registry.generation, self._decisions
        built = self._built
        if built is None or built[0][0] != generation or built[0][1] is not decisions:
            state = (generation, decisions)
            built = self._built = (state, offered(self._registry, decisions))
        return built[1]


def available(registry: Registry, decisions: Decisions) -> Offered:
    """Return the catalog before overrides: what code declares and what the admin adds."""
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
    """Return the catalog with the overrides applied."""
    whole = available(registry, decisions)

    def left(table: Mapping[str, C]) -> dict[str, C]:
        rest = {key: _narrowed(one, decisions) for key, one in table.items()}
        return {key: one for key, one in rest.items() if one is not None}

    tools = left(whole.tools)
    resources = _with_their_skills(left(whole.resources), decisions.overrides)
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
    """Apply the overrides of a component and its former names: renaming must not widen access."""
    found: C | None = component
    # The row of the current name comes last, so that its texts take precedence.
    for name in (*component.aliases, component.key):
        if found is not None:
            said = decisions.overrides.get((component.kind, name), AS_IN_CODE)
            found = narrowed(found, said)
    return found


shared = Shared()


# Publishing a change ------------------------------------------------------------------------------

LISTS = {
    "tool": "tools",
    "resource": "resources",
    "resource template": "resources",
    "prompt": "prompts",
}


def decided(changed: Iterable[tuple[str, str]]) -> None:
    """Publish a change of overrides or of these lists when the transaction commits.

    The change then applies in this process, and clients and other processes are notified.

    Each item is the name of a server and a list: ``tools``, ``resources`` or ``prompts``. Code that
    changes rows that ``read`` reads must call this, without lists if the lists stay the same.
    ``changed`` is evaluated when the transaction commits.
    """
    # The version changes in the same transaction, so that no process misses a disabled component.
    touch([MANAGED])
    transaction.on_commit(partial(_tell, changed), using=router.db_for_write(tables.Server))


def _tell(changed: Iterable[tuple[str, str]]) -> None:
    freshness.forget()
    announce(*(Topic(server, kind) for server, kind in dict.fromkeys(changed)))


# Overrides of a skill -----------------------------------------------------------------------------


def _with_their_skills(
    resources: dict[str, Resource], overrides: Mapping[tuple[str, str], Override]
) -> dict[str, Resource]:
    """Apply the override of a skill's ``SKILL.md`` to all files of the skill.

    Clients treat the files of a skill as a unit.
    """
    if not overrides or not any(isinstance(one, SkillFile) for one in resources.values()):
        return resources
    guarded = {key: _as_its_skills(one, overrides) for key, one in resources.items()}
    return {key: one for key, one in guarded.items() if one is not None}


def _as_its_skills(
    resource: Resource, overrides: Mapping[tuple[str, str], Override]
) -> Resource | None:
    found: Resource | None = resource
    if not isinstance(resource, SkillFile):
        return found
    for parent in parents(resource.uri):
        skill = f"{parent}/{SKILL_MD}"
        said = overrides.get((resource.kind, skill))
        if found is not None and said is not None and skill != resource.uri:
            # Title and description apply only to the SKILL.md itself.
            found = narrowed(found, replace(said, title="", description=""))
    return found


def is_decided_with_another(component: Component) -> bool:
    """Return whether the component has no override of its own: a skill's file but ``SKILL.md``."""
    return isinstance(component, SkillFile) and component.frontmatter is None
