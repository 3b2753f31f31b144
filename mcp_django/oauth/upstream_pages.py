"""Views for upstream providers: callback, connecting and disconnecting an account, logout."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_not_required, login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from mcp_django.auth.pages import belongs_to, protect_page
from mcp_django.models import token_digest
from mcp_django.oauth import authorize, consent
from mcp_django.oauth.models import UpstreamGrant, UsedAssertion
from mcp_django.oauth.responses import error_response
from mcp_django.oauth.upstream import grants
from mcp_django.oauth.upstream.conf import (
    ProviderSettings,
    UpstreamRefused,
    UpstreamUnavailable,
    provider_settings,
)
from mcp_django.oauth.upstream.flow import (
    InvalidCallback,
    begin_authorization,
    complete_authorization,
    pop_transaction,
)
from mcp_django.oauth.upstream.provider import read_logout_token
from mcp_django.transports.bodies import BodyRefused, end_connection_if_unread, read_body

logger = logging.getLogger("mcp_django.security")
# How old a logout token may be.
LOGOUT_SECONDS = 600
MAX_LOGOUT_BYTES = 64 * 1024


@protect_page
@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Handle the user's return from a provider and complete the authorization request.

    Responds with an error page (400) if the callback does not match a pending transaction of this
    user and session; the client gets no response then.
    """
    _settings_or_404(provider)
    approved: dict[str, Any] = {}
    try:
        upstream_transaction = pop_transaction(request, provider)
        approved = dict(upstream_transaction.request)
        complete_authorization(request, upstream_transaction)
    except InvalidCallback as exc:
        return _render_page(request, provider, status=400, problem=str(exc))
    except (UpstreamRefused, UpstreamUnavailable) as exc:
        logger.info("A sign-in at %r failed: %s", provider, exc)
        is_over = isinstance(exc, UpstreamRefused)
        if approved:
            error = "access_denied" if is_over else "temporarily_unavailable"
            return authorize.reject_request(request, approved, error=error)
        problem = _("Your account was not connected.")
        return _render_page(request, provider, status=400 if is_over else 503, problem=problem)
    if approved:
        return authorize.finish_request(request, approved)
    return _render_page(request, provider, connected=True, done=True)


@protect_page
@login_required
@require_http_methods(["GET", "POST"])
def connect(request: HttpRequest, provider: str) -> HttpResponse:
    """Show the page where a user connects an account, also for URL elicitation of a running call.

    With ``interaction`` in the query, only the user who was asked may continue; this protects
    against phishing with the link (MCP, URL mode elicitation). Another user may sign in with
    another account.
    """
    _settings_or_404(provider)
    if request.POST.get("decision") == "switch":
        logout(request)
        return redirect_to_login(request.get_full_path())
    interaction = request.GET.get("interaction")
    if interaction is not None and not belongs_to(interaction, request.user):
        problem = _("Another user was asked to open this page. Sign in as that user.")
        return _render_page(request, provider, status=403, problem=problem, is_for_another=True)
    if grants.live_grant(request.user, provider) is not None:
        return _render_page(request, provider, connected=True)
    if request.method == "GET":
        return _render_page(request, provider)
    try:
        return begin_authorization(request, request.user, provider, {})
    except UpstreamUnavailable:
        problem = _("The provider does not respond at the moment. Try again later.")
        return _render_page(request, provider, status=503, problem=problem)


@protect_page
@login_required
@require_POST
def disconnect(request: HttpRequest, provider: str) -> HttpResponse:
    """End the user's own access at the provider, and revoke every token that depends on it."""
    _settings_or_404(provider)
    grant = grants.live_grant(request.user, provider)
    if grant is not None:
        grants.disconnect_grant(grant, reason="disconnected by the user", request=request)
    return _render_page(request, provider)


@login_not_required
@csrf_exempt
@require_POST
def backchannel_logout(request: HttpRequest, provider: str) -> HttpResponseBase:
    """End access whose session ended upstream (OpenID Connect Back-Channel Logout 1.0)."""
    settings = _settings_or_404(provider)
    if not settings.is_openid:
        raise Http404
    try:
        read_body(request, MAX_LOGOUT_BYTES)
        claims = read_logout_token(settings, request.POST.get("logout_token", ""))
        # If ending the access fails, the token stays unused, so that the provider can retry.
        with transaction.atomic(using=router.db_for_write(UsedAssertion)):
            _mark_token_used(settings, claims)
            # The token ends the access of its session, or of its subject.
            rows = UpstreamGrant.objects.filter(provider=provider, status=UpstreamGrant.Status.LIVE)
            if claims.get("sub"):
                rows = rows.filter(subject=claims["sub"])
            if claims.get("sid"):
                # If the ID token had no session id, the logout applies to the subject.
                session_ids = ["", claims["sid"]] if claims.get("sub") else [claims["sid"]]
                rows = rows.filter(session_id__in=session_ids)
            for grant in rows:
                grants.revoke_grant(grant, reason="logged out upstream", request=request)
    except UpstreamRefused as exc:
        logger.warning("Logout token for %r rejected: %s", provider, exc)
        return error_response("invalid_request", str(exc))
    except BodyRefused as exc:
        refused = error_response("invalid_request", str(exc), status=exc.status)
        return end_connection_if_unread(request, refused)
    except UpstreamUnavailable:
        body, status = {"error": "temporarily_unavailable"}, 503
    else:
        body, status = {}, 200
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})


def _settings_or_404(name: str) -> ProviderSettings:
    try:
        return provider_settings(name)
    except ImproperlyConfigured as exc:
        raise Http404 from exc


def _mark_token_used(settings: ProviderSettings, claims: dict[str, Any]) -> None:
    """Reject a replayed logout token, which would end a newer session.

    Raises:
        UpstreamRefused: if the token was already used, or is too old to tell.
    """
    age = timezone.now() - datetime.fromtimestamp(int(claims["iat"]), UTC)
    if age > timedelta(seconds=LOGOUT_SECONDS):
        raise UpstreamRefused("The token is too old.")
    used = UsedAssertion(
        digest=token_digest(f"logout {settings.issuer} {claims['jti']}"),
        expires_at=timezone.now() + timedelta(seconds=2 * LOGOUT_SECONDS),
    )
    if not used.mark_used():
        raise UpstreamRefused("The token was already used.")


def _render_page(
    request: HttpRequest, provider: str, *, status: int = 200, **extra: str | bool
) -> HttpResponse:
    context = {"provider": provider_settings(provider).label, "name": provider, **extra}
    return consent.render_page(request, "upstream.html", context, status=status)
