"""The catalog of a server: declared components with the site owner's overrides applied.

``ServerCatalog`` caches the catalog of one server until code or the site owner changes something.
Every change in the admin increments the version of one topic in the database. A process reads that
version at most once a second, and always before it returns a list: a client that was notified of a
change requests the list immediately, perhaps from another process. With ``CONFIRM_SECONDS`` a
version in use is read in the background (``storage.cache``).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args

from django.db import Error, connections, router, transaction
from django.utils.asyncio import async_unsafe

from mcp_django.components.catalog import Catalog
from mcp_django.components.component import SCOPE_PATTERN, Component
from mcp_django.components.resource import (
    READABLE_KINDS,
    SKILL_MD,
    Resource,
    SkillFile,
    parent_directories,
)
from mcp_django.components.tool import ApprovalMode
from mcp_django.conf import Rate, parse_rates
from mcp_django.exceptions import Busy
from mcp_django.overrides.exposures import cached_build
from mcp_django.overrides.override_values import (
    EMPTY_OVERRIDE,
    ExposureSpec,
    Override,
    apply_override,
    build_permissions,
    is_name_list,
    read_exposures,
    restrict_app_pages,
)
from mcp_django.overrides.texts import (
    PromptSpec,
    SkillSpec,
    add_prompts,
    add_skills,
    read_prompts,
    read_skills,
)
from mcp_django.protocol.uritemplate import lower_scheme
from mcp_django.storage.cache import confirm_seconds, keep_confirmed
from mcp_django.storage.databases import tables
from mcp_django.storage.pubsub import publish
from mcp_django.storage.statements import CompiledQuery
from mcp_django.storage.versions import OVERRIDES, TopicKey, increment_versions
from mcp_django.tenants import current_tenant, of_tenant, thread_context

if TYPE_CHECKING:
    from mcp_django.components.registry import Registrar

logger = logging.getLogger("mcp_django")

Row: TypeAlias = Mapping[str, Any]
"""The columns of a row."""

KEY = ("server", "kind", "key")
OVERRIDE_COLUMNS = ("is_enabled", "title", "groups", "permissions", "rate")
COMPONENT_OVERRIDE_COLUMNS = ("description", "scopes", "approval")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOverrides:
    """The overrides and additions that the admin makes to one server."""

    is_enabled: bool = True
    title: str = ""
    instructions: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    overrides: dict[tuple[str, str], Override] = field(default_factory=dict)
    """By kind and key; empty overrides are left out."""
    prompts: tuple[PromptSpec, ...] = ()
    """The prompts that are written in the admin."""
    skills: tuple[SkillSpec, ...] = ()
    """The skills that are written in the admin."""
    exposures: tuple[ExposureSpec, ...] = ()
    """The models and views that are exposed in the admin."""


NO_OVERRIDES = ServerOverrides()


def read_overrides() -> dict[str, ServerOverrides]:
    """Return the admin's overrides and additions by server name; unchanged servers are left out.

    On a site with tenants, they are those of the current tenant.
    """
    component_overrides: dict[str, dict[tuple[str, str], Override]] = defaultdict(dict)
    for row in _rows(tables.Component, *KEY, *OVERRIDE_COLUMNS, *COMPONENT_OVERRIDE_COLUMNS):
        server_name, kind, key = (row[name] for name in KEY)
        override = parse_component_row(row, name=key)
        if override != EMPTY_OVERRIDE:
            component_overrides[server_name][kind, key] = override
    servers = {
        row["name"]: parse_server_row(row, component_overrides.pop(row["name"], {}))
        for row in _rows(tables.Server, "name", "instructions", *OVERRIDE_COLUMNS)
    }
    servers.update(
        {
            name: ServerOverrides(overrides=overrides)
            for name, overrides in component_overrides.items()
        }
    )
    for name, prompts in read_prompts().items():
        servers[name] = replace(servers.get(name, NO_OVERRIDES), prompts=prompts)
    for name, skills in read_skills().items():
        servers[name] = replace(servers.get(name, NO_OVERRIDES), skills=skills)
    for name, exposures in read_exposures().items():
        servers[name] = replace(servers.get(name, NO_OVERRIDES), exposures=exposures)
    return {name: server for name, server in servers.items() if server != NO_OVERRIDES}


def parse_server_row(row: Row, overrides: dict[tuple[str, str], Override]) -> ServerOverrides:
    """Return the overrides in a server row; an invalid row switches the server off."""
    try:
        return ServerOverrides(
            **_parse_common_columns(row), instructions=row["instructions"], overrides=overrides
        )
    except ValueError as exc:
        message = "The server %r is disabled, since its overrides are invalid: %s."
        # The message is sufficient without a traceback.
        logger.error(message, row["name"], exc)  # noqa: TRY400
        return ServerOverrides(is_enabled=False, overrides=overrides)


def parse_component_row(row: Row, *, name: str) -> Override:
    """Return the override in a component row; an invalid row switches the component off."""
    try:
        return Override(
            **_parse_common_columns(row),
            description=row["description"],
            scopes=_parse_names("scope", row["scopes"], SCOPE_PATTERN.fullmatch),
            approval=_check_values(
                "approval", [row["approval"]], get_args(ApprovalMode).__contains__
            )[0],
        )
    except ValueError as exc:
        message = "The component %r is disabled, since its override is invalid: %s."
        logger.error(message, name, exc)  # noqa: TRY400
        return Override(is_enabled=False)


def _parse_common_columns(row: Row) -> dict[str, Any]:
    """Return the overrides that servers and components have in common.

    Raises:
        ValueError: the row has invalid data, which the admin cannot have written.
    """
    return {
        "is_enabled": row["is_enabled"],
        "title": row["title"],
        "groups": _parse_names("group", row["groups"], bool),
        "permissions": _parse_names(
            "codename", row["permissions"], lambda codename: codename.count(".") == 1
        ),
        "rates": parse_rates(row["rate"]),
    }


def _parse_names(what: str, value: Any, is_valid: Callable[[str], Any]) -> tuple[str, ...]:
    # Invalid data must not be read as an empty list, which would give every user access.
    if not is_name_list(value):
        raise ValueError(f"{value!r:.80} is not a list of names, each a {what}")
    return _check_values(what, value, is_valid)


def _check_values(
    what: str, values: Iterable[Any], is_valid: Callable[[str], Any]
) -> tuple[Any, ...]:
    checked_values = tuple(values)
    if wrong := [value for value in checked_values if not is_valid(value)]:
        raise ValueError(f"{wrong[0]!r} is not a valid {what}")
    return checked_values


def _rows(model: Any, *columns: str) -> Any:
    return of_tenant(model, router.db_for_write(model)).values(*columns)


# Whether the known overrides are still current ----------------------------------------------------

FRESH_SECONDS = 1.0

Version: TypeAlias = tuple[int, Any, int]
"""The topic's version, its time of change (an opaque database value, only compared for equality),
and how often this process has reset it."""

NO_TABLES: Version = (0, None, 0)
"""Without a database or its tables, overrides do not exist."""
NEVER_SET = -1
"""No change has been published yet; rows may still exist, for example after ``loaddata``."""
UNCOMMITTED: Version = (-2, None, 0)
"""The caller is in a transaction; what it reads may be rolled back, so it is not cached."""


def list_seconds() -> float:
    """Return the maximum age of a list that a client requests; 0 if it must be current.

    Clients are notified of a changed list once no process returns the old list (``list_delay``).
    """
    return min(FRESH_SECONDS, confirm_seconds())


class VersionCache:
    """The newest version of the overrides that this process has seen; thread-safe.

    All tenants share one version, which changes with the overrides of any of them.
    """

    def __init__(self) -> None:
        self.version: Version | None = None
        self.checked_at = -math.inf
        """When the version was read, by ``time.monotonic()``."""
        self.is_pinned = False
        """Whether the database is never queried."""
        self._is_unavailable = False
        self._starts = 0
        self.change_count = 0
        """The number of changes published by this process."""
        self.is_used = False
        """Whether a request used the version since it was read."""

    def is_in_use(self) -> bool:
        """Return whether the version was read recently; an unused version is not read again."""
        return not self.is_pinned and time.monotonic() - self.checked_at < 2 * FRESH_SECONDS

    def confirm(self) -> int:
        """Read the version again if it was used; return the number of queries."""
        if not self.is_used or self.is_pinned:
            return 0
        self._read_version()
        return 1

    def get_version(self, *, is_list: bool = False) -> Version:
        """Return the version, at most ``FRESH_SECONDS`` old, or read now for a list.

        While the database is unavailable, return the last known version.

        Raises:
            Busy: the database is unavailable and no version is known: disabled components must
                stay disabled.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        if not self.is_pinned and is_in_transaction():
            return UNCOMMITTED
        version = None if is_list and not self.is_pinned else self.fresh_version()
        if version is None:
            return self._read_version()
        self.is_used = True
        return version

    def _read_version(self) -> Version:
        began, count = time.monotonic(), self.change_count
        try:
            version = self._query_version()
        except Error as exc:
            if not self._is_unavailable:
                logger.warning("Cannot load the overrides of the admin (%s).", exc)
            self._is_unavailable = True
            if self.version is None and has_no_tables():
                # Overrides do not exist yet. Checked again each time, since the site may be
                # migrated.
                return NO_TABLES
            if self.version is None:
                message = "The server cannot read its settings; try again in a moment."
                raise Busy(message) from exc
            # Do not retry with every request: a database that is down can be slow to fail.
            self.checked_at = time.monotonic()
            return self.version
        self._is_unavailable = False
        self.version, self.checked_at, self.is_used = version, began, False
        if count != self.change_count:
            # The answer may lack a change that this process made in the meantime.
            self.expire()
        keep_confirmed(self)
        return version

    def expire(self) -> None:
        """Query the version again at the next use."""
        self.checked_at = -math.inf

    def reset(self) -> None:
        """Query the version and reload the overrides at the next use; for tests."""
        self.expire()
        self.version = None
        self._starts += 1

    def record_change(self) -> None:
        """Query the version at the next use, since this process has published a change."""
        # In this order: another thread may just have read the version.
        self.change_count += 1
        self.expire()
        self.is_pinned = False

    def pin(self) -> None:
        """Assume that overrides do not exist, without queries; for tests."""
        self.version, self.is_pinned = NO_TABLES, True

    def fresh_version(self, *, is_list: bool = False) -> Version | None:
        """Return the version if it is at most ``FRESH_SECONDS`` old; else ``None``.

        With ``is_list``, it is at most as old as a list that a client requests may be.
        """
        fresh = list_seconds() if is_list else FRESH_SECONDS
        is_young = self.is_pinned or time.monotonic() - self.checked_at < fresh
        return self.version if is_young else None

    def _query_version(self) -> Version:
        connection = connections[_alias()]
        if connection.settings_dict["ENGINE"] == "django.db.backends.dummy":
            # A site without a database has no overrides.
            return NO_TABLES
        version, at = _version_query.first(connection.alias) or (NEVER_SET, None)
        return version, at, self._starts


