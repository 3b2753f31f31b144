"""System checks of the site's declarations: servers, permissions, components and templates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router
from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template

from mcp_django.auth.permissions import AllowAny, find_codenames, parse_permissions
from mcp_django.checks.site import DISTRIBUTION, Problem, itself, system_check
from mcp_django.components.component import Component, Prompt
from mcp_django.components.resource import ReadableComponent
from mcp_django.components.tool import APP_MIME_TYPE, UI, Tool
from mcp_django.conf import docs_url
from mcp_django.execution.handlers.listing import max_page_bytes
from mcp_django.execution.handlers.prompts import describe as describe_prompt
from mcp_django.execution.handlers.resources import describe_template
from mcp_django.execution.handlers.tools import describe_tool
from mcp_django.execution.query_limits import ENFORCEMENT_BY_VENDOR
from mcp_django.integrations.models.write_forms import possibly_missing_columns
from mcp_django.overrides.state import shares_skill_override
from mcp_django.protocol.projection import encode_entries
from mcp_django.protocol.revisions import LATEST
from mcp_django.protocol.text import nearest
from mcp_django.schema.compiled import (
    JSONSchemaArguments,
    JSONSchemaOutput,
    SerializerOutput,
    validation_engine,
)
from mcp_django.schema.structure import walk
from mcp_django.server import MCPServer, all_servers, known_scopes
from mcp_django.storage.databases import tables


def _components(server: MCPServer) -> Iterable[Component]:
    return server.registry


def _tools(server: MCPServer) -> Iterable[Tool]:
    return server.tools.values()


@system_check(Error, "mcp_django.E004")
def check_server_names() -> Iterator[Problem]:
    """E004: two servers have the same name, and so the same URL namespace."""
    names = [server.name for server in all_servers()]
    for name in sorted({name for name in names if names.count(name) > 1}):
        hint = "Give each MCPServer a unique name."
        yield f"There are {names.count(name)} servers named {name!r}.", hint


def check_permissions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E005: a permission is invalid. E006: a component allows what its server does not."""
    messages: list[CheckMessage] = []
    hint = (
        "A component can only restrict access further: use AllowAny on the server, or remove it "
        "from the component."
    )
    for server in all_servers():
        try:
            closed = not all(
                isinstance(permission, AllowAny)
                for permission in parse_permissions(server.permission)
            )
        except ImproperlyConfigured as exc:
            messages.append(Error(str(exc), obj=server, id="mcp_django.E005"))
            continue
        for component in server.registry:
            try:
                opens = any(
                    isinstance(permission, AllowAny)
                    for permission in parse_permissions(component.permission)
                )
            except ImproperlyConfigured as exc:
                text = f"{component}: {exc}"
                messages.append(Error(text, obj=server, id="mcp_django.E005"))
                continue
            if closed and opens:
                text = f"The {component} has the permission AllowAny, but its server does not."
                messages.append(Error(text, hint=hint, obj=server, id="mcp_django.E006"))
    return messages


@system_check(checks.Warning, "mcp_django.W020", declarations=itself)
def check_open_servers(server: MCPServer) -> Iterator[Problem]:
    """W020: anonymous callers are not rate limited; checked with ``--deploy``."""
    if not server.rates_in_code and any(True for _ in server.registry) and _is_open(server):
        what = "allows anonymous access (AllowAny) and has no rate limit"
        hint = (
            "Set MCP_DJANGO['RATE'] or MCPServer(rate=…), for example to '60/m'. Anonymous callers "
            f"are counted by address. See {docs_url('topics/limits')}."
        )
        yield f"The server {server.name!r} {what}.", hint


@system_check(checks.Warning, "mcp_django.W022")
def check_rate_cache() -> Iterator[Problem]:
    """W022: rates are counted in each process by itself; checked with ``--deploy``."""
    cache = str(settings.CACHES.get("default", {}).get("BACKEND", ""))
    if not cache.endswith(("LocMemCache", "DummyCache")):
        return
    limited = [
        server.name
        for server in all_servers()
        if server.rates_in_code or any(component.rates for component in server.declared_catalog)
    ]
    if limited:
        names = ", ".join(map(repr, limited))
        what = f"The rates of {names} are counted in CACHES['default'], which is {cache}"
        hint = (
            "Use a cache that all processes share, such as django.core.cache.backends.redis."
            f"RedisCache. See {docs_url('topics/limits')}."
        )
        yield f"{what}: every process counts by itself, or not at all.", hint


