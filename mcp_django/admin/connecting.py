"""The page that says how each client is connected to one server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.apps import apps
from django.http import Http404, HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.pages import Visit, page
from mcp_django.conf import get_settings
from mcp_django.execution.policy import is_open
from mcp_django.management.clients.hosts import HOSTS, Host
from mcp_django.management.clients.links import link
from mcp_django.management.clients.target import DEFAULT_VARIABLE, PLACEHOLDER, Credential, Target
from mcp_django.management.clients.writing import text
from mcp_django.management.subcommands.connect import entry_name
from mcp_django.server import MCPServer
from mcp_django.transports.site_pages import offers_sign_in

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What connects one client; holds no secret, only the place of one."""

    host: Host
    text: str
    link: str
    notes: tuple[str, ...]


def address_of(server: MCPServer, request: HttpRequest) -> str:
    """The URL of a server: below ``BASE_URL``, or where this page is; empty if none is fixed."""
    if server.resource_url:
        return server.resource_url
    try:
        path = reverse(f"{server.namespace}:endpoint")
    except NoReverseMatch:
        return ""
    return urljoin(get_settings().base_url or request.build_absolute_uri("/"), path)


def recipes(server: MCPServer, url: str) -> list[Recipe]:
    """How every client that is known here is connected."""
    return [_recipe(host, server, url) for host in HOSTS.values()]


def _recipe(host: Host, server: MCPServer, url: str) -> Recipe:
    signs_in = host.signs_in and offers_sign_in(server)
    credential = None if is_open(server) or signs_in else _place_of_token(host)
    target = Target(name=entry_name(server), url=url, credential=credential)
    return Recipe(
        host=host,
        text=text(host, [target]),
        link=link(host, target),
        notes=tuple(_notes(host, server, target)),
    )


def _place_of_token(host: Host) -> Credential:
    """Nobody's token: a variable for whoever reads variables, and else what the client has."""
    has_place = host.prompts_for_token or not host.reference
    return Credential(variable="" if has_place else DEFAULT_VARIABLE)


def _notes(host: Host, server: MCPServer, target: Target) -> Iterator[str]:
    if target.credential is not None and not host.is_cloud:
        yield _token_note(host)
    elif not is_open(server) and not host.is_cloud:
        yield _now("It opens a browser to sign in.")
    if host.is_cloud and not _is_public(target.url):
        yield _now("It calls from its vendor's cloud, which needs a public https:// address.")
    if not {*host.revisions} & {*server.protocol_versions}:
        yield _now("It was seen to speak %(spoken)s; this site serves %(served)s.") % {
            "spoken": ", ".join(host.revisions),
            "served": ", ".join(server.protocol_versions),
        }


def _token_note(host: Host) -> str:
    if host.prompts_for_token:
        return _now("It asks for an access token once, and keeps it where secrets are kept.")
    if host.reference:
        return _now("It reads an access token from the environment variable %(name)s.") % {
            "name": DEFAULT_VARIABLE
        }
    return _now("Write an access token where %(place)s stands.") % {"place": PLACEHOLDER}


def _is_public(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname not in LOOPBACK


@page("connect", title=_("Connect a client"), permission="view_server")
def connect(visit: Visit) -> HttpResponseBase:
    """What to paste into each client, with this server's real address."""
    if visit.rest:
        raise Http404
    url = address_of(visit.server, visit.request)
    context: dict[str, Any] = {
        **visit.context,
        "url": url,
        "recipes": recipes(visit.server, url) if url else [],
        "is_open": is_open(visit.server),
        "related": [*_related(visit.request)],
    }
    return TemplateResponse(visit.request, "admin/mcp_django/connect.html", context)


def _related(request: HttpRequest) -> Iterator[tuple[str, Any]]:
    """Addresses and titles of what a visitor may go on with."""
    user: Any = request.user
    if user.has_perm("mcp_django.add_accesstoken"):
        yield reverse("admin:mcp_django_accesstoken_add"), _("Make an access token")
    if user.has_perm("mcp_django.view_accesstoken"):
        yield reverse("admin:mcp_django_accesstoken_changelist"), _("Access tokens")
    if user.has_perm("mcp_django.view_session"):
        yield reverse("admin:mcp_django_session_changelist"), _("Sessions")
    yield from assistants(request)


def assistants(request: HttpRequest) -> Iterator[tuple[str, Any]]:
    """Address and title of what users let in by OAuth, for a visitor who may see it."""
    user: Any = request.user
    if apps.is_installed("mcp_django.oauth") and user.has_perm("mcp_oauth.view_consent"):
        yield reverse("admin:mcp_oauth_consent_changelist"), _("Connected assistants")
