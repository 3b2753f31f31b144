"""Consent: what a user is shown before agreeing, what is kept of it, and when that is enough.

With the pages of the authorization server, and the one that lets a user sign in with another
account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import ngettext

from mcp_django.auth import security_log
from mcp_django.auth.endpoints import find_server
from mcp_django.auth.principal import closure, principal_for
from mcp_django.conf import get_settings
from mcp_django.execution.policy import visible
from mcp_django.models import AuthEvent
from mcp_django.oauth.authorization_request import (
    AuthorizationRequest,
    Refused,
    WrongAccount,
    with_issuer,
)
from mcp_django.oauth.clients import destination_of, requestable
from mcp_django.oauth.models import Consent
from mcp_django.oauth.responses import issuer_of
from mcp_django.oauth.revoking import revoke_access


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedServer:
    """A server as the page shows it to one user."""

    title: str
    resource: str
    counts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedScope:
    """A scope the client asks for; a fixed one is part of any access."""

    name: str
    description: str
    is_fixed: bool
    is_new: bool
    tools: int

    @property
    def unlocks(self) -> str:
        """How many tools need it, in words; empty for none."""
        if not self.tools:
            return ""
        return ngettext("Needed by %(n)d tool", "Needed by %(n)d tools", self.tools) % {
            "n": self.tools
        }


def servers_of(asked: AuthorizationRequest, request: HttpRequest) -> list[tuple[str, Any]]:
    """The resources of a request with the server behind each, as it is offered now."""
    found: list[tuple[str, Any]] = [(one, find_server(one, request)) for one in asked.resources]
    for _one, server in found:
        server.refresh()
    return found


def title_of(server: Any) -> str:
    """What people call a server."""
    identity = server.identity()
    return str(identity.get("title") or identity["name"])


def offered_servers(asked: AuthorizationRequest, request: HttpRequest) -> list[OfferedServer]:
    """The servers of a request, with what each offers this user."""
    principal = principal_for(request.user)
    found = []
    for resource, server in servers_of(asked, request):
        tools = sum(visible(principal, one) for one in server.offered.tools.values())
        readable = (*server.offered.resources.values(), *server.offered.templates.values())
        resources = sum(visible(principal, one) for one in readable)
        prompts = sum(visible(principal, one) for one in server.offered.prompts.values())
        counts = (
            (tools, ngettext("%(n)d tool", "%(n)d tools", tools)),
            (resources, ngettext("%(n)d resource", "%(n)d resources", resources)),
            (prompts, ngettext("%(n)d prompt", "%(n)d prompts", prompts)),
        )
        words = tuple(text % {"n": number} for number, text in counts if number)
        found.append(OfferedServer(title=title_of(server), resource=resource, counts=words))
    return found


def offered_scopes(
    asked: AuthorizationRequest, application: Any, request: HttpRequest
) -> list[OfferedScope]:
    """The scopes of a request, those that cannot be left out first."""
    servers = [server for _, server in servers_of(asked, request)]
    described = requestable(application)
    fixed, before = _fixed_scopes(asked, request), granted_before(asked, request.user)
    principal = principal_for(request.user)
    tools = [
        one
        for server in servers
        for one in server.offered.tools.values()
        if visible(principal, one)
    ]
    offered = [
        OfferedScope(
            name=name,
            description=str(described.get(name, name)),
            is_fixed=name in fixed,
            is_new=name not in before,
            tools=sum(name in one.scopes for one in tools),
        )
        for name in asked.scopes
    ]
    return sorted(offered, key=lambda one: not one.is_fixed)


def chosen_scopes(
    asked: AuthorizationRequest, request: HttpRequest, ticked: Iterable[str]
) -> tuple[str, ...]:
    """What the user agreed to: the fixed scopes and the ticked ones, of those that were asked."""
    kept = _fixed_scopes(asked, request) | set(ticked)
    return tuple(one for one in asked.scopes if one in kept)


def granted_before(asked: AuthorizationRequest, user: Any) -> frozenset[str]:
    """The scopes that the client has for every resource of the request."""
    rows = _rows(asked, user)
    if not rows or len(rows) < len(asked.resources or ("",)):
        return frozenset()
    return frozenset.intersection(*(frozenset(row.scopes) for row in rows.values()))


def is_remembered(asked: AuthorizationRequest, application: Any, user: Any) -> bool:
    """Whether the user has agreed to this lately, and the client can be told from an impostor.

    ``REMEMBER_CONSENT`` seconds long, for the same servers, the same or fewer scopes and the same
    redirect host, over https, for clients that are more than a name they gave themselves.
    """
    seconds = get_settings().oauth.remember_consent
    if not seconds or urlsplit(asked.redirect_uri).scheme.lower() != "https":
        return False
    if application.registration_source == "dcr" and (application.client_type != "confidential"):
        return False
    oldest = timezone.now() - timedelta(seconds=seconds)
    rows = _rows(asked, user)
    host = destination_of(asked.redirect_uri).shown
    same = all(row.redirect_host == host and row.updated_at >= oldest for row in rows.values())
    implies: Mapping[str, Iterable[str]] = get_settings().scope_implies or {}
    # What was agreed to before that, or for another host, is not renewed by a smaller approval.
    agreed = (closure(row.agreed, implies) for row in rows.values())
    is_whole = len(rows) == len(asked.resources or ("",))
    return is_whole and same and all(set(asked.scopes) <= one for one in agreed)


def keep_consent(
    asked: AuthorizationRequest, scopes: tuple[str, ...], request: HttpRequest
) -> None:
    """Remember an approval, for each server it is for.

    A scope that the client had and the user has now unticked is taken away from what the client
    holds already, so that the page said the truth.
    """
    unticked = set(asked.scopes) - set(scopes)
    user: Any = request.user
    with transaction.atomic(using=router.db_for_write(Consent)):
        rows = _rows(asked, user)
        for resource in asked.resources or ("",):
            row = rows.get(resource)
            had = set(row.scopes) if row else set()
            if had & unticked:
                revoke_access(user, asked.client_id, resource or None, request=request)
            Consent.objects.update_or_create(
                user=user,
                client_id=asked.client_id,
                resource=resource,
                defaults={
                    "scopes": sorted((had | set(scopes)) - unticked),
                    "agreed": sorted(scopes),
                    "redirect_host": destination_of(asked.redirect_uri).shown[:255],
                },
            )
        log(AuthEvent.Kind.CONSENT, asked, request, scopes=list(scopes))


def log(kind: str, asked: AuthorizationRequest, request: HttpRequest, **details: Any) -> None:
    """Put a decision of the user into the security log."""
    names = [server.name for _, server in servers_of(asked, request)]
    security_log.record(
        kind,
        request=request,
        user=request.user,
        client_id=asked.client_id,
        server=" ".join(names),
        redirect_host=destination_of(asked.redirect_uri).shown,
        **details,
    )


def _fixed_scopes(asked: AuthorizationRequest, request: HttpRequest) -> frozenset[str]:
    """The asked scopes without which the access would be of no use."""
    baseline = {"openid"}
    for _, server in servers_of(asked, request):
        baseline |= set(server.scopes)
    return frozenset(asked.scopes) & baseline


def _rows(asked: AuthorizationRequest, user: Any) -> dict[str, Consent]:
    rows = Consent.objects.filter(
        user=user, client_id=asked.client_id, resource__in=asked.resources or ("",)
    )
    return {row.resource: row for row in rows}


# Pages of the authorization server ----------------------------------------------------------------


def show(
    request: HttpRequest, template: str, context: dict[str, Any], *, status: int = 200
) -> HttpResponse:
    """A page made of a template of ``mcp_django/oauth/``."""
    return render(request, f"mcp_django/oauth/{template}", context, status=status)


def show_error(
    request: HttpRequest,
    *,
    title: str,
    message: str,
    detail: str = "",
    hint: str = "",
    status: int = 400,
) -> HttpResponse:
    """The page for what cannot go on and may be told to nobody but the user."""
    context = {"title": title, "message": message, "detail": detail, "hint": hint}
    return show(request, "error.html", context, status=status)


# Sign in with another account ---------------------------------------------------------------------

# For users who are signed in with an account that may not do what is asked, while another account
# of theirs may. A client that got the error at once would only send the user here again.


def offer_another_account(request: HttpRequest, refusal: Refused) -> HttpResponse | None:
    """A page of 403: sign in with another account, or go back to the client with the error.

    ``None`` where another account would not help, for ``prompt=none``, and after the user's answer.
    """
    silently = "none" in request.GET.get("prompt", "").split()
    if silently or request.method != "GET" or not isinstance(refusal, WrongAccount):
        return None
    location = with_issuer(refusal.location(), issuer_of(request))
    return show(request, "another_account.html", {"location": location}, status=403)


def switch_account(request: HttpRequest, path: str) -> HttpResponse:
    """Sign the user out and send him to the site's login page, which leads to ``path``."""
    logout(request)
    return redirect_to_login(path)
