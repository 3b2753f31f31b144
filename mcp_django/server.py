"""``MCPServer``: one MCP server of the site, with its components, its permission and its URLs.

A server is a registry with a name, which is also its name in the admin. ``tools``, ``resources``,
``templates`` and ``prompts`` are what code declares; ``offered`` is the catalog that callers get:
the same with the site owner's overrides applied. ``mcp`` is the default server; it is created
when it is first used, of the class that the app configuration names.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
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
from mcp_django.conf import Rate, get_settings, parse_all
from mcp_django.core.catalog import Offered
from mcp_django.core.component import SCOPE, Component
from mcp_django.core.tool import Tool
from mcp_django.execution import task_status
from mcp_django.execution.call import Incoming
from mcp_django.execution.handlers.listing import published
from mcp_django.execution.handlers.resources import read_contents
from mcp_django.execution.interaction import Interaction
from mcp_django.execution.threads import after_commit
from mcp_django.integrations.models.generic import Generic
from mcp_django.integrations.registration import Registering
from mcp_django.overrides.state import Managed
from mcp_django.protocol.content import Icon, ResourceContents
from mcp_django.storage.pubsub import announce
from mcp_django.storage.versions import Topic
from mcp_django.transports import site_pages
from mcp_django.transports.asgi_handler import RawMount
from mcp_django.transports.view import EndpointView

# Declared components and the site owner's overrides -----------------------------------------------


class ManagedRegistry(Registering):
    """The registry of one server, by whose name the admin knows it."""

    def __init__(
        self,
        name: str,
        *,
        generic: Generic = None,
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
    ) -> None:
        super().__init__(generic=generic)
        self.name = name
        try:
            self._rates = parse_all(rate)
        except ValueError as exc:
            raise ImproperlyConfigured(f"rate of the server {name!r}: {exc}.") from None
        self._log_arguments = log_arguments
        self._managed = Managed(name, self)

    @property
    def offered(self) -> Offered:
        """What callers are offered now: what code declares, as the admin adds to it and narrows it.

        ``tools``, ``resources``, ``templates`` and ``prompts`` are what code declares.
        """
        return self._managed.offered

    @property
    def available(self) -> Offered:
        """What there would be to offer if the admin narrowed nothing."""
        return self._managed.available

    def refresh(self, *, is_list: bool = False) -> None:
        """See that ``offered`` is not older than a second, or of this moment for a list.

        Raises:
            Busy: the database cannot say what the admin decided, and never could.
        """
        self._managed.refresh(is_list=is_list)

    def as_in_code(self) -> None:
        """Take it that the admin says nothing, until the next ``refresh``."""
        self._managed.forget()

    @property
    def rates(self) -> tuple[Rate, ...]:
        """How often anything of it may be used, as code and its owner say."""
        return (*self.rates_in_code, *self.offered.rates)

    @property
    def rates_in_code(self) -> tuple[Rate, ...]:
        """The same, whatever its owner says in the admin."""
        return self._rates or get_settings().rate

    @property
    def log_arguments(self) -> bool:
        """Whether the call log gets the values of arguments."""
        in_code = self._log_arguments
        return get_settings().log_arguments if in_code is None else in_code

    @property
    def itself(self) -> Self:
        """This server; what stands before it in a test answers with it, too."""
        return self


# Server -------------------------------------------------------------------------------------------

NAME = re.compile(r"[A-Za-z0-9_.-]+")
ListKind = Literal["tools", "resources", "prompts"]
_servers: weakref.WeakSet[MCPServer] = weakref.WeakSet()


class MCPServer(ManagedRegistry):
    """One MCP server of the site; ``mcp`` is the default one.

    ``permission`` says who may enter (a permission class, a codename or a list of them): nobody
    without credentials unless it is ``AllowAny``. ``auth`` replaces ``MCP_DJANGO["AUTH"]`` for
    this server. ``scopes`` are those that an OAuth token needs for whatever it does here;
    ``generated_scopes`` asks for one more in the tools of registered models, ``shop:read`` or
    ``shop:write`` by the label of the model's app, or by the word given in its place.
    ``resource_url`` is the URL that tokens are issued for, where no URLconf of this site has the
    endpoint. ``page_size`` is the number of entries on a page of a list. ``generic``
    says above how many registered models one set of tools serves all of them (``True``: always,
    ``False``: never). ``upstream`` names the provider of ``OAUTH["UPSTREAM"]`` where users also
    have to let the site in before a client gets a token for this server.
    ``rate`` says how often anything of it may be used, and ``log_arguments`` puts the values of
    arguments into the call log; both stand in for the setting of the same name.
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
        generic: bool | int | None = None,
        upstream: str = "",
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
    ) -> None:
        super().__init__(name, generic=generic, rate=rate, log_arguments=log_arguments)
        if not NAME.fullmatch(name):
            raise ImproperlyConfigured(
                f"{name!r} is no name for a server: use A-Z a-z 0-9 _ - . since URLs are reversed "
                "by it."
            )
        if isinstance(auth, str):
            raise ImproperlyConfigured(f"auth is a list: write auth=[{auth!r}].")
        if page_size is not None and page_size < 1:
            raise ImproperlyConfigured(f"page_size={page_size}; a page has one entry at least.")
        self.title = title
        self.version = version
        self.description = description
        self.icons = tuple(icons)
        self.website_url = website_url
        self.permission = permission
        self.upstream = upstream
        self.scopes = self._checked("scopes", scopes)
        self.generated_scopes = generated_scopes
        if generated_scopes:
            self._checked("generated_scopes", [f"{generated_scopes}:read"])
        self.resource_url = resource_url
        if resource_url:
            self._declare(resource_url)
        self._instructions = instructions
        self._auth = auth
        self._page_size = page_size
        _servers.add(self)

    def __repr__(self) -> str:
        return f"<MCPServer {self.name!r}>"

    def _checked(self, option: str, scopes: Sequence[str]) -> tuple[str, ...]:
        if isinstance(scopes, str):
            raise ImproperlyConfigured(f"{option} is a list: write {option}=[{scopes!r}].")
        for scope in scopes:
            if not SCOPE.fullmatch(str(scope)) or scope == OFFLINE_ACCESS:
                raise ImproperlyConfigured(
                    f"{option} of the server {self.name!r} has {scope!r}; write printable ASCII "
                    f"without spaces, quotes and \\, and leave {OFFLINE_ACCESS} to clients."
                )
        return tuple(scopes)

    def _declare(self, url: str) -> None:
        try:
            endpoints.declare(url, self)
        except ValueError:
            raise ImproperlyConfigured(
                f"resource_url of the server {self.name!r} is {url!r}; write the whole URL of its "
                "endpoint, 'https://example.com/mcp', without query and fragment."
            ) from None

    def add(self, component: Component) -> None:
        """Offer a component; with the first tool that gives handles comes ``get_result``."""
        super().add(component)
        if isinstance(component, Tool) and component.handle:
            task_status.offer(self)

    # What it says of itself -------------------------------------------------------------------

    @property
    def auth(self) -> tuple[str, ...]:
        """The authentication backends, tried in this order."""
        return tuple(self._auth) if self._auth is not None else get_settings().backends

    @property
    def instructions(self) -> str:
        """What a model should know before it uses the server."""
        return self.offered.instructions or self.instructions_in_code

    @property
    def instructions_in_code(self) -> str:
        """The same, whatever its owner says in the admin."""
        of_site = get_settings().instructions if self.is_default else ""
        return str(self._instructions or of_site)

    @property
    def title_in_code(self) -> str:
        """Its title, whatever its owner says in the admin."""
        return str(self.title or (get_settings().title if self.is_default else ""))

    @property
    def page_size(self) -> int:
        """Entries on a page of a list."""
        return self._page_size or get_settings().page_size

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The revisions served."""
        return get_settings().protocol_versions

    @property
    def is_default(self) -> bool:
        """Whether this is the server that ``mcp`` stands for."""
        return self.name == "default"

    def identity(self) -> dict[str, Any]:
        """Who answers, as clients show it (``serverInfo``)."""
        settings = get_settings()
        title = self.offered.title or self.title_in_code
        icons = published(self.icons or (settings.icons if self.is_default else ()))
        optional = {
            "title": title,
            "description": str(self.description),
            "icons": icons,
            "websiteUrl": self.website_url,
        }
        given = {name: value for name, value in optional.items() if value}
        return {
            "name": self._program_name(),
            "version": self.version or _package_version(),
            **given,
        }

    def _program_name(self) -> str:
        """The server's name; the default one is called like the site's own package."""
        if not self.is_default:
            return self.name
        return str(getattr(django_settings, "ROOT_URLCONF", self.name)).partition(".")[0]

    # Where it is ------------------------------------------------------------------------------

    @property
    def namespace(self) -> str:
        """The URL namespace: ``mcp_django`` for the default server, ``mcp_django_NAME`` else."""
        return "mcp_django" if self.is_default else f"mcp_django_{self.name}"

    @property
    def urls(self) -> tuple[list[URLPattern], str, str]:
        """What ``path("mcp", mcp.urls)`` takes: serves ``/mcp`` and ``/mcp/`` without redirect.

        Raises:
            ImproperlyConfigured: the app is not installed, so nothing would work.
        """
        if apps.apps_ready and not apps.is_installed("mcp_django"):
            raise ImproperlyConfigured('Add "mcp_django" to INSTALLED_APPS.')
        sse, messages = EndpointView(self, "sse"), EndpointView(self, "messages")
        patterns = [
            re_path(r"^(?:/)?$", self.view, name="endpoint"),
            re_path(r"^(?:/)sse/?$", sse, name="sse"),
            re_path(r"^(?:/)messages/?$", messages, name="messages"),
            # Where the mount ends in a slash already, or is the root.
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
    def asgi(self) -> RawMount:
        """The endpoint as an ASGI application, for a ``URLRouter`` of Channels."""
        return RawMount(self)

    # What changed -----------------------------------------------------------------------------

    def notify_resource_updated(self, uri: str, *, using: str | None = None) -> None:
        """Tell the subscribers of a resource that it changed, once the transaction commits.

        Call it from anywhere: a view, a command, a signal, a tool, sync or async. ``using`` names
        the database of the transaction.
        """
        for address in self.addresses_of(uri):
            self._ring_after_commit(Topic(self.name, "resource", address), using)

    def notify_list_changed(self, kind: ListKind, *, using: str | None = None) -> None:
        """Tell listeners that the list of tools, resources or prompts changed.

        Raises:
            ValueError: there is no such list.
        """
        if kind not in ("tools", "resources", "prompts"):
            raise ValueError(f"{kind!r} is no list: use 'tools', 'resources' or 'prompts'.")
        self._ring_after_commit(Topic(self.name, kind), using)

    def _ring_after_commit(self, topic: Topic, using: str | None) -> None:
        after_commit(partial(announce, topic), using=using)

    # What a running call may ask --------------------------------------------------------------

    def read_resource(
        self, incoming: Incoming, uri: str, interaction: Interaction | None
    ) -> Sequence[ResourceContents]:
        """Read a resource on behalf of the caller of a running call."""
        return read_contents(incoming, uri, interaction)


def all_servers() -> Iterator[MCPServer]:
    """Every server of this process."""
    yield from sorted(_servers, key=lambda server: server.name)


def known_scopes() -> set[str]:
    """The scopes that the site's settings or its code name, which are what a token can have."""
    found = set(get_settings().scopes)
    for server in all_servers():
        found.update(server.scopes)
        found.update(scope for one in server for scope in one.scopes)
    return found


def _package_version() -> str:
    from mcp_django import __version__

    return __version__


class DefaultServer(LazyObject):  # type: ignore[type-arg]  # generic in the stubs only
    """``mcp``: made at first use, of the class that the app configuration names."""

    def _setup(self) -> None:
        cls: type[MCPServer] = MCPServer
        if apps.apps_ready and apps.is_installed("mcp_django"):
            cls = import_string(apps.get_app_config("mcp_django").default_server)  # type: ignore[attr-defined]
        self._wrapped = cls()


mcp = cast(MCPServer, DefaultServer())
