"""User consent: the data of the consent page, stored consents, and when they suffice.

Also renders the pages of the authorization server, such as the one to sign in with another account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db import router, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import ngettext

from mcp_django.auth import security_log
from mcp_django.auth.endpoints import find_server
from mcp_django.auth.principal import expand_scopes, principal_for
from mcp_django.conf import get_settings
from mcp_django.execution.policy import is_visible
from mcp_django.models import AuthEvent
from mcp_django.oauth.authorization_request import (
    AuthorizationError,
    AuthorizationRequest,
    WrongAccount,
    add_issuer,
)
from mcp_django.oauth.clients import destination_of, requestable_scopes
from mcp_django.oauth.models import Consent
from mcp_django.oauth.responses import issuer_of
from mcp_django.oauth.revoking import revoke_access


def servers_of(auth_request: AuthorizationRequest, request: HttpRequest) -> list[tuple[str, Any]]:
    """Return the resources of a request, each with its server; the catalogs are refreshed."""
    pairs: list[tuple[str, Any]] = [
        (resource, find_server(resource, request)) for resource in auth_request.resources
    ]
    for _resource, server in pairs:
        server.refresh()
    return pairs


def title_of(server: Any) -> str:
    """Return the title of a server, or its name."""
    identity = server.identity()
    return str(identity.get("title") or identity["name"])


def consent_servers(
    auth_request: AuthorizationRequest, request: HttpRequest
) -> list[dict[str, Any]]:
    """Return the servers of a request for the page, each with the number of visible components."""
    principal = principal_for(request.user)
    servers = []
    for resource, server in servers_of(auth_request, request):
        tools = sum(is_visible(principal, tool) for tool in server.catalog.tools.values())
        components = (*server.catalog.resources.values(), *server.catalog.templates.values())
        resources = sum(is_visible(principal, component) for component in components)
        prompts = sum(is_visible(principal, prompt) for prompt in server.catalog.prompts.values())
        counts = (
            (tools, ngettext("%(n)d tool", "%(n)d tools", tools)),
            (resources, ngettext("%(n)d resource", "%(n)d resources", resources)),
            (prompts, ngettext("%(n)d prompt", "%(n)d prompts", prompts)),
        )
        words = [text % {"n": number} for number, text in counts if number]
        servers.append({"title": title_of(server), "resource": resource, "counts": words})
    return servers


def consent_scopes(
    auth_request: AuthorizationRequest, application: Any, request: HttpRequest
) -> list[dict[str, Any]]:
    """Return the scopes of a request for the page, first those that the user cannot deselect."""
    servers = [server for _, server in servers_of(auth_request, request)]
    described = requestable_scopes(application)
    fixed, before = _fixed_scopes(auth_request, request), granted_before(auth_request, request.user)
    principal = principal_for(request.user)
    needed_by = Counter(
        scope
        for server in servers
        for tool in server.catalog.tools.values()
        if is_visible(principal, tool)
        for scope in set(tool.scopes)
    )
    return [
        {
            "name": name,
            "description": str(described.get(name, name)),
            "is_fixed": name in fixed,
            "is_new": name not in before,
            "unlocks": ngettext("Needed by %(n)d tool", "Needed by %(n)d tools", needed_by[name])
            % {"n": needed_by[name]}
            if needed_by[name]
            else "",
        }
        for name in sorted(auth_request.scopes, key=lambda scope: scope not in fixed)
    ]


def chosen_scopes(
    auth_request: AuthorizationRequest, request: HttpRequest, ticked: Iterable[str]
) -> tuple[str, ...]:
    """Return the approved scopes: the requested scopes that are fixed or ticked."""
    chosen = _fixed_scopes(auth_request, request) | set(ticked)
    return tuple(scope for scope in auth_request.scopes if scope in chosen)


def granted_before(auth_request: AuthorizationRequest, user: Any) -> frozenset[str]:
    """Return the scopes that the client already has for every resource of the request."""
    rows = _stored_consents(auth_request, user)
    if not rows or len(rows) < len(auth_request.resources or ("",)):
        return frozenset()
    return frozenset.intersection(*(frozenset(row.scopes) for row in rows.values()))


def is_consent_remembered(auth_request: AuthorizationRequest, application: Any, user: Any) -> bool:
    """Return whether a recent consent covers the request, so no consent page is needed.

    A consent counts for ``REMEMBER_CONSENT`` seconds, for the same servers, the same or fewer
    scopes, and the same redirect host over https. Public clients that registered themselves are
    excluded, since another client could impersonate them.
    """
    seconds = get_settings().oauth.remember_consent
    if not seconds or urlsplit(auth_request.redirect_uri).scheme.lower() != "https":
        return False
    if application.registration_source == "dcr" and (application.client_type != "confidential"):
        return False
    oldest = timezone.now() - timedelta(seconds=seconds)
    rows = _stored_consents(auth_request, user)
    host = destination_of(auth_request.redirect_uri).shown
    same = all(row.redirect_host == host and row.updated_at >= oldest for row in rows.values())
    implies: Mapping[str, Iterable[str]] = get_settings().scope_implies or {}
    # Only the last approval counts: it does not renew scopes approved earlier or for another host.
    agreed = (expand_scopes(row.agreed, implies) for row in rows.values())
    is_whole = len(rows) == len(auth_request.resources or ("",))
    return is_whole and same and all(set(auth_request.scopes) <= scopes for scopes in agreed)


def save_consent(
    auth_request: AuthorizationRequest, scopes: tuple[str, ...], request: HttpRequest
) -> None:
    """Store the user's consent for each server of the request.

    If the user has unticked a scope that the client already had, the existing tokens are revoked,
    so that the result is what the page showed.
    """
    unticked = set(auth_request.scopes) - set(scopes)
    user: Any = request.user
    with transaction.atomic(using=router.db_for_write(Consent)):
        rows = _stored_consents(auth_request, user)
        for resource in auth_request.resources or ("",):
            row = rows.get(resource)
            had = set(row.scopes) if row else set()
            if had & unticked:
                revoke_access(user, auth_request.client_id, resource or None, request=request)
            Consent.objects.update_or_create(
                user=user,
                client_id=auth_request.client_id,
                resource=resource,
                defaults={
                    "scopes": sorted((had | set(scopes)) - unticked),
                    "agreed": sorted(scopes),
                    "redirect_host": destination_of(auth_request.redirect_uri).shown[:255],
                },
            )
        log_decision(AuthEvent.Kind.CONSENT, auth_request, request, scopes=list(scopes))


def log_decision(
    kind: str, auth_request: AuthorizationRequest, request: HttpRequest, **details: Any
) -> None:
    """Record the user's decision in the security log."""
    names = [server.name for _, server in servers_of(auth_request, request)]
    security_log.record_event(
        kind,
        request=request,
        user=request.user,
        client_id=auth_request.client_id,
        server=" ".join(names),
        redirect_host=destination_of(auth_request.redirect_uri).shown,
        **details,
    )


