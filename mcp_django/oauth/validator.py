"""The toolkit's validator with stricter rules for MCP servers (OAuth 2.1).

Users have to be active and allowed to connect each time a token is issued. A code or refresh token
that is used twice revokes all tokens issued from it. Every token of a self-registered client has an
audience. Codes are stored as digests. The toolkit's own views do not change for the site's other
clients.
"""

from __future__ import annotations

from typing import Any

from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749 import errors

from mcp_django.auth import security_log
from mcp_django.auth.endpoints import canonicalize_url, server_of
from mcp_django.execution.policy import can_connect
from mcp_django.models import AuthEvent, token_digest
from mcp_django.oauth import assertions
from mcp_django.oauth.cimd import document_access_of
from mcp_django.oauth.clients import OAuthlibHttpRequest, update_last_used
from mcp_django.oauth.grants import log_issue, seconds_left
from mcp_django.oauth.models import RedeemedCode
from mcp_django.oauth.revoking import family_of, is_family_live, revoke_family, revoke_token
from mcp_django.oauth.upstream import bindings

CODE = "authorization_code"
REFRESH = "refresh_token"


class Validator(OAuth2Validator):  # type: ignore[misc]  # the toolkit has no types
    """The value of ``OAUTH2_PROVIDER["OAUTH2_VALIDATOR_CLASS"]``."""

    # Clients

    def _load_application(self, client_id: str | None, request: Any) -> Any:
        """Return the usable client with exactly this id, ``None`` if there is none.

        The column is the toolkit's, so the database may ignore case, accents and blanks. URLs of
        metadata documents that differ only in these are different clients.
        """
        client = super()._load_application(client_id, request)
        if client is not None and client.client_id != client_id:
            client = request.client = None
        return client

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return whether the client has to authenticate; always, if it sends an assertion."""
        if assertions.is_present(request):
            return True
        return bool(super().client_authentication_required(request, *args, **kwargs))

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Authenticate the client by an assertion (RFC 7523) or its secret; return the result.

        A client with keys can authenticate only with them. A client id in the form has to be that
        of the authenticated client, since oauthlib 3 uses the one in the form.
        """
        claimed = request.client_id
        if assertions.is_present(request):
            request.client = assertions.authenticate_by_assertion(
                request, OAuthlibHttpRequest(request)
            )
            return request.client is not None
        if not super().authenticate_client(request, *args, **kwargs):
            return False
        client_id = request.client.client_id
        return claimed in (None, "", client_id) and not assertions.client_has_keys(client_id)

    def validate_client_id(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Return whether the client may send an authorization request.

        A self-registered client may use only the authorization endpoint of this app. The toolkit's
        own consent page, which a site may serve too, names no server and can be skipped.
        """
        if not super().validate_client_id(client_id, request, *args, **kwargs):
            return False
        return document_access_of(request) is not None or not _is_dynamic(request.client)

    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return whether the client may use the grant; self-registered ones need user consent."""
        if _is_dynamic(client) and grant_type not in (CODE, REFRESH):
            return False
        return bool(
            super().validate_grant_type(client_id, grant_type, client, request, *args, **kwargs)
        )

    # Codes

    def _create_authorization_code(self, request: Any, code: Any, expires: Any = None) -> Any:
        stored = {**code, "code": token_digest(code["code"])}
        return super()._create_authorization_code(request, stored, expires)

    def get_authorization_code_scopes(
        self, client_id: str, code: str, redirect_uri: str, request: Any
    ) -> list[str]:
        """Return the scopes of a code before its validation, to detect requests for an ID token."""
        hashed = token_digest(code)
        return list(super().get_authorization_code_scopes(client_id, hashed, redirect_uri, request))

    def validate_code(
        self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return whether the code is valid; if it was used before, revoke its tokens."""
        # Everything after this looks the code up by its digest.
        request.code = token_digest(code)
        if super().validate_code(client_id, request.code, client, request, *args, **kwargs):
            grant = get_grant_model()._default_manager.get(code=request.code)
            return _may_still_connect(grant.user, client, grant.resource)
        redeemed = RedeemedCode._default_manager.filter(digest=request.code).first()
        if redeemed is not None:
            family, checksum = redeemed.family, redeemed.checksum
            ended = revoke_family(family) if family else revoke_token(checksum)
            # If nothing was left to revoke, repeated attempts must not fill the table.
            note = security_log.record_event if ended else security_log.record_limited
            note(
                AuthEvent.Kind.REPLAY,
                request=OAuthlibHttpRequest(request),
                client_id=_client_id(request),
                what="authorization code",
                ended=ended,
            )
        return False

    # Refresh tokens

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Return whether the refresh token is valid; a rotated one revokes its token family."""
        tokens = get_refresh_token_model()._default_manager
        rows = tokens.filter(token_checksum=token_digest(refresh_token))
        row = rows.order_by("-pk").first()
        was_live = row is not None and row.revoked is not None and is_family_live(row.token_family)
        if super().validate_refresh_token(refresh_token, client, request, *args, **kwargs):
            used = request.refresh_token_instance
            return _may_still_connect(
                used.user, client, used.resource
            ) and bindings.has_live_access(used.token_family)
        if was_live:
            # The toolkit has revoked the rows; this notifies open streams and logs the reuse.
            revoke_family(row.token_family)
            security_log.record_event(
                AuthEvent.Kind.REUSE,
                request=OAuthlibHttpRequest(request),
                user=row.user,
                client_id=_client_id(request),
            )
        return False

    # Tokens

    def validate_bearer_token(self, token: str, scopes: list[str], request: Any) -> bool:
        """Return whether the token is valid for the requested URL.

        Tokens of clients that were not registered manually are valid only for MCP servers. The
        toolkit accepts a token for all URLs below its audience, which for an MCP server at the root
        of the site is every URL.
        """
        if not super().validate_bearer_token(token, scopes, request):
            return False
        if request.client is None or not _is_dynamic(request.client):
            return True
        return server_of((request.uri or "").partition("?")[0]) is not None

    def _check_and_set_request_resource(self, request: Any) -> None:
        super()._check_and_set_request_resource(request)
        if request.grant_type == CODE:
            grant = get_grant_model()._default_manager.get(code=request.code)
        elif request.grant_type == REFRESH:
            grant = getattr(request, "refresh_token_instance", None)
        else:
            grant = None
        if grant is None:
            return
        granted = request.granted_resource = list(grant.resource or ())
        # The toolkit allows any resource if the grant has none, which would extend the grant.
        wider = {canonicalize_url(resource) for resource in request.resource} - {
            canonicalize_url(resource) for resource in granted
        }
        if wider or (_is_dynamic(request.client) and not request.resource):
            raise errors.CustomOAuth2Error(error="invalid_target", request=request)

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        redeemed = self._claim(request) if request.grant_type == CODE else None
        super()._save_bearer_token(token, request, *args, **kwargs)
        checksum = token_digest(token["access_token"])
        tokens = get_access_token_model()._default_manager.select_related("refresh_token")
        issued = tokens.get(token_checksum=checksum)
        family = family_of(issued)
        if redeemed is not None:
            redeemed.family, redeemed.checksum = family, checksum
            redeemed.save(update_fields=["family", "checksum"])
        if request.grant_type in (CODE, REFRESH):
            bindings.bind_token(issued, family=family)
            token["expires_in"] = seconds_left(issued)
            update_last_used(request.client.client_id)
            log_issue(issued, OAuthlibHttpRequest(request), grant=request.grant_type)

    def _claim(self, request: Any) -> RedeemedCode:
        """Mark the code as exchanged, which only one of several concurrent requests can do.

        Raises:
            InvalidGrantError: if another request has done so. No family is revoked: a concurrent
                request with the same PKCE verifier is a retry of the same client.
        """
        redeemed = RedeemedCode(digest=request.code)
        if not redeemed.mark_used():
            raise errors.InvalidGrantError(request=request)
        return redeemed

    def _create_refresh_token(
        self, request: Any, refresh_token_code: str, access_token: Any, previous: Any
    ) -> Any:
        refresh = super()._create_refresh_token(request, refresh_token_code, access_token, previous)
        granted = getattr(request, "granted_resource", None)
        if granted is not None and refresh.resource != granted:
            # Only the access token has fewer resources, not the grant (RFC 8707, section 2.2).
            refresh.resource = granted
            refresh.save(update_fields=["resource"])
        return refresh


def _may_still_connect(user: Any, client: Any, resources: list[str]) -> bool:
    """Return whether the user is active and ``CAN_CONNECT`` allows each server of the token."""
    if user is None or not user.is_active:
        return False
    servers = [server_of(resource) for resource in resources]
    return all(
        can_connect(user, server, client.client_id) for server in servers if server is not None
    )


def _is_dynamic(client: Any) -> bool:
    return bool(client.registration_source != client.RegistrationSource.MANUAL)


def _client_id(request: Any) -> str:
    return str(request.client.client_id if request.client else request.client_id or "")
