"""The "Connected assistants" page, where users see and disconnect clients with access."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import wraps
from importlib.util import find_spec
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext as _, ngettext
from django.views.decorators.http import require_http_methods, require_POST
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.auth.authentication import has_shared_oauth
from mcp_django.auth.endpoints import find_server
from mcp_django.auth.pages import protect_page
from mcp_django.conf import get_settings
from mcp_django.oauth.clients import Scopes, client_displays
from mcp_django.oauth.consent import render_page, title_of
from mcp_django.oauth.models import Consent, UpstreamGrant
from mcp_django.oauth.revoking import revoke_access, revoke_everything
from mcp_django.oauth.upstream.conf import provider_settings
from mcp_django.oauth.upstream.grants import live_condition


def of_this_tenant(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Return a view that responds with 404 if its rows could be another tenant's (E018)."""

    @wraps(view)
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if has_shared_oauth():
            raise Http404
        return view(request, *args, **kwargs)

    return inner


@protect_page
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def connections(request: HttpRequest) -> HttpResponse:
    """Show the connected assistants of the signed-in user; a POST disconnects all of them."""
    user: Any = request.user
    if request.method != "POST":
        context: dict[str, Any] = {"connections": connections_of(request), "accounts": []}
        # The user's accounts at third parties. Without Authlib there are no URLs to connect them;
        # the system check E014 reports it.
        configured = get_settings().oauth.upstream
        if configured and find_spec("authlib"):
            held = UpstreamGrant.objects.filter(live_condition(), user=user)
            connected = set(held.values_list("provider", flat=True))
            context["accounts"] = [
                {
                    "name": name,
                    "label": provider_settings(name).label,
                    "is_connected": name in connected,
                }
                for name in configured
            ]
        return render_page(request, "connections.html", context)
    count = Consent.objects.filter(user=user).count()
    revoke_everything(user, request=request)
    text = ngettext("%(n)d connection ended.", "%(n)d connections ended.", count) % {"n": count}
    return _back(request, text)


@protect_page
@login_required
@require_POST
def disconnect(request: HttpRequest, pk: int) -> HttpResponse:
    """Disconnect one assistant from one server; 404 for a connection of another user."""
    user: Any = request.user
    row = Consent.objects.filter(user=user, pk=pk).first()
    if row is None:
        raise Http404
    revoke_access(user, row.client_id, row.resource or None, request=request)
    return _back(request, _("The assistant is disconnected."))


def connections_of(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the signed-in user's connections for the page, newest first; at most four queries."""
    user: Any = request.user
    rows = list(Consent.objects.filter(user=user).order_by("-updated_at"))
    clients = client_displays({row.client_id for row in rows})
    used = last_uses([user.pk])
    descriptions = Scopes().get_all_scopes()
    contexts = []
    for row in rows:
        server = find_server(row.resource, request) if row.resource else None
        if server is not None:
            server.refresh()
        contexts.append(
            {
                "pk": row.pk,
                "client": clients[row.client_id],
                "server": row.resource if server is None else title_of(server),
                "resource": row.resource,
                "scopes": [str(descriptions.get(scope, scope)) for scope in row.scopes],
                "redirect_host": row.redirect_host,
                "since": row.created_at,
                "last_used": used.get((user.pk, row.client_id, row.resource)),
            }
        )
    return contexts


def last_uses(users: Collection[Any]) -> dict[tuple[Any, str, str], datetime]:
    """Return when each client last called each server as a user, or got a token for it.

    ``users`` are primary keys. A key of the result is the primary key of the user, the client id
    and the URL of the server. It takes two queries. ``OAuthBackend`` stores the time of a call in
    the access token, which each refresh replaces.
    """
    uses: dict[tuple[Any, str, str], datetime] = {}
    columns = ((get_access_token_model(), "updated"), (get_refresh_token_model(), "created"))
    for model, field in columns:
        rows: Iterable[tuple[Any, str, list[str], datetime]] = model.objects.filter(
            user__in=users, application__isnull=False
        ).values_list("user", "application__client_id", "resource", field)
        for user, client_id, resources, at in rows:
            for resource in resources or [""]:
                key = (user, client_id, resource)
                uses[key] = max(at, uses.get(key, at))
    return uses


def _back(request: HttpRequest, text: str) -> HttpResponse:
    # Without the messages app, the list itself shows the result.
    messages.success(request, text, fail_silently=True)
    return redirect("mcp_oauth:connections")
