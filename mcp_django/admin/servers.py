"""The servers in the admin: the list and form of their overrides, and the page *Connect a client*.

The list shows each server of the code and its figures; the form has its overrides, and links to
the pages of the server. Rows cannot be added or deleted by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode, urljoin

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.html import format_html_join
from django.utils.translation import gettext, gettext_lazy as _, ngettext_lazy

from mcp_django.admin.base import (
    SERVER_PAGES,
    CodeSyncAdmin,
    ServerPage,
    ServerPageRequest,
    find_server,
    saved_row,
    server_page as register_page,
)
from mcp_django.admin.call_filters import calls_url, component_query
from mcp_django.admin.override_forms import (
    LIST_FIELDS,
    ServerForm,
    compare_server,
    publish_change_once,
)
from mcp_django.admin.statistics import ServerFigures, server_figures
from mcp_django.conf import get_settings
from mcp_django.execution.policy import is_open
from mcp_django.hosts.clients import (
    CLIENTS,
    DEFAULT_VARIABLE,
    PLACEHOLDER,
    ConnectionTarget,
    Credential,
    KnownClient,
)
from mcp_django.hosts.configuration import (
    entry_name,
    install_link,
    is_public,
    render_config,
    server_urls,
)
from mcp_django.models import Component, Server
from mcp_django.server import MCPServer
from mcp_django.storage.versions import LISTS
from mcp_django.tenants import of_tenant
from mcp_django.transports.site_pages import offers_sign_in

COUNTED: Mapping[str, Any] = {
    Component.Kind.TOOL: ngettext_lazy("%d tool", "%d tools"),
    Component.Kind.RESOURCE: ngettext_lazy("%d resource", "%d resources"),
    Component.Kind.TEMPLATE: ngettext_lazy("%d resource template", "%d resource templates"),
    Component.Kind.PROMPT: ngettext_lazy("%d prompt", "%d prompts"),
}


def servers_that_are_off() -> set[str]:
    """Return the names of the servers that are switched off in the admin."""
    rows = of_tenant(Server).filter(is_enabled=False)
    return set(rows.values_list("name", flat=True))


class ServerChangeList(ChangeList):
    """The change list with the figures of its servers."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch the rows, then their figures from the call log."""
        super().get_results(request)
        rows = list(self.result_list)
        figures = server_figures([row.name for row in rows])
        for row in rows:
            row.figures = figures[row.name]
        self.result_list = rows