def has_no_tables() -> bool:
    """Return whether the tables are missing; false if the database is unavailable.

    Always false on a site with tenants: in the schema of a tenant, Django lists only the tables of
    that schema.
    """
    if thread_context() is not None:
        return False
    connection = connections[_alias()]
    try:
        return tables.Component._meta.db_table not in connection.introspection.table_names()
    except Error:
        return False


_version_query = CompiledQuery(
    lambda alias: (
        tables.Topic._default_manager.using(alias)
        .filter(pk=OVERRIDES.digest)
        .values_list("version", "changed_at")
    )
)


def _alias() -> str:
    return router.db_for_write(tables.Topic)


def is_in_transaction() -> bool:
    """Return whether this thread is in a transaction of the database with the overrides."""
    # Looking up a connection by alias would create one, for each task on an event loop.
    aliases = [
        connection.alias
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block
    ]
    return bool(aliases) and _alias() in aliases


override_version = VersionCache()


# The catalog of a server --------------------------------------------------------------------------

C = TypeVar("C", bound=Component)


class OverrideCache:
    """A tenant's overrides of all servers, read once for each version; thread-safe."""

    def __init__(self) -> None:
        self._known: tuple[Version, Mapping[str, ServerOverrides]] = NO_TABLES, {}
        self._lock = threading.Lock()

    def overrides_at(self, version: Version) -> Mapping[str, ServerOverrides]:
        """Return the overrides by server name, at least as new as the version.

        Raises:
            DatabaseError: they cannot be read.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        overrides = self.known_overrides(version)
        return self._read(version) if overrides is None else overrides

    def known_overrides(self, version: Version) -> Mapping[str, ServerOverrides] | None:
        """Return the overrides of this version if they were read already; else ``None``."""
        if version == NO_TABLES:
            return {}
        known_version, overrides = self._known
        return overrides if version == known_version else None

    # An event loop must also not wait for the lock while another thread reads.
    @async_unsafe
    def _read(self, version: Version) -> Mapping[str, ServerOverrides]:
        if version == UNCOMMITTED:
            with transaction.atomic(using=router.db_for_write(tables.Component)):
                return read_overrides()
        with self._lock:
            known_version, overrides = self._known
            if version == known_version:
                return overrides
            # Read after the version, so a change in between only causes another read.
            overrides = read_overrides()
            self._known = version, overrides
            return overrides


class Overrides:
    """The overrides and additions of a tenant on one server, and the resulting catalog."""

    def __init__(self, server: Registrar, tenant: str = "") -> None:
        self._server = server
        self._is_of_tenant = bool(tenant)
        self._cache = _tenant_cache(tenant) if tenant else override_cache
        self._seen: Version | None = None
        self._decisions = NO_OVERRIDES
        self._built: tuple[Any, Catalog] | None = None

    def refresh(self, *, is_list: bool = False) -> None:
        """Update the catalog if it is older than a second, or in any case for a list.

        Raises:
            Busy: the database is unavailable, and no overrides are known.
            SynchronousOnlyOperation: a query is needed on an event loop.
        """
        version = override_version.get_version(is_list=is_list)
        if version == self._seen != UNCOMMITTED:
            return
        try:
            self._set_overrides(
                self._cache.overrides_at(version).get(self._server.name, NO_OVERRIDES), version
            )
        except Error as exc:
            if has_no_tables():
                self.reset()
            elif self._seen is None:
                message = "The server cannot read its settings; try again in a moment."
                raise Busy(message) from exc
            else:
                message = "Cannot load the overrides of the server %s (%s)."
                logger.warning(message, self._server.name, exc)

    def fresh_catalog(self, *, is_list: bool = False) -> Catalog | None:
        """Return the catalog if it is known to be at most a second old; else ``None``.

        With ``is_list``, it is at most as old as a list that a client requests may be
        (``list_seconds``).

        For an event loop: it never queries the database. A transaction of this thread is not
        considered, since requests on an event loop are not part of one.
        """
        version = override_version.fresh_version(is_list=is_list)
        if version is None:
            return None
        override_version.is_used = True
        if version != self._seen:
            overrides = self._cache.known_overrides(version)
            if overrides is None:
                return None
            self._set_overrides(overrides.get(self._server.name, NO_OVERRIDES), version)
        built = self._built
        if built is None or built[0] != (self._server.registry.generation, self._decisions):
            # Building a catalog takes too long for an event loop.
            return None
        return built[1]

    def _refresh_first(self) -> None:
        """Load the overrides of a tenant, since this process may have dropped them."""
        if self._is_of_tenant and self._seen is None:
            self.refresh()

    def reset(self) -> None:
        """Assume that overrides do not exist, until the next ``refresh``."""
        self._set_overrides(NO_OVERRIDES, None)

    def _set_overrides(self, server_overrides: ServerOverrides, version: Version | None) -> None:
        # Equal overrides are not replaced, so that the cached catalog stays valid.
        if server_overrides != self._decisions:
            self._decisions = server_overrides
        self._seen = version

    @property
    def declared_catalog(self) -> Catalog:
        """The catalog before overrides, as of the last ``refresh``."""
        self._refresh_first()
        return build_declared_catalog(self._server, self._decisions)

    @property
    def catalog(self) -> Catalog:
        """The catalog, as of the last ``refresh``; before the first one, what code declares.

        The admission calls ``refresh`` before any request is served.
        """
        self._refresh_first()
        # Read once: another thread may replace the overrides in the meantime.
        generation, server_overrides = self._server.registry.generation, self._decisions
        built = self._built
        if built is None or built[0][0] != generation or built[0][1] is not server_overrides:
            state = (generation, server_overrides)
            built = self._built = (state, build_catalog(self._server, server_overrides))
        return built[1]


def build_declared_catalog(server: Registrar, server_overrides: ServerOverrides) -> Catalog:
    """Return the catalog before overrides: what code declares and what the admin adds."""
    registry = server.registry
    specs = [
        spec
        for spec in server_overrides.prompts
        if registry.find_by_name("prompt", spec.name) is None
    ]
    prompts, completions = add_prompts(registry.prompts, registry.completions, specs)
    tools, templates = dict(registry.tools), dict(registry.templates)
    resources = add_skills(registry.resources, server_overrides.skills)
    if server_overrides.exposures:
        # Declared names take precedence.
        exposed = cached_build(server, server.name, server_overrides.exposures)
        tools = {**exposed.table("tool"), **tools}
        resources = {**exposed.table("resource"), **resources}
        templates = {**exposed.table("resource template"), **templates}
        prompts = {**exposed.table("prompt"), **prompts}
        completions = {**exposed.completions(), **completions}
    return Catalog(
        tools=tools,
        resources=resources,
        templates=templates,
        prompts=prompts,
        completions=completions,
    )


def build_catalog(server: Registrar, server_overrides: ServerOverrides) -> Catalog:
    """Return the catalog with the overrides applied."""
    declared_catalog = build_declared_catalog(server, server_overrides)
    # Overrides of URIs whose schemes were written with capitals.
    capitals: dict[tuple[str, str], list[Override]] = defaultdict(list)
    for (kind, key), override in server_overrides.overrides.items():
        if kind in READABLE_KINDS and key != lower_scheme(key):
            capitals[kind, lower_scheme(key)].append(override)

    def with_overrides(table: Mapping[str, C]) -> dict[str, C]:
        components: dict[str, C] = {}
        for key, component in table.items():
            overridden: C | None = component
            # With those of former names, since renaming must not widen access. The row of the
            # current name comes last, so that its texts take precedence.
            for named in ((component.kind, name) for name in (*component.aliases, component.key)):
                override = server_overrides.overrides.get(named, EMPTY_OVERRIDE)
                for applied in (*capitals.get(named, ()), override):
                    overridden = None if overridden is None else apply_override(overridden, applied)
            if overridden is not None:
                components[key] = overridden
        return components

    tools = with_overrides(declared_catalog.tools)
    resources = _restrict_skill_files(
        with_overrides(declared_catalog.resources), server_overrides.overrides
    )
    return Catalog(
        tools=tools,
        resources=restrict_app_pages(resources, tools),
        templates=with_overrides(declared_catalog.templates),
        prompts=with_overrides(declared_catalog.prompts),
        completions=declared_catalog.completions,
        declared_catalog=declared_catalog,
        is_enabled=server_overrides.is_enabled,
        extra_permissions=build_permissions(server_overrides.groups, server_overrides.permissions),
        rates=server_overrides.rates,
        title=server_overrides.title,
        instructions=server_overrides.instructions,
    )


override_cache = OverrideCache()

MAX_TENANTS = 1000
"""How many tenants' overrides a process keeps; those that were used least recently are dropped."""


