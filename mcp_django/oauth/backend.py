"""Access tokens of the site's own authorization server, at an endpoint (RFC 6750, RFC 8707).

The toolkit's ``verify_request`` is not asked: it takes a token without an audience for one that is
good everywhere, compares audiences by prefix, and looks neither at inactive users nor away from
registration tokens and ID tokens (AUT-9, AUT-10).
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, get_refresh_token_model
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request

from mcp_django.auth.backends import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.endpoints import canonical
from mcp_django.auth.principal import Principal, key_of, principal_for
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import TOKEN_PREFIX
from mcp_django.oauth.responses import issuer_of
from mcp_django.oauth.upstream import bindings

# What a principal's key may take up of a client's name: it goes into columns and counters.
MAX_CLIENT_ID = 60
# Writing the time of last use on every request would make every read a write.
LAST_USED_RESOLUTION = timedelta(minutes=10)
FAMILY = "family:"
CHECKSUM = "checksum:"
# A device's token was bound to nobody's consent page, and a password's to none at all.
_CODE_GRANTS = frozenset({"authorization-code", "openid-hybrid"})
_MACHINE_GRANT = "client-credentials"


class OAuthBackend(BaseBackend):
    """Looks a bearer up among the tokens that this site has issued: one query."""

    @sensitive_variables("bearer", "checksum")
    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The token's user with the token's scopes; ``None`` for a bearer that is not ours.

        Raises:
            AuthenticationRequired: the token is ours and does not hold here and now. It is not
                said why: whoever holds a token learns nothing about others.
            TemporarilyUnavailable: it stands on upstream access that cannot be asked about.
        """
        bearer = credentials.bearer
        if bearer is None or bearer.startswith(TOKEN_PREFIX):
            return None
        checksum = hashlib.sha256(bearer.encode("utf-8", "replace")).hexdigest()
        tokens = get_access_token_model()._default_manager.filter(token_checksum=checksum)
        related = ("user", "application", "refresh_token")
        token = bindings.annotate(tokens.select_related(*related), credentials.upstream).first()
        if token is None:
            return None
        request, resource = credentials.request(), credentials.resource
        if not _holds(token, resource, request):
            raise AuthenticationRequired(
                "The token is unknown, expired or revoked.", error="invalid_token"
            )
        bindings.check(token, credentials.upstream)
        _note_use(token)
        return _principal(token, audience=resource, issuer=issuer_of(request))

    def is_current(self, principal: Principal) -> bool:
        """Whether what the principal was let in with still holds: one query.

        Asked about the family of tokens, since each refresh replaces the token itself.
        """
        active = Q(user__is_active=True)
        if principal.credential.startswith(FAMILY):
            family = uuid.UUID(principal.credential.removeprefix(FAMILY))
            live = Q(token_family=family, revoked=None, access_token__isnull=False)
            model = get_refresh_token_model()
        else:
            checksum = principal.credential.removeprefix(CHECKSUM)
            live = Q(token_checksum=checksum, expires__gt=timezone.now())
            model = get_access_token_model()
        return bool(model._default_manager.filter(live & active).exists())

    def issuers(self, request: HttpRequest, server: str = "") -> tuple[str, ...]:
        """Who issues the tokens that this backend takes (RFC 9728, ``authorization_servers``)."""
        return (issuer_of(request),)


def _note_use(token: Any) -> None:
    """Note the call for the user's page of connected assistants, every ten minutes at most."""
    now = timezone.now()
    if now - token.updated >= LAST_USED_RESOLUTION:
        tokens = get_access_token_model()._default_manager
        tokens.filter(pk=token.pk, updated=token.updated).update(updated=now)


def _holds(token: Any, resource: str, request: HttpRequest) -> bool:
    """Whether a token opens this resource now."""
    application, user = token.application, token.user
    return bool(
        not token.is_expired()
        and resource
        and resource in {canonical(one) for one in token.resource}
        and user is not None
        and user.is_active
        and application is not None
        and _may_call(application)
        and application.is_usable(_as_oauthlib(resource, request))
        and oauth2_settings.DCR_REGISTRATION_SCOPE not in token.scope.split()
    )


def _may_call(application: Any) -> bool:
    """Whether tokens of the application's grant are for calling servers."""
    grant = application.authorization_grant_type
    if grant == _MACHINE_GRANT:
        settings = get_settings().oauth
        return settings.client_credentials or bool(settings.trusted_issuers)
    return grant in _CODE_GRANTS


def _as_oauthlib(resource: str, request: HttpRequest) -> Request:
    """What the toolkit's ``is_usable`` is handed, without the credentials in it."""
    headers = {name: value for name, value in request.headers.items() if name != "Authorization"}
    return Request(resource, http_method=request.method or "POST", headers=headers)


def _principal(token: Any, *, audience: str, issuer: str) -> Principal:
    refresh = getattr(token, "refresh_token", None)
    family = refresh.token_family if refresh is not None else None
    client_id = token.application.client_id
    return principal_for(
        token.user,
        key=f"{key_of(token.user)}@{_short(client_id)}",
        backend="oauth",
        scopes=frozenset(token.scope.split()),
        client_id=client_id,
        client_name=token.application.name,
        issuer=issuer,
        subject=str(token.user_id),
        audience=audience,
        credential=f"{FAMILY}{family}" if family else f"{CHECKSUM}{token.token_checksum}",
        expires_at=token.expires,
    )


def _short(client_id: str) -> str:
    """A client's id, or its digest where that would be too long for the columns it goes into."""
    if len(client_id) <= MAX_CLIENT_ID:
        return client_id
    return hashlib.sha256(client_id.encode()).hexdigest()[:MAX_CLIENT_ID]
