"""The catalog of a server: declared components with the site owner's overrides applied.

``Managed`` keeps the catalog of one server until code or the site owner changes something. Every
change that the owner makes counts up one topic in the database. A process reads that count at
most once a second, and always before it returns a list: a client that was notified of a change
asks at once, and perhaps another process.
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
    """What the admin says of one server."""

    is_enabled: bool = True
    title: str = ""
    instructions: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    overrides: dict[tuple[str, str], Override] = field(default_factory=dict)
    """By kind and key; those that say nothing are left out."""
    prompts: tuple[WrittenPrompt, ...] = ()
    """Those that were written in the admin."""
    skills: tuple[WrittenSkill, ...] = ()
    """Those that were written in the admin."""
    exposures: tuple[ExposureSpec, ...] = ()
    """The models and views that are offered because the admin says so."""


UNMANAGED = Decisions()


def read() -> dict[str, Decisions]:
    """The decisions by the name of the server; servers of which nothing is said are left out."""
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
    """What a row says of its server; one that cannot be read switches it off."""
    try:
        return Decisions(**_narrowing(said), instructions=said["instructions"], overrides=overrides)
    except ValueError as exc:
        told = "The server %r is switched off: what the admin says is %s."
        # The message says it all.
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
    """What a row says of the component of this name; one that cannot be read switches it off."""
    try:
        return Override(
            **_narrowing(said),
            description=said["description"],
            scopes=_names("scope", said["scopes"], SCOPE.fullmatch),
            approval=_meant("approval", [said["approval"]], get_args(Approval).__contains__)[0],
        )
    except ValueError as exc:
        told = "The component %r is switched off: what the admin says is %s."
        logger.error(told, name, exc)  # noqa: TRY400
        return Override(is_enabled=False)


def _narrowing(said: Said) -> dict[str, Any]:
    """What servers and components are narrowed by alike.

    Raises:
        ValueError: something was written past the admin that means nothing.
    """
    return {
        "is_enabled": said["is_enabled"],
        "title": said["title"],
        "groups": _names("group", said["groups"], bool),
        "permissions": _names("codename", said["permissions"], lambda one: one.count(".") == 1),
        "rates": parse_all(said["rate"]),
    }


def _names(what: str, value: Any, is_one: Callable[[str], Any]) -> tuple[str, ...]:
    # Never taken for "nobody was named", which would let everybody in.
    if not is_names(value):
        raise ValueError(f"{value!r:.80}, which is no list of names, each a {what}")
    return _meant(what, value, is_one)


def _meant(what: str, values: Iterable[Any], is_one: Callable[[str], Any]) -> tuple[Any, ...]:
    found = tuple(values)
    if wrong := [one for one in found if not is_one(one)]:
        raise ValueError(f"{wrong[0]!r}, which is no {what}")
    return found


def _rows(model: Any, *columns: str) -> Any:
    return model._default_manager.using(router.db_for_write(model)).values(*columns)


# Whether the known overrides are still current ----------------------------------------------------

FRESH_SECONDS = 1.0

Mark: TypeAlias = tuple[int, Any, int]
"""How often anything was decided, when last (as the database says it, to be compared alone), and
how often this process started over."""

NOTHING: Mark = (0, None, 0)
"""There are no rows that could say anything."""
UNTOLD = -1
"""Nobody has told of a decision yet; rows may say something all the same, as after an import."""
UNKEPT: Mark = (-2, None, 0)
"""Whoever asks is in a transaction, and what is read there may be taken back with it."""


class Freshness:
    """The newest mark that this process has seen; for any thread."""

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self._looked_at = -math.inf
        self._is_pinned = False
        self._is_blind = False
        self._starts = 0
        self.forgotten = 0
        """How often this process has decided something itself."""

    def look(self, *, is_list: bool = False) -> Mark:
        """The mark, no older than ``FRESH_SECONDS``, or of this moment for a list.

        While the database cannot be asked, what was known last goes on.

        Raises:
            Busy: it cannot, and nothing was known yet: what was switched off must stay off.
            SynchronousOnlyOperation: it would have to ask the database on an event loop.
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
        """Look again at the next use."""
        self._looked_at = -math.inf

    def start_over(self) -> None:
        """Look again at the next use, and read again whatever that says; for tests."""
        self.expire()
        self.mark = None
        self._starts += 1

    def forget(self) -> None:
        """Look again at the next use: something was decided in this process."""
        self.forgotten += 1
        self.expire()
        self._is_pinned = False

    def pin(self) -> None:
        """Take it that nothing is decided, and do not ask: for tests."""
        self.mark, self._is_pinned = NOTHING, True

    @property
    def is_fresh(self) -> bool:
        """Whether the mark is no older than ``FRESH_SECONDS``."""
        is_young = time.monotonic() - self._looked_at < FRESH_SECONDS
        return self._is_pinned or (self.mark is not None and is_young)

    @property
    def is_pinned(self) -> bool:
        """Whether the database is not asked at all."""
        return self._is_pinned

    def _read(self) -> Mark:
        connection = connections[_alias()]
        if connection.settings_dict["ENGINE"] == "django.db.backends.dummy":
            # A site without a database has no rows.
            return NOTHING
        with connection.cursor() as cursor:
            cursor.execute(*_question(connection.alias))
            version, at = cursor.fetchone() or (UNTOLD, None)
        return version, at, self._starts

    def _last_known(self, exc: Error) -> Mark:
        if not self._is_blind:
            logger.warning("What the admin says of servers cannot be read (%s).", exc)
        self._is_blind = True
        if self.mark is None and has_no_tables():
            # Nobody can have decided anything. Asked again each time, as the site may be migrated.
            return NOTHING
        if self.mark is None:
            raise Busy("The server cannot read its settings; try again in a moment.") from exc
        # Not with every request: a database that is down is slow to say so.
        self._looked_at = time.monotonic()
        return self.mark


