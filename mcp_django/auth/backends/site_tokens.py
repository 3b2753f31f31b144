"""The site's own credentials: access tokens, and the session cookie of a browser.

Access tokens are issued once, stored as a digest and looked up on every request.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user
from django.db import router
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth.backends import BaseBackend, CallerKey
from mcp_django.auth.credentials import Credentials, client_ip
from mcp_django.auth.endpoints import origin_of
from mcp_django.auth.principal import Principal, key_of, principal_for
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.models import TOKEN_PREFIX, AccessToken, token_digest
from mcp_django.storage.cache import Confirmed
from mcp_django.storage.statements import CompiledQuery, numbered, padded, parameters
from mcp_django.storage.writer import note_use
from mcp_django.tenants import current_tenant


@cache
def _tokens(count: int) -> CompiledQuery[AccessToken]:
    """Return the query for the tokens of ``count`` digests, with their users."""
    return CompiledQuery(
        lambda alias: (
            AccessToken.objects.using(alias)
            .select_related("user")
            .filter(digest__in=parameters(count))
            .order_by()
        )
    )


class TokenBackend(BaseBackend):
    """Looks up a bearer among the access tokens, with one query."""

    @sensitive_variables("bearer")
    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the token's user, with the token's scopes; ``None`` for an unknown bearer.

        An unknown bearer may belong to a later backend, so it is rejected only if all fail.
        """
        bearer = credentials.bearer
        if bearer is None or not bearer.startswith(TOKEN_PREFIX):
            return None
        alias = router.db_for_read(AccessToken)
        token = _tokens(1).first(alias, numbered([token_digest(bearer)]))
        if token is None or token.tenant != current_tenant() or not token.is_usable:
            return None
        if (token.servers or token.networks) and not token.allows(
            server=credentials.server, address=client_ip(credentials.request())
        ):
            return None
        note_use(token)
        return _principal(token)

    def confirm(
        self, keys: Collection[CallerKey], alias: str
    ) -> dict[CallerKey, Confirmed[Principal]]:
        """Return the users of valid tokens, with one query; leave out tokens bound to networks."""
        digests = padded([*{key.digest for key in keys if key.is_site_token}])
        if not digests:
            return {}
        rows = _tokens(len(digests)).rows(alias, numbered(digests))
        tokens = {token.digest: token for token in rows}
        callers: dict[CallerKey, Confirmed[Principal]] = {}
        for key in keys:
            token = tokens.get(key.digest)
            if token is None or not token.is_usable:
                continue
            # The address is not known here, so a token bound to networks is not allowed.
            if token.allows(server=key.server, address=None):
                note_use(token)
                callers[key] = Confirmed(_principal(token), frozenset())
        return callers

    def is_current(self, principal: Principal) -> bool:
        """Return whether the token is still valid."""
        token = AccessToken.objects.select_related("user").filter(pk=principal.credential).first()
        return token is not None and token.is_usable


def _principal(token: AccessToken) -> Principal:
    return principal_for(
        token.user,
        # Each token is a client: it cannot use the session of a token with other scopes.
        key=f"{key_of(token.user)}@token:{token.pk}",
        backend="tokens",
        scopes=frozenset(token.scopes),
        client_id=f"token:{token.pk}",
        credential=token.credential,
        expires_at=token.expires_at,
    )


class SessionBackend(BaseBackend):
    """Authenticates the user logged in with the session cookie, for the site's own pages.

    A browser sends the cookie with requests that any page causes, and the endpoint is exempt from
    Django's CSRF check. So a request that changes something has to have the CSRF token in its
    header, since only a page of this origin can read the token, and an ``Origin`` has to be the
    site's own: origins in ``ALLOWED_ORIGINS`` may call with a token, but never with a login.
    """

    def authenticate(self, credentials: Credentials) -> Principal | None:
        """Return the logged-in user, ``None`` if there is none.

        A request with a token is not authenticated by the cookie: a revoked token must not pass
        because the browser happens to be logged in.

        Raises:
            AuthenticationRequired: a user is logged in, but the request may be from another site.
        """
        if credentials.bearer is not None:
            return None
        request = credentials.request()
        if hasattr(request, "user"):
            user: Any = request.user
        else:
            # On the raw mount no middleware sets the user.
            engine = import_module(settings.SESSION_ENGINE)
            cookie_name = settings.SESSION_COOKIE_NAME
            request.session = engine.SessionStore(request.COOKIES.get(cookie_name))
            user = get_user(request)
        if not user.is_authenticated or not user.is_active:
            return None
        if not _is_same_origin(request):
            raise AuthenticationRequired(
                "A login cookie is accepted only from pages of this site; send a token."
            )
        check = _CsrfCheck(lambda request: HttpResponse())
        check.process_request(request)
        # A view in place of the endpoint's, which is exempt from the check.
        if check.process_view(request, lambda request: HttpResponse(), (), {}) is not None:
            header = settings.CSRF_HEADER_NAME.removeprefix("HTTP_").replace("_", "-").title()
            raise AuthenticationRequired(
                f"A login cookie needs the CSRF token in the header {header}."
            )
        return principal_for(user, backend="session")


def _is_same_origin(request: HttpRequest) -> bool:
    """Return whether a page of this origin sent the request; browsers may omit both headers."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if site not in {"same-origin", "none"}:
        return False
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    parts = urlsplit(origin_of(request))
    return origin.lower() == f"{parts.scheme}://{parts.netloc}"


class _CsrfCheck(CsrfViewMiddleware):
    """Django's CSRF check, whose rejection has the reason as its content."""

    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        return HttpResponse(reason, status=403)
