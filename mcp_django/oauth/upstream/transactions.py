"""Sending a user to a provider after his consent, and taking him back (MCP 2025-03-26, "Third-Party
Authorization Flow").

Between the two stands a transaction: a row that names the user, and a state that his browser
session knows. Both are used once, within ten minutes. The row is written when the consent has been
given and never before, or whoever has our client id at the provider could skip it (AUT-32).
"""

from __future__ import annotations

import hmac
import secrets
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth.endpoints import origin_of
from mcp_django.auth.security_log import record
from mcp_django.models import AuthEvent
from mcp_django.oauth.models import UpstreamGrant, UpstreamTransaction
from mcp_django.oauth.upstream.errors import UpstreamRefused, UpstreamUnavailable
from mcp_django.oauth.upstream.grants import keep
from mcp_django.oauth.upstream.identity import digest_of
from mcp_django.oauth.upstream.provider import Provider
from mcp_django.oauth.upstream.sealing import seal, unseal

TRANSACTION_SECONDS = 600
SESSION_KEY = "mcp_django_upstream"
# A user signs in to one thing at a time, in a few tabs.
MAX_PENDING = 5


class Lost(Exception):
    """Whoever came back from a provider is not whom we sent there; the text is for the page."""


@sensitive_variables()
def begin(
    request: HttpRequest, user: Any, name: str, approved_request: dict[str, Any]
) -> HttpResponse:
    """Open a transaction and redirect to the provider.

    Raises:
        UpstreamUnavailable: the provider has to tell its endpoints and does not answer.
    """
    provider = Provider(name)
    state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
    target = provider.authorize_url(
        state=state, nonce=nonce, verifier=verifier, redirect_uri=redirect_uri(request, name)
    )
    UpstreamTransaction.objects.create(
        digest=digest_of(state),
        provider=name,
        user=user,
        verifier_cipher=seal(verifier),
        nonce_digest=digest_of(nonce),
        request=approved_request,
        expires_at=timezone.now() + timedelta(seconds=TRANSACTION_SECONDS),
    )
    pending = [*request.session.get(SESSION_KEY, []), digest_of(state)]
    request.session[SESSION_KEY] = pending[-MAX_PENDING:]
    response = HttpResponseRedirect(target)
    response["Cache-Control"] = "no-store"
    response["Referrer-Policy"] = "no-referrer"
    return response


def redirect_uri(request: HttpRequest, name: str) -> str:
    """The address that is registered at the provider."""
    path = reverse("mcp_oauth:upstream_callback", kwargs={"provider": name})
    return f"{origin_of(request)}{path}"


@sensitive_variables()
def take(request: HttpRequest, name: str) -> UpstreamTransaction:
    """The transaction that a callback belongs to, which is used up by this.

    Raises:
        Lost: the state is unknown, used or expired, or of another session, user or provider.
    """
    digest = digest_of(request.GET.get("state", ""))
    pending = list(request.session.get(SESSION_KEY, []))
    if not any(hmac.compare_digest(digest, one) for one in pending):
        raise Lost(_("This sign-in was not begun in this browser, or was finished already."))
    request.session[SESSION_KEY] = [one for one in pending if one != digest]
    transaction = UpstreamTransaction.objects.filter(digest=digest).first()
    # Of two requests that found the row, one deletes it.
    if transaction is None or not UpstreamTransaction.objects.filter(pk=transaction.pk).delete()[0]:
        raise Lost(_("This sign-in was finished already."))
    if transaction.expires_at <= timezone.now():
        raise Lost(_("This sign-in took too long."))
    if transaction.user_id != request.user.pk or transaction.provider != name:
        raise Lost(_("This sign-in was begun by somebody else."))
    return transaction


@sensitive_variables()
def complete(request: HttpRequest, transaction: UpstreamTransaction) -> UpstreamGrant:
    """Exchange the code that came back, and store what it gives access to.

    Raises:
        Lost: the answer is another provider's (RFC 9207).
        UpstreamRefused: the user said no, or the code or ID token does not hold.
        UpstreamUnavailable: the provider does not answer.
    """
    provider = Provider(transaction.provider)
    _check_issuer(provider, request.GET.getlist("iss"))
    error, code = request.GET.get("error", ""), request.GET.get("code", "")
    if error in {"server_error", "temporarily_unavailable"}:
        raise UpstreamUnavailable("The provider cannot sign anybody in now.")
    if error or not code:
        raise UpstreamRefused("The user or the provider said no.")
    tokens = provider.exchange(
        code=code,
        verifier=unseal(transaction.verifier_cipher),
        redirect_uri=redirect_uri(request, provider.name),
    )
    claims = provider.identify(tokens, nonce_digest=transaction.nonce_digest)
    grant = keep(transaction.user, provider.name, tokens, claims)
    record(
        AuthEvent.Kind.UPSTREAM,
        request=request,
        user=transaction.user,
        client_id=str(transaction.request.get("client_id", "")),
        provider=provider.name,
        change="granted",
        scopes=grant.scopes,
    )
    return grant


def _check_issuer(provider: Provider, given: list[str]) -> None:
    expected = provider.settings.issuer
    if not given and not provider.endpoints.sends_issuer:
        return
    if expected and given != [expected]:
        raise Lost(_("The answer came from another provider than the one that was asked."))
