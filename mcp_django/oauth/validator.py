"""What the toolkit's validator lets pass and a site with MCP servers does not (OAuth 2.1).

Users have to be active and allowed to connect each time a token is issued, a code or refresh token
that is used twice ends all that came of it, and no token of a client that registered itself is
without an audience. Codes are stored as digests. What other clients of the site do with the
toolkit's own views stays as it is.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauthlib.oauth2.rfc6749 import errors

from mcp_django.auth import security_log
from mcp_django.auth.endpoints import canonical, server_of
from mcp_django.auth.permissions import can_connect
from mcp_django.models import AuthEvent
from mcp_django.oauth import assertions
from mcp_django.oauth.cimd import signed_in
from mcp_django.oauth.clients import HandedOn, note_use
from mcp_django.oauth.models import RedeemedCode
from mcp_django.oauth.revoking import end_family, end_token, family_of, is_live
from mcp_django.oauth.upstream import bindings

CODE = "authorization_code"
REFRESH = "refresh_token"


def digest(secret: str) -> str:
    """The SHA-256 of a code or token, in hexadecimal: what the tables hold of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


class Validator(OAuth2Validator):  # type: ignore[misc]  # the toolkit has no types
    """The value of ``OAUTH2_PROVIDER["OAUTH2_VALIDATOR_CLASS"]``."""

    # Clients

    def client_authentication_required(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Whether the client has to prove who it is; also when it offers to, by an assertion."""
        if assertions.is_present(request):
            return True
        return bool(super().client_authentication_required(request, *args, **kwargs))

    def authenticate_client(self, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Whether the client proved who it is: by an assertion (RFC 7523), or by its secret.

        A client whose keys are known here proves itself with them alone, and none asks in the name
        of another: oauthlib 3 would go by the name in the form.
        """
        claimed = request.client_id
        if assertions.is_present(request):
            request.client = assertions.client_of(request, HandedOn(request))
            return request.client is not None
        if not super().authenticate_client(request, *args, **kwargs):
            return False
        client_id = request.client.client_id
        return claimed in (None, "", client_id) and not assertions.has_keys(client_id)

    def validate_client_id(self, client_id: str, request: Any, *args: Any, **kwargs: Any) -> bool:
        """Whether a client may ask a user; one that registered itself only on our own page.

        The toolkit's, which a site may serve beside it, names no server and can be told to skip the
        question.
        """
        if not super().validate_client_id(client_id, request, *args, **kwargs):
            return False
        return signed_in.get() is not None or not _is_dynamic(request.client)

    def validate_grant_type(
        self, client_id: str, grant_type: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Whether the client may use a grant; one that registered itself only needs a user."""
        if _is_dynamic(client) and grant_type not in (CODE, REFRESH):
            return False
        return bool(
            super().validate_grant_type(client_id, grant_type, client, request, *args, **kwargs)
        )

    # Codes

    def _create_authorization_code(self, request: Any, code: Any, expires: Any = None) -> Any:
        stored = {**code, "code": digest(code["code"])}
        return super()._create_authorization_code(request, stored, expires)

    def get_authorization_code_scopes(
        self, client_id: str, code: str, redirect_uri: str, request: Any
    ) -> list[str]:
        """The scopes of a code that is not validated yet: whether an ID token is asked for too."""
        scopes: list[str] = super().get_authorization_code_scopes(
            client_id, digest(code), redirect_uri, request
        )
        return scopes

    def validate_code(
        self, client_id: str, code: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Whether a code can be exchanged; one that already was ends what came of it."""
        # All that comes after looks the code up by this.
        request.code = digest(code)
        if super().validate_code(client_id, request.code, client, request, *args, **kwargs):
            grant = get_grant_model()._default_manager.get(code=request.code)
            return _may_still_connect(grant.user, client, grant.resource)
        self._answer_replay(request)
        return False

    def _answer_replay(self, request: Any) -> None:
        redeemed = RedeemedCode._default_manager.filter(digest=request.code).first()
        if redeemed is None:
            return
        ended = end_family(redeemed.family) if redeemed.family else end_token(redeemed.checksum)
        # Once there is nothing left to end, whoever repeats it only fills the table.
        note = security_log.record if ended else security_log.record_some
        note(
            AuthEvent.Kind.REPLAY,
            request=HandedOn(request),
            client_id=_client_id(request),
            what="authorization code",
            ended=ended,
        )

    # Refresh tokens

    def validate_refresh_token(
        self, refresh_token: str, client: Any, request: Any, *args: Any, **kwargs: Any
    ) -> bool:
        """Whether a refresh token can be used; one that was replaced ends its whole family."""
        tokens = get_refresh_token_model()._default_manager
        known = tokens.filter(token_checksum=digest(refresh_token))
        found = known.order_by("-pk").first()
        was_live = found is not None and found.revoked is not None and is_live(found.token_family)
        if super().validate_refresh_token(refresh_token, client, request, *args, **kwargs):
            used = request.refresh_token_instance
            return _may_still_connect(
                used.user, client, used.resource
            ) and bindings.check_for_refresh(used.token_family)
        if was_live:
            # The toolkit has revoked the rows; streams are told, and so is the log.
            end_family(found.token_family)
            security_log.record(
                AuthEvent.Kind.REUSE,
                request=HandedOn(request),
                user=found.user,
                client_id=_client_id(request),
            )
        return False

    # Tokens

    def validate_bearer_token(self, token: str, scopes: list[str], request: Any) -> bool:
        """Whether a token opens an API of the site; an assistant's is for servers alone.

        The toolkit takes all that is below the address of one for a part of it, which for a server
        at the root of the site is everything.
        """
        if not super().validate_bearer_token(token, scopes, request):
            return False
        if request.client is None or not _is_dynamic(request.client):
            return True
        return server_of((request.uri or "").partition("?")[0]) is not None

    def _check_and_set_request_resource(self, request: Any) -> None:
        super()._check_and_set_request_resource(request)
        granted = _granted(request)
        if granted is None:
            return
        request.granted_resource = granted
        # The toolkit narrows what was bound; to bind what was not is to widen.
        wider = {canonical(one) for one in request.resource} - {canonical(one) for one in granted}
        if wider or (_is_dynamic(request.client) and not request.resource):
            raise errors.CustomOAuth2Error(error="invalid_target", request=request)

    def _save_bearer_token(self, token: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        redeemed = self._claim(request) if request.grant_type == CODE else None
        super()._save_bearer_token(token, request, *args, **kwargs)
        checksum = digest(token["access_token"])
        issued = (
            get_access_token_model()
            ._default_manager.select_related("refresh_token")
            .get(token_checksum=checksum)
        )
        family = family_of(issued)
        if redeemed is not None:
            redeemed.family, redeemed.checksum = family, checksum
            redeemed.save(update_fields=["family", "checksum"])
        if request.grant_type in (CODE, REFRESH):
            bindings.bind(issued, family=family)
            token["expires_in"] = seconds_left(issued)
            note_use(request.client.client_id)
            note_issue(issued, HandedOn(request), grant=request.grant_type)

    def _claim(self, request: Any) -> RedeemedCode:
        """The mark that a code was exchanged, which only one of several at once can make.

        Raises:
            InvalidGrantError: somebody else made it. No family ends: whoever gets here at the same
                time has proven the same verifier, and is one client that asked twice.
        """
        redeemed = RedeemedCode(digest=request.code)
        if not redeemed.claim():
            raise errors.InvalidGrantError(request=request)
        return redeemed

    def _create_refresh_token(
        self, request: Any, refresh_token_code: str, access_token: Any, previous: Any
    ) -> Any:
        refresh = super()._create_refresh_token(request, refresh_token_code, access_token, previous)
        granted = getattr(request, "granted_resource", None)
        if granted is not None and refresh.resource != granted:
            # What was narrowed is this access token, not the grant (RFC 8707, section 2.2).
            refresh.resource = granted
            refresh.save(update_fields=["resource"])
        return refresh


def seconds_left(access_token: Any) -> int:
    """How long a new token is good: what it stands on may end before it would."""
    left: float = (access_token.expires - timezone.now()).total_seconds()
    return round(left)


def note_issue(access_token: Any, request: HttpRequest, *, grant: str) -> None:
    """Put an issued token into the security log."""
    security_log.record(
        AuthEvent.Kind.ISSUE,
        request=request,
        user=access_token.user,
        client_id=access_token.application.client_id,
        grant=grant,
        scopes=access_token.scope.split(),
        resources=access_token.resource,
    )


def _granted(request: Any) -> list[str] | None:
    """What the code or refresh token is bound to; ``None`` for a grant that has neither."""
    if request.grant_type == CODE:
        grant = get_grant_model()._default_manager.get(code=request.code)
        return list(grant.resource or ())
    refresh = getattr(request, "refresh_token_instance", None)
    if request.grant_type == REFRESH and refresh is not None:
        return list(refresh.resource or ())
    return None


def _may_still_connect(user: Any, client: Any, resources: list[str]) -> bool:
    """Whether the user is active and ``CAN_CONNECT`` says yes to each server a token would open."""
    if user is None or not user.is_active:
        return False
    servers = [server_of(one) for one in resources]
    return all(
        can_connect(user, server, client.client_id) for server in servers if server is not None
    )


def _is_dynamic(client: Any) -> bool:
    return bool(client.registration_source != client.RegistrationSource.MANUAL)


def _client_id(request: Any) -> str:
    return str(request.client.client_id if request.client else request.client_id or "")
