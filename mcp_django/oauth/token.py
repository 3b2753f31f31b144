"""The token endpoint (RFC 6749, section 3.2; RFC 8707; OAuth 2.1) and the revocation endpoint.

Every response is JSON with ``no-store``, even for a wrong HTTP method or a server error, and never
repeats values of the request. Any origin may call the endpoints, since cookies are not read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import unquote_plus

from cryptography.fernet import Fernet
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, SuspiciousOperation
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from oauth2_provider.models import get_access_token_model, get_grant_model, get_refresh_token_model
from oauth2_provider.views import TokenView as ToolkitTokenView
from oauthlib.oauth2.rfc6749.errors import OAuth2Error

from mcp_django.auth import limits, security_log
from mcp_django.auth.endpoints import find_resources
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationUnavailable
from mcp_django.models import AuthEvent, token_digest
from mcp_django.oauth import clients, grants
from mcp_django.oauth.models import RefreshReplay
from mcp_django.oauth.responses import OAuthError, add_cors_headers, error_response
from mcp_django.oauth.revoking import family_of, revoke_family, revoke_token
from mcp_django.oauth.upstream import bindings
from mcp_django.protocol.headers import FORM
from mcp_django.transports.bodies import BodyRefused, end_connection_if_unread, read_body

# Base class of both endpoints ---------------------------------------------------------------------

logger = logging.getLogger("mcp_django.security")

MAX_BODY_BYTES = 32 * 1024
CONTENT_TYPES = (FORM, "multipart/form-data")
METHODS = "POST, OPTIONS"
# Allowed failures in a window: of one client from one address, and of one address in total.
MAX_FAILURES = 30
MAX_FAILURES_OF_ADDRESS = 300
WINDOW_SECONDS = 60
# RFC 8707, section 2, allows this parameter several times.
REPEATABLE = frozenset({"resource"})
# The errors that Django raises on first access to a form that it cannot parse.
FORM_ERRORS = (BadRequest, SuspiciousOperation, MultiPartParserError)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@method_decorator(csrf_exempt, name="dispatch")
@method_decorator(login_not_required, name="dispatch")
@method_decorator(sensitive_post_parameters(), name="dispatch")
@method_decorator(transaction.non_atomic_requests, name="dispatch")
class _FormEndpoint(View):
    """A view that takes a form and responds with JSON (RFC 6749, sections 3.2 and 5).

    Subclasses implement ``answer``. ``ATOMIC_REQUESTS`` does not apply, so that an error response
    does not roll back a revocation.
    """

    limit: ClassVar[str] = ""
    """The name under which failures are counted."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Respond with JSON in every case, including errors."""
        response = self._respond(request)
        response["Cache-Control"] = "no-store"
        response["Pragma"] = "no-cache"
        return end_connection_if_unread(request, add_cors_headers(response, METHODS))

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a well-formed form.

        Raises:
            OAuthError: if the response is an error of RFC 6749, section 5.2.
        """
        return JsonResponse({})

    def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.method == "OPTIONS":
            return HttpResponse(status=204)
        if request.method != "POST":
            return error_response(
                "invalid_request", "Send a POST request.", status=405, headers={"Allow": METHODS}
            )
        try:
            _check_form(request)
            self._check_limits(request)
            return self.answer(request)
        except OAuthError as exc:
            refused = exc
        except OAuth2Error as exc:
            refused = OAuthError(exc.error, status=exc.status_code)
        except AuthenticationUnavailable as exc:
            wait = exc.retry_after
            refused = OAuthError("temporarily_unavailable", status=503, retry_after=wait)
        except FORM_ERRORS:
            refused = OAuthError("invalid_request", "The form cannot be parsed.")
        except Exception:  # clients need JSON, and a debug page shows the form
            logger.exception("A request to %s failed.", request.path)
            refused = OAuthError("server_error", status=500)
        return self._reject(request, refused)

    def _check_limits(self, request: HttpRequest) -> None:
        for key, limit in self._failure_keys(request):
            wait = limits.check_limit(self.limit, key, limit=limit, seconds=WINDOW_SECONDS)
            if wait:
                raise OAuthError.too_many(wait)

    def _reject(self, request: HttpRequest, refused: OAuthError) -> HttpResponse:
        if refused.status in (400, 401, 403):
            for key, limit in self._failure_keys(request):
                if limits.count_event(self.limit, key, limit=limit - 1, seconds=WINDOW_SECONDS):
                    kind = AuthEvent.Kind.RATE_LIMIT
                    security_log.record_limited(kind, request=request, limit=self.limit)
        headers = {}
        if refused.retry_after:
            headers["Retry-After"] = str(refused.retry_after)
        if refused.status == 401 and "Authorization" in request.headers:
            # RFC 6749, section 5.2: the challenge has the scheme that the client used.
            headers["WWW-Authenticate"] = 'Basic realm="oauth"'
        return error_response(
            refused.error, refused.description, status=refused.status, headers=headers
        )

    def _failure_keys(self, request: HttpRequest) -> list[tuple[str, int]]:
        """Return the keys that failures are counted for, each with its limit."""
        address = limits.limit_source(request)
        if address is None:
            # Not counted by client as well: any caller could then block a client by sending its id.
            return [limits.limit_key(request, limit=MAX_FAILURES_OF_ADDRESS)]
        try:
            claimed = request.POST.get("client_id", "") or request.headers.get("Authorization", "")
        except FORM_ERRORS:
            claimed = ""
        return [(f"{address} {claimed}", MAX_FAILURES), (address, MAX_FAILURES_OF_ADDRESS)]


def _check_form(request: HttpRequest) -> None:
    """Check that a form is well-formed, before it is processed.

    Raises:
        OAuthError: if the form is not well-formed.
    """
    if request.GET:
        raise OAuthError("invalid_request", "Send all parameters in the body and none in the URL.")
    if request.content_type not in CONTENT_TYPES:
        raise OAuthError("invalid_request", f"Send the form as {CONTENT_TYPES[0]}.")
    try:
        read_body(request, MAX_BODY_BYTES)
    except BodyRefused as exc:
        raise OAuthError("invalid_request", str(exc), status=exc.status) from exc
    if request.encoding not in (None, "utf-8", "UTF-8"):
        raise OAuthError("invalid_request", "Send the form in UTF-8.")
    if "Authorization" in request.headers and {"client_secret", "client_assertion"} & {
        *request.POST
    }:
        raise OAuthError("invalid_request", "Use only one client authentication method.")
    if _CONTROLS.search(_basic_credentials(request)):
        raise OAuthError(
            "invalid_request", "The Authorization header contains a control character."
        )
    for name, values in request.POST.lists():
        if len(values) > 1 and name not in REPEATABLE:
            raise OAuthError(
                "invalid_request", "Send each parameter once; only resource may be repeated."
            )
        if any(_CONTROLS.search(value) for value in (name, *values)):
            raise OAuthError("invalid_request", "A parameter contains a control character.")


def _basic_credentials(request: HttpRequest) -> str:
    """Return the HTTP Basic credentials, decoded as by the toolkit, or an empty string."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return unquote_plus(base64.b64decode(encoded).decode("utf-8", "replace"))
    except ValueError:
        return ""