def has_no_tables() -> bool:
    """Whether the site is not migrated yet; a database that cannot be asked says nothing."""
    connection = connections[_alias()]
    try:
        return tables.Component._meta.db_table not in connection.introspection.table_names()
    except Error:
        return False


@cache
def _question(alias: str) -> tuple[str, Any]:
    """What is asked of the database, compiled once: that takes ten times as long as the answer."""
    found = tables.Topic._default_manager.using(alias).filter(pk=MANAGED.digest)
    query: Any = found.values_list("version", "changed_at").query
    sql, parameters = query.get_compiler(alias).as_sql()
    return sql, parameters


def _alias() -> str:
    return router.db_for_write(tables.Topic)


def is_in_transaction() -> bool:
    """Whether this thread is in a transaction of the database that has the rows."""
    # To ask a connection by its alias makes one, for each task on an event loop anew.
    entered = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    return bool(entered) and _alias() in entered


freshness = Freshness()


# What a server offers -----------------------------------------------------------------------------

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
                return read()
        with self._lock:
            known, decisions = self._known
            if mark == known:
                return decisions
            # Read after the mark was: what changed in between is read once more.
            decisions = read()
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
    """As its owner says, of it and of what it was called formerly: a new name opens nothing."""
    found: C | None = component
    # Its own row comes last, so that its words count.
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
    """Say that something was decided of these lists, once the transaction commits.

    From then on it counts in this process; clients and other processes are notified.

    Each is the name of a server and a list: ``tools``, ``resources`` or ``prompts``. Whoever has
    changed rows that ``read`` reads calls this, with no lists if clients see no
    difference in them. ``changed`` is looked at when the transaction commits.
    """
    # Counted in the same transaction: no process may miss that something was switched off.
    touch([MANAGED])
    transaction.on_commit(partial(_tell, changed), using=router.db_for_write(tables.Server))


def _tell(changed: Iterable[tuple[str, str]]) -> None:
    freshness.forget()
    announce(*(Topic(server, kind) for server, kind in dict.fromkeys(changed)))


# Overrides of a skill -----------------------------------------------------------------------------


def _with_their_skills(
    resources: dict[str, Resource], overrides: Mapping[tuple[str, str], Override]
) -> dict[str, Resource]:
    """Resources, the files of skills among them as narrow as the skills that they belong to.

    A client reads the files of a skill as one.
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
            # Its words are those of its SKILL.md alone.
            found = narrowed(found, replace(said, title="", description=""))
    return found


def is_decided_with_another(component: Component) -> bool:
    """Whether nothing is decided of it alone: a file of a skill that is not its ``SKILL.md``."""
    return isinstance(component, SkillFile) and component.frontmatter is None