def _is_open(server: MCPServer) -> bool:
    try:
        return all(
            isinstance(permission, AllowAny) for permission in parse_permissions(server.permission)
        )
    except ImproperlyConfigured:  # reported by E005
        return False


@system_check(checks.Warning, "mcp_django.W007", declarations=itself)
def check_codenames(server: MCPServer) -> Iterator[Problem]:
    """W007: no model defines a required permission, so only superusers have it."""
    codenames = {
        f"{model._meta.app_label}.{codename}"
        for model in apps.get_models()
        for codename in (
            *(f"{action}_{model._meta.model_name}" for action in model._meta.default_permissions),
            *(codename for codename, _ in model._meta.permissions),
        )
    }
    requirements: list[tuple[object, Any]] = [
        (f"server {server.name!r}", server.permission),
        *((component, component.permission) for component in server.registry),
    ]
    for what, required in requirements:
        for codename in find_codenames(required):
            if codename not in codenames:
                problem = f"requires {codename!r}, but no installed model defines this permission"
                close = nearest(codename, codenames)
                hint = f"Did you mean {close!r}?" if close else "Write 'app_label.codename'."
                yield f"The {what} {problem}.", hint


@system_check(checks.Warning, "mcp_django.W001", declarations=_components)
def check_descriptions(component: Component) -> Iterator[Problem]:
    """W001: a component has no description, so models have to guess its purpose."""
    # The files of a skill are described in the skill.
    if not component.description and not shares_skill_override(component):
        hint = "Write a docstring, or pass description=…."
        yield f"The {component} has no description.", hint


@system_check(checks.Warning, "mcp_django.W002", declarations=_components)
def check_async_transactions(component: Component) -> Iterator[Problem]:
    """W002: an async function is declared atomic, which has no effect."""
    if component.atomic and component.function.is_async:
        yield (
            f"The {component} is atomic, but its function is async, so no transaction is opened.",
            "Make the function synchronous, or use transaction.atomic() where it writes.",
        )


@system_check(checks.Warning, "mcp_django.W025")
def check_read_only_databases() -> Iterator[Problem]:
    """W025: read-only components are declared, and a database does not reject their writes."""
    limited = [
        str(component)
        for server in all_servers()
        for component in server.declared_catalog
        if component.has_read_only_limits
    ]
    for alias in connections if limited else ():
        if (vendor := connections[alias].vendor) not in ENFORCEMENT_BY_VENDOR:
            hint = (
                "Test that such components only read, or let them use a user of the database who "
                f"may only read. See {docs_url('topics/limits')}."
            )
            what = "does not reject what a read-only component writes, such as the"
            yield f"The database {alias!r} ({vendor}) {what} {limited[0]}.", hint


@system_check(Error, "mcp_django.E007", declarations=lambda server: server.prompts.values())
def check_prompt_templates(prompt: Prompt) -> Iterator[Problem]:
    """E007: the Django template of a prompt does not exist or is invalid."""
    if problem := _template_problem(prompt.template):
        yield f"The template {prompt.template!r} of the {prompt} {problem}.", TEMPLATE_HINT


TEMPLATE_HINT = "Create it in a templates directory of an installed app, or fix the error."


def _template_problem(name: str | None) -> str:
    try:
        if name is not None:
            get_template(name)
    except TemplateDoesNotExist:
        return "does not exist"
    except TemplateSyntaxError as exc:
        return f"is invalid: {exc}"
    return ""


@system_check(checks.Warning, "mcp_django.W009", declarations=_tools)
def check_validation(tool: Tool) -> Iterator[Problem]:
    """W009: without a library, values are not validated against hand-written schemas."""
    output = tool.output
    is_by_hand = isinstance(tool.arguments, JSONSchemaArguments) or (
        isinstance(output, JSONSchemaOutput) and not isinstance(output, SerializerOutput)
    )
    if is_by_hand and validation_engine() is None:
        yield (
            f"Only argument names are validated against the hand-written schema of the {tool}.",
            f"pip install jsonschema-rs, or the extra [schema] of {DISTRIBUTION}.",
        )


