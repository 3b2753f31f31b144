"""``MCPServer``: one MCP server of the site, with its components, its permission and its URLs.

The name of a server is also its name in the admin. ``registry`` has the components that code
declares; ``catalog`` is the catalog that callers get, with the site owner's overrides applied.
``mcp`` is the default server; it is created when it is first used, with the class that the app
configuration names.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, Self, cast

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, re_path
from django.utils.functional import LazyObject
from django.utils.module_loading import import_string

from mcp_django.auth import endpoints
from mcp_django.auth.challenges import OFFLINE_ACCESS
from mcp_django.auth.permissions import IsAuthenticated
from mcp_django.components.catalog import Catalog
from mcp_django.components.component import SCOPE_PATTERN, Component, Prompt
from mcp_django.components.registry import Registry
from mcp_django.components.resource import Resource, ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.conf import Rate, get_settings, parse_rates
from mcp_django.execution.call import Call
from mcp_django.execution.handlers.listing import public_icons
from mcp_django.execution.handlers.resources import read_contents
from mcp_django.execution.interaction import Interaction
from mcp_django.execution.threads import run_after_commit
from mcp_django.integrations.models.generic import Generic, GenericSet
from mcp_django.integrations.registration import SiteRegistrar
from mcp_django.overrides.state import MAX_TENANTS, Overrides
from mcp_django.protocol.content import Icon, ResourceContents
from mcp_django.storage.pubsub import publish
from mcp_django.storage.versions import TopicKey, list_topic, resource_topic
from mcp_django.tasks import status as task_status
from mcp_django.tenants import current_tenant, thread_context
from mcp_django.transports import site_pages
from mcp_django.transports.asgi_handler import RawASGIMount
from mcp_django.transports.view import EndpointView

SERVER_NAME = re.compile(r"[A-Za-z0-9_.-]+")
ListKind = Literal["tools", "resources", "prompts"]
_servers: weakref.WeakSet[MCPServer] = weakref.WeakSet()


class MCPServer(SiteRegistrar):
    """One MCP server of the site; ``mcp`` is the default one.

    ``permission`` is required of every caller (a permission class, a codename or a list of them);
    anonymous access needs ``AllowAny``. ``auth`` overrides ``MCP_DJANGO["AUTH"]``. ``scopes`` are
    the scopes that an OAuth token needs for any request to this server. With ``generated_scopes``
    the tools of registered models require an additional scope, ``shop:read`` or ``shop:write``,
    with the label of the model's app or the given string as the prefix. ``resource_url`` is the
    URL that tokens are issued for, needed if the URLconf of this site does not contain the
    endpoint. ``page_size`` is the number of resources per page of their list. If more than
    ``generic`` models are registered, one generic set of tools replaces the per-model tools
    (``True``: always, ``False``, the default: never). ``upstream`` names a provider of
    ``OAUTH["UPSTREAM"]`` that users must connect before a client gets a token for this server.
    ``rate`` contains the rate limits of the whole server. ``log_arguments`` adds the values of
    arguments to the call log. ``rate`` and ``log_arguments`` override the settings of the same
    name.

    ``registry`` has the components that code declares, ``overrides`` has the changes of the admin.
    """

    def __init__(
        self,
        name: str = "default",
        *,
        title: str = "",
        version: str = "",
        description: str = "",
        instructions: str = "",
        icons: Sequence[Icon] = (),
        website_url: str = "",
        permission: Any = IsAuthenticated,
        auth: Sequence[str] | None = None,
        scopes: Sequence[str] = ("mcp",),
        generated_scopes: bool | str = False,
        resource_url: str = "",
        page_size: int | None = None,
        generic: bool | int = False,
        upstream: str = "",
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
    ) -> None:
        self.name = name
        self.registry = Registry(name)
        self._overrides = Overrides(self)
        self._overrides_of = lru_cache(maxsize=MAX_TENANTS)(partial(Overrides, self))
        self.generic_tools = GenericSet(self, generic)
        if not SERVER_NAME.fullmatch(name):
            raise ImproperlyConfigured(
                f"{name!r} is not a valid server name; write only the characters A-Z a-z 0-9 _ - . "
                "since it is part of the URL namespace."
            )
        if isinstance(auth, str):
            raise ImproperlyConfigured(f"auth is not a list; write auth=[{auth!r}].")
        if page_size is not None and page_size < 1:
            raise ImproperlyConfigured(f"page_size is {page_size}; write at least 1.")
        self.title = title
        self.version = version
        self.description = description
        self.icons = tuple(icons)
        self.website_url = website_url
        self.permission = permission
        self.upstream = upstream
        self.scopes = self._check_scopes("scopes", scopes)
        self.generated_scopes = generated_scopes
        if generated_scopes:
            self._check_scopes("generated_scopes", [f"{generated_scopes}:read"])
        self.resource_url = resource_url
        if resource_url:
            self._declare_resource_url(resource_url)
        try:
            self._rates = parse_rates(rate)
        except ValueError as exc:
            raise ImproperlyConfigured(f"rate of the server {name!r}: {exc}.") from None
        self._instructions = instructions
        self._log_arguments = log_arguments
        self._auth = auth
        self._page_size = page_size
        _servers.add(self)

    def __repr__(self) -> str:
        return f"<MCPServer {self.name!r}>"

    def _check_scopes(self, option: str, scopes: Sequence[str]) -> tuple[str, ...]:
        if isinstance(scopes, str):
            raise ImproperlyConfigured(f"{option} is not a list; write {option}=[{scopes!r}].")
        for scope in scopes:
            if not SCOPE_PATTERN.fullmatch(str(scope)) or scope == OFFLINE_ACCESS:
                raise ImproperlyConfigured(
                    f"{option} of the server {self.name!r} contains {scope!r}; write printable "
                    f"ASCII without spaces, quotes and \\, and not {OFFLINE_ACCESS}."
                )
        return tuple(scopes)

    def _declare_resource_url(self, url: str) -> None:
        try:
            endpoints.declare_url(url, self)
        except ValueError:
            raise ImproperlyConfigured(
                f"resource_url of the server {self.name!r} is {url!r}; write the absolute URL of "
                "its endpoint, 'https://example.com/mcp', without query and fragment."
            ) from None

    def add(self, component: Component) -> None:
        """Register a component, and the components that it needs.

        These are the page of a tool's MCP App, and ``get_result`` for the first tool with
        ``polling_fallback=True``.

        Raises:
            AlreadyRegistered: a component of this kind has the same name or alias.
        """
        page = self.registry.add(component)
        if page is not None:
            self.add(page)
        if isinstance(component, Tool) and component.polling_fallback:
            task_status.register_get_result(self)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that code declares, by name."""
        return self.registry.tools

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources that code declares, by URI."""
        return self.registry.resources

    @property
    def templates(self) -> Mapping[str, ResourceTemplate]:
        """The resource templates that code declares, by URI template."""
        return self.registry.templates

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts that code declares, by name."""
        return self.registry.prompts

    @property
    def generic(self) -> Generic:
        """The number of models above which one generic set of tools replaces the per-model tools.

        ``True``: always, ``False``, the default: never. It may be set at any time.
        """
        return self.generic_tools.generic

    @generic.setter
    def generic(self, generic: Generic) -> None:
        self.generic_tools.set_option(generic)
        self.generic_tools.update()

    @property
    def overrides(self) -> Overrides:
        """The overrides and the admin-defined components of the current tenant."""
        if thread_context() is None:
            return self._overrides
        tenant = current_tenant()
        return self._overrides_of(tenant) if tenant else self._overrides

    @property
    def catalog(self) -> Catalog:
        """The current catalog: the declared components with the overrides of the admin applied."""
        return self.overrides.catalog

    @property
    def declared_catalog(self) -> Catalog:
        """The catalog without the overrides of components, but with admin-defined components."""
        return self.overrides.declared_catalog

    def refresh(self, *, is_list: bool = False) -> None:
        """Reload the overrides if they may be older than a second, or for a list if outdated.

        Raises:
            Busy: the overrides cannot be loaded, and were never loaded in this process.
        """
        self.overrides.refresh(is_list=is_list)

    def fresh_catalog(self, *, is_list: bool = False) -> Catalog | None:
        """Return the catalog if it is recent enough (``is_list``: for a list), without a query."""
        return self.overrides.fresh_catalog(is_list=is_list)

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rate limits of the whole server, from code and from the admin."""
        return (*self.rates_in_code, *self.catalog.rates)

    @property
    def rates_in_code(self) -> tuple[Rate, ...]:
        """The rate limits of the whole server, without those of the admin."""
        return self._rates or get_settings().rate

    @property
    def log_arguments(self) -> bool:
        """Whether the call log contains the values of arguments."""
        in_code = self._log_arguments
        return get_settings().log_arguments if in_code is None else in_code

    @property
    def unwrapped(self) -> Self:
        """This server, also when called on a wrapper of it in a test."""
        return self

    @property
    def auth(self) -> tuple[str, ...]:
        """The authentication backends, tried in this order."""
        return tuple(self._auth) if self._auth is not None else get_settings().backends

    @property
    def instructions(self) -> str:
        """The instructions that models get for the server, with the override of the admin."""
        return self.catalog.instructions or self.instructions_in_code

    @property
    def instructions_in_code(self) -> str:
        """The instructions, without the override of the admin."""
        of_site = get_settings().instructions if self.is_default else ""
        return str(self._instructions or of_site)

    @property
    def title_in_code(self) -> str:
        """The title, without the override of the admin."""
        return str(self.title or (get_settings().title if self.is_default else ""))

    @property
    def page_size(self) -> int:
        """The number of resources per page of their list."""
        return self._page_size or get_settings().page_size

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The protocol revisions that the server supports."""
        return get_settings().protocol_versions

    @property
    def is_default(self) -> bool:
        """Whether this is the default server (``mcp``)."""
        return self.name == "default"

    def identity(self) -> dict[str, Any]:
        """Return ``serverInfo``, which clients may show."""
        settings = get_settings()
        title = self.catalog.title or self.title_in_code
        icons = public_icons(self.icons or (settings.icons if self.is_default else ()))
        optional = {
            "title": title,
            "description": str(self.description),
            "icons": icons,
            "websiteUrl": self.website_url,
        }
        details = {name: value for name, value in optional.items() if value}
        program = self.name
        if self.is_default:
            # The package of the root URLconf.
            program = str(getattr(django_settings, "ROOT_URLCONF", program)).partition(".")[0]
        return {
            "name": program,
            "version": self.version or _package_version(),
            **details,
        }

    @property
    def identity_attributes(self) -> tuple[object, ...]:
        """The attributes that ``identity`` shows: text, possibly translated lazily, and icons."""
        return self.title, self.description, self.version, self.website_url, self.icons

    @property
    def namespace(self) -> str:
        """The URL namespace: ``mcp_django`` for the default server, else ``mcp_django_NAME``."""
        return "mcp_django" if self.is_default else f"mcp_django_{self.name}"

    @property
    def urls(self) -> tuple[list[URLPattern], str, str]:
        """The URLs for ``path("mcp", mcp.urls)``, which serves ``/mcp`` and ``/mcp/`` alike.

        Raises:
            ImproperlyConfigured: ``mcp_django`` is not installed.
        """
        if apps.apps_ready and not apps.is_installed("mcp_django"):
            raise ImproperlyConfigured('Add "mcp_django" to INSTALLED_APPS.')
        sse, messages = EndpointView(self, "sse"), EndpointView(self, "messages")
        patterns = [
            re_path(r"^(?:/)?$", self.view, name="endpoint"),
            re_path(r"^(?:/)sse/?$", sse, name="sse"),
            re_path(r"^(?:/)messages/?$", messages, name="messages"),
            # If the mount ends with a slash, or is the root.
            re_path(r"^sse/?$", sse),
            re_path(r"^messages/?$", messages),
            *site_pages.health_patterns(EndpointView(self, "health")),
            *site_pages.approval_patterns(self),
        ]
        return patterns, "mcp_django", self.namespace

    @cached_property
    def view(self) -> EndpointView:
        """The endpoint as a Django view."""
        return EndpointView(self)

    @cached_property
    def asgi(self) -> RawASGIMount:
        """The endpoint as an ASGI application, for a ``URLRouter`` of Channels."""
        return RawASGIMount(self)

    def notify_resource_updated(self, uri: str, *, using: str | None = None) -> None:
        """Notify the subscribers of a resource that it changed, after the transaction commits.

        It can be called from sync and async code: views, commands, signals, tools. ``using`` is
        the alias of the transaction's database.
        """
        for address in self.registry.uris_of(uri):
            self._publish_after_commit(resource_topic(self.name, address), using)

    def notify_list_changed(self, kind: ListKind, *, using: str | None = None) -> None:
        """Notify clients that the list of tools, resources or prompts changed.

        Raises:
            ValueError: ``kind`` is not one of these.
        """
        if kind not in ("tools", "resources", "prompts"):
            raise ValueError(f"kind is {kind!r}; write 'tools', 'resources' or 'prompts'.")
        self._publish_after_commit(list_topic(self.name, kind), using)

    def _publish_after_commit(self, topic: TopicKey, using: str | None) -> None:
        run_after_commit(partial(publish, topic), using=using)

    def read_resource(
        self, call: Call, uri: str, interaction: Interaction | None
    ) -> Sequence[ResourceContents]:
        """Read a resource for a running call, as its caller."""
        return read_contents(call, uri, interaction)


def all_servers() -> Iterator[MCPServer]:
    """Yield every server of this process, sorted by name."""
    yield from sorted(_servers, key=lambda server: server.name)


def known_scopes() -> set[str]:
    """Return all scopes that a token can have: those of the settings and of the code."""
    scopes = set(get_settings().scopes)
    for server in all_servers():
        scopes.update(server.scopes)
        scopes.update(scope for component in server.registry for scope in component.scopes)
    return scopes


def _package_version() -> str:
    from mcp_django import __version__

    return __version__


class DefaultServer(LazyObject):  # type: ignore[type-arg]  # generic in the stubs only
    """``mcp``: created at first use, with the class that the app configuration names."""

    def _setup(self) -> None:
        cls: type[MCPServer] = MCPServer
        if apps.apps_ready and apps.is_installed("mcp_django"):
            cls = import_string(apps.get_app_config("mcp_django").default_server)  # type: ignore[attr-defined]
        self._wrapped = cls()


mcp = cast(MCPServer, DefaultServer())