@admin.register(Server)
class ServerAdmin(CodeSyncAdmin):
    """One row for each server in the code; rows cannot be added or deleted by hand."""

    form = ServerForm
    list_display = [
        *("name", "is_enabled", "shown_title", "addresses", "revisions"),
        *("components", "calls", "last_call"),
    ]
    search_fields = ["name", "title"]
    readonly_fields = ["name", "addresses", "revisions"]
    change_form_template = "admin/mcp_django/server_change_form.html"
    fieldsets = [
        (None, {"fields": ["name", "addresses", "revisions", "is_enabled"]}),
        (_("Shown to clients"), {"fields": ["title", "instructions"]}),
        (_("Access"), {"fields": ["groups", "permissions", "rate"]}),
    ]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false: servers are declared in code."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return false: the overrides of a removed server are kept in case it returns."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the change list with figures."""
        return ServerChangeList

    @admin.display(description=_("title"))
    def shown_title(self, row: Server) -> str:
        """Return the title as clients see it."""
        server = _server_of_row(row)
        if server is None:
            return gettext("not in the code")
        return row.title or server.title_in_code

    @admin.display(description=_("addresses"))
    def addresses(self, row: Server) -> str:
        """Return the server's URLs in the URLconf."""
        server = _server_of_row(row)
        urls = server_urls(server) if server is not None else []
        return format_html_join("\n", '<bdi dir="ltr">{}</bdi>', ((url,) for url in urls))

    @admin.display(description=_("revisions"))
    def revisions(self, row: Server) -> str:
        """Return the protocol revisions that the server supports."""
        server = _server_of_row(row)
        return ", ".join(server.protocol_versions) if server is not None else ""

    @admin.display(description=_("components"))
    def components(self, row: Server) -> str:
        """Return the number of components by kind."""
        counted = _figures(row).components
        return ", ".join(str(COUNTED[kind] % count) for kind, count in counted if count)

    @admin.display(description=_("calls in 24 h"))
    def calls(self, row: Server) -> int:
        """Return the number of calls in the last day."""
        return _figures(row).calls

    @admin.display(description=_("last call"))
    def last_call(self, row: Server) -> datetime | None:
        """Return the time of the last call."""
        return _figures(row).last_at

    def render_change_form(
        self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Add the comparison with the code, and links to the pages that the user may open."""
        row = saved_row(request, context, kwargs.get("obj"))
        server = _server_of_row(row) if row is not None else None
        context.update(
            mcp_pages=_links(request, row) if server is not None else [],
            mcp_lines=compare_server(server, row) if server is not None and row is not None else [],
            mcp_is_missing=server is None,
        )
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Save the override and publish the change."""
        super().save_model(request, obj, form, change)
        # No list contains the title and instructions of the server itself.
        is_listed = LIST_FIELDS.difference({"title"}).intersection(form.changed_data)
        publish_change_once(request, [(obj.name, kind) for kind in LISTS] if is_listed else [])

    def get_urls(self) -> list[URLPattern]:
        """Add the pages of each server, before Django's pattern that matches any path."""
        patterns = []
        for page in SERVER_PAGES.values():
            view = self.admin_site.admin_view(partial(self._page, page=page))
            # A call manages its own transactions, and workers must see a task's row immediately.
            for using in connections:
                view = transaction.non_atomic_requests(using)(view)
            name = f"mcp_django_server_{page.name}"
            patterns += [
                path(f"<int:pk>/{page.slug}/", view, name=name),
                path(f"<int:pk>/{page.slug}/<path:rest>", view, name=name),
            ]
        return [*patterns, *super().get_urls()]

    def _page(
        self, request: HttpRequest, pk: int, rest: str = "", *, page: ServerPage
    ) -> HttpResponseBase:
        if not request.user.has_perm(f"mcp_django.{page.permission}"):
            raise PermissionDenied
        row = of_tenant(Server).filter(pk=pk).first()
        if row is None:
            raise Http404(gettext("This server does not exist."))
        server = find_server(row.name)
        if server is None:
            response = self.render_page(request, "server_missing", page.title, row=row)
            response.status_code = 404
            return response
        rest = rest.strip("/")
        if rest and not page.has_subpages:
            raise Http404
        server.refresh()
        context = {
            **self.admin_site.each_context(request),
            "title": page.title,
            "opts": self.opts,
            "row": row,
        }
        page_request = ServerPageRequest(
            request=request, row=row, server=server, rest=rest, context=context
        )
        view: Callable[[ServerPageRequest], HttpResponseBase] = page.view
        return view(page_request)


def _server_of_row(row: Any) -> MCPServer | None:
    if not hasattr(row, "in_code"):
        row.in_code = find_server(row.name)
    server: MCPServer | None = row.in_code
    return server


def _figures(row: Any) -> ServerFigures:
    return getattr(row, "figures", None) or ServerFigures()


def _links(request: HttpRequest, row: Any) -> list[tuple[str, Any]]:
    pages = [
        (reverse(f"admin:mcp_django_server_{page.name}", args=[row.pk]), page.title)
        for page in SERVER_PAGES.values()
        if request.user.has_perm(f"mcp_django.{page.permission}")
    ]
    return [*pages, *_links_to_lists(request, CONSENTS)]


def component_pages(request: HttpRequest, row: Any) -> list[tuple[str, Any]]:
    """Return URLs and titles of the pages about a component that the user may open.

    ``row`` has its ``server``, ``kind`` and ``key``.
    """
    user: Any = request.user
    pk = of_tenant(Server).filter(name=row.server).values_list("pk", flat=True).first()
    query = urlencode({"kind": row.kind, "key": row.key})
    names = ("playground", "charts", "client_view")
    pages = [SERVER_PAGES[name] for name in names] if pk is not None else []
    links = [
        (f"{reverse(f'admin:mcp_django_server_{page.name}', args=[pk])}?{query}", page.title)
        for page in pages
        if user.has_perm(f"mcp_django.{page.permission}")
    ]
    if user.has_perm("mcp_django.view_call"):
        links.insert(1, (calls_url(since=None, **component_query(row)), _("Calls")))
    return links


def pages_of_made(
    request: HttpRequest, server: str, components: Collection[tuple[str, str]]
) -> list[tuple[str, Any]]:
    """Return URLs and titles of the pages of the components that an admin-defined row creates.

    ``components`` has their kinds and keys.
    """
    user: Any = request.user
    if not user.has_perm("mcp_django.view_component"):
        return []
    rows = of_tenant(Component).filter(server=server, key__in={key for _kind, key in components})
    return [
        (reverse("admin:mcp_django_component_change", args=[row.pk]), row.key)
        for row in rows.order_by("kind", "key")
        if (row.kind, row.key) in components
    ]


# How each client connects to a server -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSetup:
    """The configuration for one client, with a placeholder instead of a secret."""

    host: KnownClient
    text: str
    link: str
    notes: tuple[str, ...]


def server_url(server: MCPServer, request: HttpRequest) -> str:
    """Return the URL of a server, below ``BASE_URL`` or this host; empty without a fixed URL."""
    if server.resource_url:
        return server.resource_url
    try:
        path = reverse(f"{server.namespace}:endpoint")
    except NoReverseMatch:
        return ""
    return urljoin(get_settings().base_url or request.build_absolute_uri("/"), path)


def client_setups(server: MCPServer, url: str) -> list[ClientSetup]:
    """Return the configuration for each known client."""
    setups = []
    for host in CLIENTS.values():
        signs_in = host.signs_in and offers_sign_in(server)
        # Clients that read an environment variable have no other place for a token.
        variable = DEFAULT_VARIABLE if host.reference and not host.prompts_for_token else ""
        credential = None if is_open(server) or signs_in else Credential(variable=variable)
        target = ConnectionTarget(name=entry_name(server), url=url, credential=credential)
        setups.append(
            ClientSetup(
                host=host,
                text=render_config(host, [target]),
                link=install_link(host, target),
                notes=tuple(_notes(host, server, target)),
            )
        )
    return setups


def _notes(host: KnownClient, server: MCPServer, target: ConnectionTarget) -> Iterator[str]:
    if target.credential is not None and not host.is_cloud:
        if host.prompts_for_token:
            yield gettext(
                "The client asks for an access token once and stores it with its secrets."
            )
        elif host.reference:
            text = gettext("The client reads a token from the environment variable %(name)s.")
            yield text % {"name": DEFAULT_VARIABLE}
        else:
            yield gettext("Replace %(place)s with an access token.") % {"place": PLACEHOLDER}
    elif not is_open(server) and not host.is_cloud:
        yield gettext("The client opens a browser to sign in.")
    if host.is_cloud and not is_public(target.url):
        yield gettext("The client runs in its vendor's cloud and needs a public https:// URL.")
    if not {*host.revisions} & {*server.protocol_versions}:
        yield gettext("Known to support %(spoken)s; this server supports %(served)s.") % {
            "spoken": ", ".join(host.revisions),
            "served": ", ".join(server.protocol_versions),
        }


@register_page("connect", title=_("Connect a client"), permission="view_server")
def connect_page(page_request: ServerPageRequest) -> HttpResponseBase:
    """Show the configuration to paste into each client, with the URL of this server."""
    url = server_url(page_request.server, page_request.request)
    return page_request.render(
        "connect",
        url=url,
        recipes=client_setups(page_request.server, url) if url else [],
        is_open=is_open(page_request.server),
        related=_links_to_lists(page_request.request, (*RELATED, *CONSENTS)),
    )


# The permission that opens a page, its name in the URLconf, and its title.
RELATED = (
    ("mcp_django.add_accesstoken", "mcp_django_accesstoken_add", _("Create an access token")),
    ("mcp_django.view_accesstoken", "mcp_django_accesstoken_changelist", _("Access tokens")),
    ("mcp_django.view_session", "mcp_django_session_changelist", _("Sessions")),
)
CONSENTS = (("mcp_oauth.view_consent", "mcp_oauth_consent_changelist", _("Connected assistants")),)


def _links_to_lists(
    request: HttpRequest, pages: Iterable[tuple[str, str, Any]]
) -> list[tuple[str, Any]]:
    """Return the URLs and titles of the pages that the user may open."""
    user: Any = request.user
    return [
        (reverse(f"admin:{name}"), title)
        for permission, name, title in pages
        if user.has_perm(permission)
        and (not name.startswith("mcp_oauth") or apps.is_installed("mcp_django.oauth"))
    ]
