"""The authorization flow at an upstream provider: from the redirect to the tokens.

MCP 2025-03-26, "Third-Party Authorization Flow". A transaction connects the redirect and the
callback: a row with the user, and a ``state`` stored in the user's session. Both can be used once,
within ten minutes. The row is created only after the user's consent; otherwise a client could skip
the consent page of this site, since the provider may remember its own consent for this site
(confused deputy problem).
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
from mcp_django.auth.security_log import record_event
from mcp_django.models import AuthEvent, token_digest
from mcp_django.oauth.models import UpstreamGrant, UpstreamTransaction
from mcp_django.oauth.upstream import grants
from mcp_django.oauth.upstream.conf import (
    UpstreamRefused,
    UpstreamUnavailable,
)
from mcp_django.oauth.upstream.provider import Provider

TRANSACTION_SECONDS = 600
SESSION_KEY = "mcp_django_upstream"
# A user may sign in in several tabs.
MAX_PENDING = 5


class InvalidCallback(Exception):
    """A callback does not match a transaction of the user; the page shows the message."""


@sensitive_variables()
def begin_authorization(
    request: HttpRequest, user: Any, name: str, approved_request: dict[str, Any]
) -> HttpResponse:
    """Create a transaction and return the redirect to the provider.

    Raises:
        UpstreamUnavailable: if the provider's metadata is needed and the provider does not respond.
    """
    provider = Provider(name)
    state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
    target = provider.authorize_url(
        state=state, nonce=nonce, verifier=verifier, redirect_uri=_redirect_uri(request, name)
    )
    UpstreamTransaction.objects.create(
        digest=token_digest(state),
        provider=name,
        user=user,
        verifier_cipher=grants.encrypt(verifier),
        nonce_digest=token_digest(nonce),
        request=approved_request,
        expires_at=timezone.now() + timedelta(seconds=TRANSACTION_SECONDS),
    )
    pending = [*request.session.get(SESSION_KEY, []), token_digest(state)]
    request.session[SESSION_KEY] = pending[-MAX_PENDING:]
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return HttpResponseRedirect(target, headers=headers)


def _redirect_uri(request: HttpRequest, name: str) -> str:
    """Return the redirect URI that is registered at the provider."""
    path = reverse("mcp_oauth:upstream_callback", kwargs={"provider": name})
    return f"{origin_of(request)}{path}"


@sensitive_variables()
def pop_transaction(request: HttpRequest, name: str) -> UpstreamTransaction:
    """Return the transaction of a callback, and delete it.

    Raises:
        InvalidCallback: if the state is unknown, used or expired, or of another session, user or
            provider.
    """
    digest = token_digest(request.GET.get("state", ""))
    pending = list(request.session.get(SESSION_KEY, []))
    if not any(hmac.compare_digest(digest, pending_digest) for pending_digest in pending):
        raise InvalidCallback(
            _("This sign-in was not started in this browser, or is already finished.")
        )
    request.session[SESSION_KEY] = [
        pending_digest for pending_digest in pending if pending_digest != digest
    ]
    transaction = UpstreamTransaction.objects.filter(digest=digest).first()
    # If two requests have read the row, only one of them can delete it.
    if transaction is None or not UpstreamTransaction.objects.filter(pk=transaction.pk).delete()[0]:
        raise InvalidCallback(_("This sign-in is already finished."))
    if transaction.expires_at <= timezone.now():
        raise InvalidCallback(_("This sign-in took too long."))
    if transaction.user_id != request.user.pk or transaction.provider != name:
        raise InvalidCallback(_("This sign-in was started by another user."))
    return transaction


@sensitive_variables()
def complete_authorization(request: HttpRequest, transaction: UpstreamTransaction) -> UpstreamGrant:
    """Exchange the code of the callback, and store the tokens.

    Raises:
        InvalidCallback: if the response is from another provider (RFC 9207).
        UpstreamRefused: if the user denied access, or the code or ID token is not valid.
        UpstreamUnavailable: if the provider does not respond.
    """
    provider = Provider(transaction.provider)
    issuers, expected = request.GET.getlist("iss"), provider.settings.issuer
    if (issuers or provider.endpoints.sends_issuer) and expected and issuers != [expected]:
        raise InvalidCallback(
            _("The response came from a different provider than the one you were sent to.")
        )
    error, code = request.GET.get("error", ""), request.GET.get("code", "")
    if error in {"server_error", "temporarily_unavailable"}:
        raise UpstreamUnavailable("The provider cannot sign users in at the moment.")
    if error or not code:
        raise UpstreamRefused("The user or the provider denied the access.")
    tokens = provider.exchange(
        code=code,
        verifier=grants.decrypt(transaction.verifier_cipher),
        redirect_uri=_redirect_uri(request, provider.name),
    )
    claims = provider.identify(tokens, nonce_digest=transaction.nonce_digest)
    grant = grants.save_grant(transaction.user, provider.name, tokens, claims)
    record_event(
        AuthEvent.Kind.UPSTREAM,
        request=request,
        user=transaction.user,
        client_id=str(transaction.request.get("client_id", "")),
        provider=provider.name,
        change="granted",
        scopes=grant.scopes,
    )
    return grant