def _fixed_scopes(auth_request: AuthorizationRequest, request: HttpRequest) -> frozenset[str]:
    """Return the requested scopes that the servers require of every caller."""
    baseline = {"openid"}
    for _, server in servers_of(auth_request, request):
        baseline |= set(server.scopes)
    return frozenset(auth_request.scopes) & baseline


def _stored_consents(auth_request: AuthorizationRequest, user: Any) -> dict[str, Consent]:
    rows = Consent.objects.filter(
        user=user, client_id=auth_request.client_id, resource__in=auth_request.resources or ("",)
    )
    return {row.resource: row for row in rows}


def render_page(
    request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """Render a template of ``mcp_django/oauth/``."""
    return render(request, f"mcp_django/oauth/{template}", context, status=status)


def render_error(
    request: HttpRequest,
    *,
    title: str,
    message: str,
    detail: str = "",
    hint: str = "",
    status: int = 400,
) -> HttpResponse:
    """Render the error page, for errors that only the user may see."""
    context = {"title": title, "message": message, "detail": detail, "hint": hint}
    return render_page(request, "error.html", context, status=status)


def account_choice_page(request: HttpRequest, refusal: AuthorizationError) -> HttpResponse | None:
    """Return a page (403) to sign in with another account or to return to the client.

    It is for users whose current account may not do what the client requests, but who may have
    another account. If the client got the error immediately, it would send the user here again.

    Return ``None`` if another account would not help, for ``prompt=none``, and for POST requests.
    """
    silently = "none" in request.GET.get("prompt", "").split()
    if silently or request.method != "GET" or not isinstance(refusal, WrongAccount):
        return None
    location = add_issuer(refusal.location(), issuer_of(request))
    return render_page(request, "another_account.html", {"location": location}, status=403)


def sign_in_again_page(request: HttpRequest, auth_request: AuthorizationRequest) -> HttpResponse:
    """Return a page to sign in again with any account or to return to the client."""
    refusal = auth_request.error("login_required", "The user did not sign in again.")
    location = add_issuer(refusal.location(), issuer_of(request))
    return render_page(request, "sign_in_again.html", {"location": location})