@system_check(Error, "mcp_django.E009", declarations=_components)
def check_views(component: Component) -> Iterator[Problem]:
    """E009: a view is not in the URLconf, or its URL lacks variables that the component needs."""
    # Recognized by its module, since an isinstance() check would import REST framework.
    source: Any = component.callable
    if not type(source).__module__.startswith("mcp_django.integrations."):
        return
    if hasattr(source, "configuration_problem") and (problem := source.configuration_problem()):
        hint = (
            "Change the registration or the URLconf. For a view that only the URLconf of one host "
            "contains, pass urlconf='…'."
        )
        yield f"The {component}: {problem}", hint


def check_left_out(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W026: a form or serializer of the site cannot be created, so a tool is left out of lists.

    Errors of the database are reported by ``check --database`` and ``migrate`` alone.
    """
    hint = (
        "Make it possible to create the form or the serializer without a caller (the request is "
        "that of a superuser, and view.swagger_fake_view is true), or run migrate if tables are "
        "missing. It is tried again while the site runs."
    )
    return [
        checks.Warning(
            f"The {component} is left out of lists: {problem}",
            hint=hint,
            obj=server,
            id="mcp_django.W026",
        )
        for server in all_servers()
        for component in server.registry
        if (problem := component.problem)
        and (
            databases
            or not isinstance(
                getattr(getattr(component, "arguments", None), "exception", None), DatabaseError
            )
        )
    ]


@system_check(
    checks.Info, "mcp_django.I001", declarations=lambda server: server.registry.declarations
)
def check_admin_sources(declaration: Any) -> Iterator[Problem]:
    """I001: some options of a ``ModelAdmin`` are left out of its tools."""
    hint = "Add it to fields= of register_admin() if callers may see it, or ignore this."
    for reason in getattr(declaration, "left_out", ()):
        yield f"{declaration}: {reason}.", hint


@system_check(
    checks.Info, "mcp_django.I003", declarations=lambda server: server.registry.declarations
)
def check_missing_columns(declaration: Any) -> Iterator[Problem]:
    """I003: create does not set columns that the model requires, unless it sets them itself."""
    if "create" not in getattr(declaration, "tools", ()):
        return
    if names := possibly_missing_columns(declaration):
        hint = (
            "If save() or clean() of the model sets it, ignore this. Otherwise each call fails: "
            "set it in perform_create, add it to write_fields, or remove 'create' from tools."
        )
        listed = ", ".join(map(repr, names))
        model = declaration.model.__name__
        yield f"{declaration}: create does not set {listed}, which {model} requires.", hint


@system_check(checks.Warning, "mcp_django.W027")
def check_previews() -> Iterator[Problem]:
    """W027: previews of writes reach a search index or a cache outside of the database."""
    if not any(tool.dry_run is not None for server in all_servers() for tool in _tools(server)):
        return
    for what, is_used in _OUTSIDE.items():
        if is_used():
            hint = (
                "Set preview = False on the classes of models that it indexes, or let it work in "
                "transaction.on_commit or in a task."
            )
            yield f"A preview saves and rolls back, but {what} does not roll back.", hint


def _has_processor(app: str, setting: str, default: str = "") -> bool:
    """Return whether an app is installed whose signal processor updates its index immediately."""
    processor = str(getattr(settings, setting, default))
    return apps.is_installed(app) and "realtime" in processor.lower()


_OUTSIDE: dict[str, Callable[[], bool]] = {
    "the index of django-haystack": lambda: _has_processor("haystack", "HAYSTACK_SIGNAL_PROCESSOR"),
    "the index of django-elasticsearch-dsl": lambda: (
        getattr(settings, "ELASTICSEARCH_DSL_AUTOSYNC", True)
        and _has_processor(
            "django_elasticsearch_dsl",
            "ELASTICSEARCH_DSL_SIGNAL_PROCESSOR",
            "RealTimeSignalProcessor",
        )
    ),
    "the index of django-opensearch-dsl": lambda: (
        getattr(settings, "OPENSEARCH_DSL_AUTOSYNC", True)
        and _has_processor(
            "django_opensearch_dsl", "OPENSEARCH_DSL_SIGNAL_PROCESSOR", "RealTimeSignalProcessor"
        )
    ),
    "the index of algoliasearch-django": lambda: apps.is_installed("algoliasearch_django"),
    "Wagtail's search service": lambda: (
        apps.is_installed("wagtail.search")
        and any(
            ".database" not in str(backend.get("BACKEND", "")) and backend.get("AUTO_UPDATE", True)
            for backend in getattr(settings, "WAGTAILSEARCH_BACKENDS", {}).values()
        )
    ),
    "Wagtail's front-end cache": lambda: (
        apps.is_installed("wagtail.contrib.frontend_cache")
        and bool(getattr(settings, "WAGTAILFRONTENDCACHE", {}))
    ),
}
"""Whether a service is updated as soon as an object is saved, by its name in the message."""


@system_check(checks.Info, "mcp_django.I002", declarations=_components)
def check_uri_schemes(component: Component) -> Iterator[Problem]:
    """I002: a resource has an http(s) URI, which hosts may fetch directly from the web."""
    is_readable = isinstance(component, ReadableComponent)
    if is_readable and component.key.lower().startswith(("http:", "https:")):
        what = "which hosts may fetch directly, bypassing this server and its permissions"
        hint = (
            "Use https only for resources that are public on the web; otherwise use a custom "
            "scheme such as 'shop://'."
        )
        yield f"The {component} has the URI {component.key!r}, {what}.", hint


def check_overrides(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W015: an override in the admin requires a group, permission or scope that does not exist.

    It queries the database, so it runs only with ``check --database``.
    """
    if router.db_for_read(tables.Component) not in (databases or ()):
        return []
    try:
        overridden = [
            *tables.Server._default_manager.all(),
            *tables.Component._default_manager.filter(missing_since=None),
        ]
        names_by_column = {
            "groups": _group_names(),
            "permissions": _stored_permissions(),
            "scopes": known_scopes(),
        }
    except DatabaseError:
        # The tables do not exist yet; ``migrate`` runs this check first.
        return []
    return [
        checks.Warning(
            f"The {row._meta.verbose_name} {row} is restricted in the admin to {column} "
            f"that do not exist: {', '.join(unknown)}.",
            hint="Only superusers have an unknown group or permission, and no token has an "
            "unknown scope. Choose existing ones in the admin.",
            obj=row,
            id="mcp_django.W015",
        )
        for row in overridden
        for column, names in names_by_column.items()
        if (unknown := sorted(set(getattr(row, column, ())) - names))
    ]


def _group_names() -> set[str]:
    if not apps.is_installed("django.contrib.auth"):
        return set()
    from django.contrib.auth.models import Group

    return set(Group.objects.values_list("name", flat=True))


def _stored_permissions() -> set[str]:
    if not apps.is_installed("django.contrib.auth"):
        return set()
    from django.contrib.auth.models import Permission

    rows = Permission.objects.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in rows}