# The token endpoint -------------------------------------------------------------------------------

Grant = Callable[[HttpRequest], dict[str, Any]]


class TokenView(_FormEndpoint, ToolkitTokenView):  # type: ignore[misc]  # it has no types
    """Exchange codes, refresh tokens and, if enabled, client credentials and assertions."""

    limit = "token"

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the token response for the grant type of the form."""
        grant_type = request.POST.get("grant_type", "")
        if not grant_type:
            raise OAuthError("invalid_request", "Send grant_type.")
        grant = self._grants().get(grant_type)
        if grant is None:
            raise OAuthError("unsupported_grant_type")
        _canonicalize_resources(request)
        return JsonResponse(grant(request))

    def _grants(self) -> Mapping[str, Grant]:
        """Return the enabled grants by grant type."""
        settings = get_settings().oauth
        grants_by_type: dict[str, Grant] = {
            "authorization_code": self._exchange,
            "refresh_token": self._refresh,
        }
        if settings.client_credentials:
            grants_by_type["client_credentials"] = grants.issue_client_credentials
        if settings.trusted_issuers:
            grants_by_type[grants.GRANT_TYPE] = grants.issue_for_assertion
        return grants_by_type

    def _exchange(self, request: HttpRequest) -> dict[str, Any]:
        """Return the toolkit's token response.

        Raises:
            OAuthError: if the toolkit responds with an error. Its description is dropped, since it
                may repeat values of the request.
        """
        try:
            response = self.authorization_flow_token_response(request)
        except get_grant_model().DoesNotExist as exc:
            # The code was used or revoked by another request after the toolkit first read it.
            raise OAuthError("invalid_grant") from exc
        answer: dict[str, Any] = json.loads(response.content)
        if response.status_code != 200:
            raise OAuthError(answer.get("error"), status=response.status_code)
        return answer

    def _refresh(self, request: HttpRequest) -> dict[str, Any]:
        # Before the transaction, so that a revocation found here is not rolled back.
        bindings.renew_before_refresh(request.POST.get("refresh_token", ""))
        return _idempotent_refresh(request, self._exchange)


def _canonicalize_resources(request: HttpRequest) -> None:
    """Replace the resources in the form by their canonical URLs.

    Raises:
        OAuthError: if one of them is not a resource of this site.
    """
    requested = request.POST.getlist("resource")
    if not requested:
        return
    resources = find_resources(requested, request)
    if resources is None:
        raise OAuthError("invalid_target")
    form = request.POST.copy()
    form.setlist("resource", resources)
    request.POST = form  # type: ignore[assignment]  # a copy that can be written to, as the toolkit reads it


# The revocation endpoint (RFC 7009) ---------------------------------------------------------------


class RevokeView(_FormEndpoint):
    """Revoke the token family of an access or refresh token, or a token without a family.

    Other token families of the same user and client stay valid.
    """

    limit = "revoke"

    @sensitive_variables("token", "checksum")
    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return an empty response, even if the token does not exist (RFC 7009, section 2.2)."""
        token = request.POST.get("token", "")
        if not token:
            raise OAuthError("invalid_request", "Send token.")
        client, checksum = clients.authenticate_client(request), token_digest(token)
        mine = {"token_checksum": checksum, "application": client}
        refresh = get_refresh_token_model()._default_manager.filter(**mine).order_by("-pk").first()
        accesses = get_access_token_model()._default_manager.select_related("refresh_token")
        access = accesses.filter(**mine).first()
        row = refresh or access
        if row is None:
            return JsonResponse({})
        family = refresh.token_family if refresh is not None else family_of(access)
        if family is not None:
            bindings.release_tokens(families=[family])
            ended = revoke_family(family)
        else:
            bindings.release_tokens(checksums=[checksum])
            ended = revoke_token(checksum)
        if ended:
            security_log.record_event(
                AuthEvent.Kind.REVOKE,
                request=request,
                user=row.user,
                client_id=client.client_id,
                by="client",
            )
        return JsonResponse({})


