"""Where providers send users back to, and where users connect an account by themselves."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_not_required, login_required
from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from mcp_django.auth.pages import belongs_to
from mcp_django.oauth.models import UpstreamGrant, UsedAssertion
from mcp_django.oauth.pages import guarded, show
from mcp_django.oauth.upstream import endings, flow, transactions
from mcp_django.oauth.upstream.conf import ProviderSettings, provider_settings
from mcp_django.oauth.upstream.errors import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.grants import live_grant
from mcp_django.oauth.upstream.identity import digest_of, read_logout_token
from mcp_django.oauth.views import another_account

logger = logging.getLogger("mcp_django.security")
# How old a logout token may be.
LOGOUT_SECONDS = 600


def _settings_or_404(name: str) -> ProviderSettings:
    try:
        return provider_settings(name)
    except ImproperlyConfigured as exc:
        raise Http404 from exc


@guarded
@require_GET
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Take a user back from a provider and go on with what he was about to do.

    Answers 400 with a page where it is not the user that was sent there, in his own browser, for
    the first time and in time; nothing is told to any client then.
    """
    settings = _settings_or_404(provider)
    try:
        returned = transactions.take(request, provider)
    except transactions.Lost as exc:
        return _shown(request, settings, status=400, problem=str(exc))
    approved = dict(returned.request)
    try:
        transactions.complete(request, returned)
    except transactions.Lost as exc:
        return _shown(request, settings, status=400, problem=str(exc))
    except (UpstreamRefused, UpstreamUnavailable) as exc:
        logger.info("A sign-in at %r came to nothing: %s", provider, exc)
        is_over = isinstance(exc, UpstreamRefused)
        if approved:
            error = "access_denied" if is_over else "temporarily_unavailable"
            return flow.refused(request, approved, error)
        problem = _("You were not connected.")
        return _shown(request, settings, status=400 if is_over else 503, problem=problem)
    if approved:
        return flow.finished(request, approved)
    return _shown(request, settings, connected=True, done=True)


@guarded
@login_required
@require_http_methods(["GET", "POST"])
def connect(request: HttpRequest, provider: str) -> HttpResponse:
    """Where a user is sent who has to connect an account for a running call (AUT-33).

    With ``interaction`` in the query, whoever opens the page has to be the one who was asked, and
    others may sign in anew.
    """
    settings = _settings_or_404(provider)
    if request.POST.get("decision") == "switch":
        return another_account.switch(request, request.get_full_path())
    interaction = request.GET.get("interaction")
    if interaction is not None and not belongs_to(interaction, request.user):
        problem = _("Somebody else was asked to open this page. Sign in as the right user.")
        return _shown(request, settings, status=403, problem=problem, is_for_another=True)
    if live_grant(request.user, provider) is not None:
        return _shown(request, settings, connected=True)
    if request.method == "GET":
        return _shown(request, settings)
    try:
        return transactions.begin(request, request.user, provider, {})
    except UpstreamUnavailable:
        problem = _("It does not answer at the moment. Try again later.")
        return _shown(request, settings, status=503, problem=problem)


@guarded
@login_required
@require_POST
def disconnect(request: HttpRequest, provider: str) -> HttpResponse:
    """End a user's own access, here with every token that stands on it, and at the provider."""
    settings = _settings_or_404(provider)
    grant = live_grant(request.user, provider)
    if grant is not None:
        endings.disconnect(grant, reason="disconnected by the user", request=request)
    return _shown(request, settings)


@login_not_required
@csrf_exempt
@require_POST
def backchannel_logout(request: HttpRequest, provider: str) -> HttpResponse:
    """End what stands on a session that ended upstream (OpenID Connect Back-Channel Logout)."""
    settings = _settings_or_404(provider)
    if not settings.is_openid:
        raise Http404
    try:
        claims = read_logout_token(settings, request.POST.get("logout_token", ""))
        # Whoever got no answer tells it again, so it was not used where it did nothing.
        with transaction.atomic(using=router.db_for_write(UsedAssertion)):
            _use_once(settings, claims)
            for grant in _ended(provider, claims):
                endings.end(grant, reason="logged out upstream", request=request)
    except UpstreamRefused as exc:
        logger.warning("A logout token for %r was refused: %s", provider, exc)
        return _told({"error": "invalid_request", "error_description": str(exc)}, status=400)
    except UpstreamUnavailable:
        return _told({"error": "temporarily_unavailable"}, status=503)
    return _told({}, status=200)


def _ended(provider: str, claims: dict[str, Any]) -> list[UpstreamGrant]:
    """The grants of the session, or of every session of the subject."""
    grants = UpstreamGrant.objects.filter(provider=provider, status=UpstreamGrant.Status.LIVE)
    if claims.get("sub"):
        grants = grants.filter(subject=claims["sub"])
    if claims.get("sid"):
        # A provider that gave no session id with the ID token means the subject.
        known = ["", claims["sid"]] if claims.get("sub") else [claims["sid"]]
        grants = grants.filter(session_id__in=known)
    return list(grants)


def _use_once(settings: ProviderSettings, claims: dict[str, Any]) -> None:
    """Refuse a logout token that came before, which would end a newer session.

    Raises:
        UpstreamRefused: it came before, or is too old to know.
    """
    age = timezone.now() - datetime.fromtimestamp(int(claims["iat"]), UTC)
    if age > timedelta(seconds=LOGOUT_SECONDS):
        raise UpstreamRefused("The token is too old.")
    used = UsedAssertion(
        digest=digest_of(f"logout {settings.issuer} {claims['jti']}"),
        expires_at=timezone.now() + timedelta(seconds=2 * LOGOUT_SECONDS),
    )
    if not used.claim():
        raise UpstreamRefused("The token was used before.")


def _told(body: dict[str, str], *, status: int) -> HttpResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store"})


def name_of(request: HttpRequest) -> str:
    """The provider that the address names."""
    return str(request.resolver_match.kwargs["provider"]) if request.resolver_match else ""


def _shown(
    request: HttpRequest,
    settings: ProviderSettings,
    *,
    status: int = 200,
    problem: str = "",
    connected: bool = False,
    done: bool = False,
    is_for_another: bool = False,
) -> HttpResponse:
    context = {
        "provider": settings.label,
        "name": name_of(request),
        "problem": problem,
        "connected": connected,
        "done": done,
        "is_for_another": is_for_another,
    }
    return show(request, "upstream.html", context, status=status)