# Hosts put the server's name before it, and accept 60 to 64 characters together.
LONGEST_NAME = 40


@system_check(checks.Warning, "mcp_django.W023", declarations=_tools)
def check_tool_names(tool: Tool) -> Iterator[Problem]:
    """W023: the name of a tool is longer than some hosts accept with their prefix."""
    if len(tool.name) > LONGEST_NAME:
        page = docs_url("topics/tools#name-description-and-annotations")
        hint = (
            "Some hosts leave out tools with long names, or cut the names. Choose one of at most "
            f"{LONGEST_NAME} characters. See {page}."
        )
        yield f"The name of the {tool} has {len(tool.name)} characters.", hint


@system_check(checks.Warning, "mcp_django.W024", declarations=itself)
def check_lists(server: MCPServer) -> Iterator[Problem]:
    """W024: a list needs a second page, which several clients do not read."""
    catalog, most = server.declared_catalog, max_page_bytes()
    described = {
        "tools": map(describe_tool, catalog.tools.values()),
        "prompts": map(describe_prompt, catalog.prompts.values()),
        "resource templates": map(describe_template, catalog.templates.values()),
    }
    for name, entries in described.items():
        encoded, count = encode_entries("", entries, LATEST, max_bytes=math.inf)
        size = len(bytes(encoded)) if isinstance(encoded, msgspec.Raw) else 0
        if size > most and count > 1:
            hint = (
                "Some clients read only the first page and do not show the rest. Register them on "
                "several servers, or shorten descriptions and schemas; if your clients accept "
                f"larger events, raise MCP_DJANGO['MAX_EVENT_BYTES']. See {docs_url('ref/checks')}."
            )
            what = f"The list of the {count} {name} of the server {server.name!r} has {size} bytes"
            yield f"{what}; a page has at most {most}.", hint