# Retries of a refresh -----------------------------------------------------------------------------

# Assistants run several processes with one refresh token, and a connection can break before the
# response arrives. Within ``OAUTH["REFRESH_REPLAY_SECONDS"]``, a client that repeats a refresh
# token gets the same pair of tokens again; after that, the token counts as stolen and its family
# is revoked (RFC 9700, section 4.14.2). The stored pair is encrypted with a key derived from the
# refresh token, so the table reveals no token.


@sensitive_variables()
def _idempotent_refresh(request: HttpRequest, exchange: Grant) -> dict[str, Any]:
    """Return the response of ``exchange``, or its recent response for the same refresh token.

    One of several concurrent requests exchanges the token, and the others wait for its response:
    only one can insert the row of a digest, and the database blocks the others until the row is
    committed.

    Raises:
        OAuthError: if the token is not valid, or not for this client or this request.
    """
    refresh_token = request.POST.get("refresh_token", "")
    checksum = token_digest(refresh_token)
    tokens = get_refresh_token_model()._default_manager
    seconds = get_settings().oauth.refresh_replay_seconds
    # Unknown tokens must not create rows.
    if not seconds or not tokens.filter(token_checksum=checksum).exists():
        return exchange(request)
    row = RefreshReplay(
        digest=checksum, answer=b"", expires_at=timezone.now() + timedelta(seconds=seconds)
    )
    refused: OAuthError | None = None
    answer: dict[str, Any] = {}
    # An error does not roll back: a revocation caused by it is committed.
    with transaction.atomic(using=router.db_for_write(RefreshReplay)):
        is_first = row.mark_used()
        if is_first:
            try:
                answer = exchange(request)
            except OAuthError as exc:
                refused = exc
                row.delete()
            else:
                row.client_id = _issued_token(answer).application.client_id
                payload = json.dumps({"answer": answer, "asked": _requested_access(request)})
                row.answer = _cipher(request).encrypt(payload.encode())
                row.save(update_fields=["client_id", "answer"])
    if refused is not None:
        raise refused
    return answer if is_first else _replay_response(request, checksum, exchange)


@sensitive_variables()
def _replay_response(request: HttpRequest, checksum: str, exchange: Grant) -> dict[str, Any]:
    row = RefreshReplay._default_manager.filter(digest=checksum).first()
    if row is None or row.expires_at <= timezone.now():
        return exchange(request)
    if clients.authenticate_client(request).client_id != row.client_id:
        raise OAuthError("invalid_grant")
    payload = json.loads(_cipher(request).decrypt(bytes(row.answer)))
    if payload["asked"] != _requested_access(request):
        raise OAuthError(
            "invalid_grant", "The refresh token was just used with other scopes or resources."
        )
    token = _issued_token(payload["answer"])
    if token is None:
        # The issued tokens have since been refreshed or revoked; the validator handles both.
        return exchange(request)
    if token.user is None or not token.user.is_active:
        raise OAuthError("invalid_grant")
    answer: dict[str, Any] = payload["answer"]
    seconds = (token.expires - timezone.now()).total_seconds()
    return {**answer, "expires_in": max(0, int(seconds))}


def _issued_token(answer: dict[str, Any]) -> Any:
    tokens = get_access_token_model()._default_manager.select_related("user", "application")
    return tokens.filter(token_checksum=token_digest(answer["access_token"])).first()


def _requested_access(request: HttpRequest) -> dict[str, list[str]]:
    """Return the requested resources and scopes, which a retry has to repeat."""
    return {
        "resource": sorted(request.POST.getlist("resource")),
        "scope": sorted(request.POST.get("scope", "").split()),
    }


def _cipher(request: HttpRequest) -> Fernet:
    secret = b"mcp_django.refresh-replay\0" + request.POST["refresh_token"].encode()
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(secret).digest()))