@lru_cache(maxsize=MAX_TENANTS)
def _tenant_cache(tenant: str) -> OverrideCache:
    return OverrideCache()


LIST_BY_KIND = {
    "tool": "tools",
    "resource": "resources",
    "resource template": "resources",
    "prompt": "prompts",
}


def publish_change(changed: Iterable[tuple[str, str]]) -> None:
    """Publish a change of overrides or of these lists when the transaction commits.

    The change then applies in this process, and clients and other processes are notified.

    The change applies to the current tenant.

    Each member of ``changed`` is the name of a server and a list: ``tools``, ``resources`` or
    ``prompts``. Code that changes rows that ``read_overrides`` reads must call this, without lists
    if the lists stay the same. ``changed`` is evaluated when the transaction commits.
    """
    # The version changes in the same transaction, so that no process misses a disabled component.
    increment_versions([OVERRIDES])
    tenant = current_tenant()

    def notify() -> None:
        override_version.record_change()
        lists = dict.fromkeys(changed)
        publish(*(TopicKey(server, kind, tenant=tenant) for server, kind in lists))

    transaction.on_commit(notify, using=router.db_for_write(tables.Server))


def _restrict_skill_files(
    resources: dict[str, Resource], overrides: Mapping[tuple[str, str], Override]
) -> dict[str, Resource]:
    """Apply the override of a skill's ``SKILL.md`` to all files of the skill.

    Clients treat the files of a skill as a unit.
    """
    if not overrides or not any(isinstance(resource, SkillFile) for resource in resources.values()):
        return resources
    restricted: dict[str, Resource] = {}
    for key, resource in resources.items():
        overridden: Resource | None = resource
        parents = parent_directories(resource.uri) if isinstance(resource, SkillFile) else ()
        for parent in parents:
            skill = f"{parent}/{SKILL_MD}"
            override = overrides.get((resource.kind, skill))
            if overridden is not None and override is not None and skill != resource.uri:
                # Title and description apply only to the SKILL.md itself.
                overridden = apply_override(overridden, replace(override, title="", description=""))
        if overridden is not None:
            restricted[key] = overridden
    return restricted


def shares_skill_override(component: Component) -> bool:
    """Return whether a component has no override of its own: a skill's file except ``SKILL.md``."""
    return isinstance(component, SkillFile) and component.frontmatter is None