@system_check(checks.Warning, "mcp_django.W017", declarations=_components)
def check_sensitive(component: Component) -> Iterator[Problem]:
    """W017: ``sensitive`` names an unknown argument, so nothing is hidden."""
    source: Any = getattr(component, "arguments", None)
    parts = [part for _path, part in walk(source.json_schema if source is not None else {})]
    if any(part.get("additionalProperties") not in (None, False) for part in parts):
        # Undeclared names are allowed.
        return
    names = {name for part in parts for name in part.get("properties", ())}
    hint = "Write the name as in the input schema (the alias, if the argument has one)."
    for name in component.sensitive:
        if name not in names:
            yield f"The {component} names {name!r} in sensitive, but has no such argument.", hint


# MCP Apps -----------------------------------------------------------------------------------------

# Elements that load a URL into the page; a link that the user follows does not.
LOADING_ELEMENT = re.compile(
    r"""<(?P<tag>script|img|link|iframe|source|video|audio|embed)\b[^>]*?\s(?:src|href)\s*=\s*["']?"""
    r"""(?P<url>(?:https?:)?//[^\s"'>{]+)""",
    re.IGNORECASE,
)


def check_apps(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """E015: invalid template. E016: ``uri`` without an app page. W018: blocked files."""
    return [
        problem
        for server in all_servers()
        for tool in _tools(server)
        if tool.ui is not None
        for problem in _ui_problems(server, tool, tool.ui)
    ]


def _ui_problems(server: MCPServer, tool: Tool, ui: UI) -> Iterator[CheckMessage]:
    if not ui.template:
        match = server.declared_catalog.find_resource(ui.uri) if ui.uri else None
        if ui.uri and (match is None or match[0].mime_type != APP_MIME_TYPE):
            problem = "is not an app page" if match is not None else "does not exist"
            yield Error(
                f"The {tool} uses the MCP App {ui.uri}, which {problem}.",
                hint="Pass a template instead, write the URI of another tool's app page on this "
                f"server, or declare a resource with this URI and mime_type={APP_MIME_TYPE!r}.",
                obj=server,
                id="mcp_django.E016",
            )
        return
    problem = _template_problem(ui.template)
    if problem:
        yield Error(
            f"The template {ui.template!r} of the MCP App of the {tool} {problem}.",
            hint=TEMPLATE_HINT,
            obj=server,
            id="mcp_django.E015",
        )
        return
    # Only Django's own template engine keeps the source.
    source = str(getattr(getattr(get_template(ui.template), "template", None), "source", ""))
    for origin, option in sorted(_undeclared_origins(source, ui)):
        yield checks.Warning(
            f"The MCP App of the {tool} loads files from {origin}, which hosts block.",
            hint=f"Write UI({ui.template!r}, {option}=[{origin!r}]), or use a static file of the "
            "site with {% static %}.",
            obj=server,
            id="mcp_django.W018",
        )


def _undeclared_origins(source: str, ui: UI) -> set[tuple[str, str]]:
    """Return the origins that a page uses but does not declare, with the option to declare them."""
    origins = set()
    for match in LOADING_ELEMENT.finditer(source):
        option = "frames" if match["tag"].lower() == "iframe" else "resources"
        parts = urlsplit(match["url"])
        scheme, host = parts.scheme or "https", parts.netloc
        patterns = [pattern.partition("://") for pattern in getattr(ui, option)]
        is_declared = any(
            scheme == of_scheme
            and (host == of_host or (of_host.startswith("*.") and host.endswith(of_host[1:])))
            for of_scheme, _, of_host in patterns
        )
        origin = f"{scheme}://{host}"
        if not is_declared and not str(settings.STATIC_URL).startswith(origin):
            origins.add((origin, option))
    return origins
