"""Clients that prove who they are by their own key (RFC 7523, section 2.2; ``private_key_jwt``).

For clients that somebody registered by hand, with their public keys in the ``ClientProfile``.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_application_model

from mcp_django.auth.endpoints import canonical, origin_of
from mcp_django.conf import ALGORITHMS
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.responses import issuer_of

logger = logging.getLogger("mcp_django.security")

TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
MAX_SECONDS = 3600


def is_present(request: Any) -> bool:
    """Whether a request of oauthlib has a client assertion in it."""
    return bool(getattr(request, "client_assertion", None))


def has_keys(client_id: str) -> bool:
    """Whether the client's keys are known here; then it proves itself with nothing else."""
    found = ClientProfile._default_manager.filter(client_id=client_id).first()
    return found is not None and found.has_keys


@sensitive_variables("assertion")
def client_of(request: Any, http: HttpRequest) -> Any:
    """The client whose key has signed the assertion; ``None`` where none has.

    Raises:
        ImproperlyConfigured: PyJWT is not installed.
        AuthenticationUnavailable: the keys are somewhere else, and cannot be had now.
    """
    signed = import_signed()
    assertion = request.client_assertion
    if getattr(request, "client_assertion_type", None) != TYPE:
        return None
    try:
        named = signed.unverified(assertion).get("sub")
        client = _registered(named, claimed=request.client_id)
        profile = ClientProfile._default_manager.filter(client_id=named).first() if client else None
        if profile is None or not profile.has_keys or not client.is_usable(request):
            return None
        claims = signed.verified(
            assertion,
            find_key=signed.find_key_of(
                profile.jwks_url, jwks=profile.jwks or None, jwks_url=profile.jwks_url
            ),
            algorithms=ALGORITHMS,
            issuer=named,
            required=("jti",),
            max_seconds=MAX_SECONDS,
        )
        signed.see(claims["sub"] == named, "It names two clients.")
        signed.see(_is_for_us(claims["aud"], http), "It is for another server.")
        signed.see(signed.use(claims), "It was used before.")
    except signed.NotAccepted as exc:
        logger.info("A client assertion is not accepted: %s", exc)
        return None
    request.client_id = named
    return client


def import_signed() -> Any:
    """The module that reads JWTs.

    Raises:
        ImproperlyConfigured: PyJWT is not installed.
    """
    try:
        from mcp_django.oauth import assertion_jwts
    except ImportError as exc:
        raise ImproperlyConfigured(
            "Assertions are JWTs: install the extra 'jwt' (PyJWT with cryptography)."
        ) from exc
    return assertion_jwts


def _registered(client_id: Any, *, claimed: str | None) -> Any:
    """The confidential client of that id which was registered by hand, ``None`` for any other."""
    if not isinstance(client_id, str) or "\0" in client_id or claimed not in (None, "", client_id):
        return None
    model = get_application_model()
    return model._default_manager.filter(
        client_id=client_id,
        client_type=model.CLIENT_CONFIDENTIAL,
        registration_source=model.RegistrationSource.MANUAL,
    ).first()


def _is_for_us(audience: Any, request: HttpRequest) -> bool:
    """Whether an audience is this authorization server: its issuer, or its token endpoint."""
    issuer = issuer_of(request)
    ours = {canonical(issuer), issuer}
    # A site may have the toolkit's own views alone.
    with suppress(NoReverseMatch):
        ours.add(canonical(origin_of(request) + reverse("mcp_oauth:token")))
    named = audience if isinstance(audience, list) else [audience]
    return any(isinstance(one, str) and (canonical(one) or one) in ours for one in named)
