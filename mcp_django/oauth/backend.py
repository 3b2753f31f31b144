"""Authentication with access tokens of the site's authorization server (RFC 6750, RFC 8707).

The toolkit's ``verify_request`` is not used: it accepts a token without an audience everywhere,
compares audiences by prefix, does not reject tokens of inactive users, and accepts registration
tokens and ID tokens.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from functools import cache
from typing import Any

from django.db import router
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import (
    AbstractAccessToken,
    AbstractApplication,
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request

from mcp_django.auth.backends import BaseBackend, CallerKey
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.endpoints import canonicalize_url
from mcp_django.auth.principal import Principal, key_of, principal_for
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import TOKEN_PREFIX, token_digest
from mcp_django.oauth.responses import issuer_of
from mcp_django.oauth.upstream import bindings
from mcp_django.storage.cache import Confirmed
from mcp_django.storage.statements import CompiledQuery, numbered, padded, parameters
from mcp_django.storage.writer import note_use

# Maximum length of a client id in a principal's key, which is stored in columns and cache keys; a
# longer one is replaced by its digest.
MAX_CLIENT_ID = 60
FAMILY = "family:"
CHECKSUM = "checksum:"
# Tokens of the device and password grants are rejected: no consent page bound them to a server.
_CODE_GRANTS = frozenset({"authorization-code", "openid-hybrid"})
_MACHINE_GRANT = "client-credentials"


class OAuthBackend(BaseBackend):
    """Authenticate a bearer token that this site issued, with one query."""

    @sensitive_variables("bearer", "checksum")
    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the token's user with its scopes, or ``None`` for a token of another issuer.

        Raises:
            AuthenticationRequired: if this site issued the token and it is not valid here now. The
                message is the same for every reason, so that it reveals nothing.
            AuthenticationUnavailable: if the token depends on upstream access that cannot be
                checked now.
        """
        bearer = credentials.bearer
        if bearer is None or bearer.startswith(TOKEN_PREFIX):
            return None
        checksum, model = token_digest(bearer), get_access_token_model()
        if get_settings().oauth.upstream:
            token = bindings.annotate_tokens(
                _tokens(model, [checksum]), credentials.upstream
            ).first()
        else:
            alias = router.db_for_read(model)
            token = _token_query(model, 1).first(alias, numbered([checksum]))
        if token is None:
            return None
        request, resource = credentials.request(), credentials.resource
        if not _is_valid_for(token, resource, request):
            raise AuthenticationRequired(
                "The token is unknown, expired or revoked.", error="invalid_token"
            )
        bindings.check_token(token, credentials.upstream)
        # For the page of connected assistants.
        note_use(token, "updated")
        return _principal(token, audience=resource, issuer=issuer_of(request))

    def confirm(
        self, keys: Collection[CallerKey], alias: str
    ) -> dict[CallerKey, Confirmed[Principal]]:
        """Return the principal of each key whose token is valid, with one query."""
        checksums = padded([*{key.digest for key in keys if not key.is_site_token}])
        if not checksums:
            return {}
        query = _token_query(get_access_token_model(), len(checksums))
        rows = query.rows(alias, numbered(checksums))
        tokens = {token.token_checksum: token for token in rows}
        principals: dict[CallerKey, Confirmed[Principal]] = {}
        for key in keys:
            token = tokens.get(key.digest)
            if token is not None and _is_valid_for(token, key.resource, None):
                note_use(token, "updated")
                tags = {f"oauth-token:{token.pk}", f"client:{token.application_id}"}
                principal = _principal(token, audience=key.resource, issuer=key.issuer)
                principals[key] = Confirmed(principal, frozenset(tags))
        return principals

    def why_not_confirmable(self) -> str:
        """Return which model of the site has its own check of validity; empty if none has."""
        for model, base, name in (
            (get_application_model(), AbstractApplication, "is_usable"),
            (get_access_token_model(), AbstractAccessToken, "is_expired"),
        ):
            if getattr(model, name) is not getattr(base, name):
                return f"{model.__name__} has an {name}() of its own"
        return ""

    def is_current(self, principal: Principal) -> bool:
        """Return whether the principal's credential is still valid, with one query.

        Checks the token family if there is one, since each refresh replaces the access token.
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
        """Return the issuers that this backend accepts (RFC 9728, ``authorization_servers``)."""
        return (issuer_of(request),)


def _tokens(model: Any, checksums: Collection[str]) -> Any:
    related = ("user", "application", "refresh_token")
    return model._default_manager.select_related(*related).filter(token_checksum__in=checksums)


@cache
def _token_query(model: Any, count: int) -> CompiledQuery[Any]:
    return CompiledQuery(lambda alias: _tokens(model, parameters(count)).using(alias).order_by())


def _is_valid_for(token: Any, resource: str, request: HttpRequest | None) -> bool:
    """Return whether a token is valid for this resource now.

    Without a request, ``is_usable`` of the application is not called. If the site's application
    model overrides it, callers are not cached.
    """
    application, user, oauth = token.application, token.user, get_settings().oauth
    return bool(
        not token.is_expired()
        and resource
        and resource in {canonicalize_url(url) for url in token.resource}
        and user is not None
        and user.is_active
        and application is not None
        and (
            application.authorization_grant_type in _CODE_GRANTS
            or (
                application.authorization_grant_type == _MACHINE_GRANT
                and (oauth.client_credentials or oauth.trusted_issuers)
            )
        )
        and (request is None or application.is_usable(_as_oauthlib(resource, request)))
        and oauth2_settings.DCR_REGISTRATION_SCOPE not in token.scope.split()
    )


def _as_oauthlib(resource: str, request: HttpRequest) -> Request:
    """Return an oauthlib request for the toolkit's ``is_usable``, without the credentials."""
    headers = {name: value for name, value in request.headers.items() if name != "Authorization"}
    return Request(resource, http_method=request.method or "POST", headers=headers)


def _principal(token: Any, *, audience: str, issuer: str) -> Principal:
    refresh = getattr(token, "refresh_token", None)
    family = refresh.token_family if refresh is not None else None
    client_id = token.application.client_id
    is_short = len(client_id) <= MAX_CLIENT_ID
    short_id = client_id if is_short else token_digest(client_id)[:MAX_CLIENT_ID]
    return principal_for(
        token.user,
        key=f"{key_of(token.user)}@{short_id}",
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
