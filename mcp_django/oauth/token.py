"""The token endpoint (RFC 6749, section 3.2; RFC 8707; OAuth 2.1) and the revocation endpoint.

Every answer is JSON that no cache may keep, also for a wrong HTTP method or a server error, and
repeats nothing of the request. Any origin may ask, since cookies are not read.
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
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
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
from mcp_django.auth.endpoints import known
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationUnavailable
from mcp_django.models import AuthEvent
from mcp_django.oauth import clients, grants
from mcp_django.oauth.models import RefreshReplay
from mcp_django.oauth.responses import Refused, with_cors
from mcp_django.oauth.revoking import end_family, end_token, family_of
from mcp_django.oauth.upstream import bindings
from mcp_django.oauth.validator import digest

# What both endpoints have in common ---------------------------------------------------------------

logger = logging.getLogger("mcp_django.security")

MAX_BODY_BYTES = 32 * 1024
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
METHODS = "POST, OPTIONS"
# What does not work out, from one address by one client, and from one address in all.
MAX_FAILURES = 30
MAX_FAILURES_OF_ADDRESS = 300
WINDOW_SECONDS = 60
# RFC 8707, section 2, lets a client repeat this one.
REPEATABLE = frozenset({"resource"})
# What Django says of a form that it cannot read, when it is first looked into.
UNREADABLE = (BadRequest, SuspiciousOperation, MultiPartParserError)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@method_decorator(csrf_exempt, name="dispatch")
@method_decorator(login_not_required, name="dispatch")
@method_decorator(sensitive_post_parameters(), name="dispatch")
@method_decorator(transaction.non_atomic_requests, name="dispatch")
class _FormEndpoint(View):
    """Takes a form and answers in JSON (RFC 6749, sections 3.2 and 5).

    A subclass says what by ``answer``. Not within a transaction of the request: what a refusal ends
    has to stay ended.
    """

    limit: ClassVar[str] = ""
    """The name that failures are counted under."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The answer, whatever comes."""
        response = self._respond(request)
        response["Cache-Control"] = "no-store"
        response["Pragma"] = "no-cache"
        return with_cors(response, METHODS)

    def answer(self, request: HttpRequest) -> HttpResponse:
        """The answer to a form that is well-formed.

        Raises:
            Refused: there is none but an error of RFC 6749, section 5.2.
        """
        return JsonResponse({})

    def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.method == "OPTIONS":
            return HttpResponse(status=204)
        if request.method != "POST":
            refused = Refused("invalid_request", "Send a POST request.", status=405)
            return _refusal(refused, headers={"Allow": METHODS})
        try:
            _check_form(request)
            self._check_limits(request)
            return self.answer(request)
        except Refused as exc:
            return self._refuse(request, exc)
        except OAuth2Error as exc:
            return self._refuse(request, Refused(exc.error, status=exc.status_code))
        except AuthenticationUnavailable as exc:
            wait = exc.retry_after
            return self._refuse(
                request, Refused("temporarily_unavailable", status=503, retry_after=wait)
            )
        except UNREADABLE:
            return self._refuse(request, Refused("invalid_request", "The form cannot be read."))
        except Exception:  # a client has to read the answer, and a debug page has the form in it
            logger.exception("A request to %s failed.", request.path)
            return _refusal(Refused("server_error", status=500))

    def _check_limits(self, request: HttpRequest) -> None:
        for key, limit in self._counted(request):
            wait = limits.look(self.limit, key, limit=limit, seconds=WINDOW_SECONDS)
            if wait:
                raise Refused.too_many(wait)

    def _refuse(self, request: HttpRequest, refused: Refused) -> HttpResponse:
        if refused.status in (400, 401, 403):
            for key, limit in self._counted(request):
                if limits.take(self.limit, key, limit=limit - 1, seconds=WINDOW_SECONDS):
                    kind = AuthEvent.Kind.RATE_LIMIT
                    security_log.record_some(kind, request=request, limit=self.limit)
        headers = {}
        if refused.retry_after:
            headers["Retry-After"] = str(refused.retry_after)
        if refused.status == 401 and "Authorization" in request.headers:
            # RFC 6749, section 5.2: in the scheme that the client has tried.
            headers["WWW-Authenticate"] = 'Basic realm="oauth"'
        return _refusal(refused, headers=headers)

    def _counted(self, request: HttpRequest) -> list[tuple[str, int]]:
        """What failures are counted for, with how many may be."""
        address = limits.limited_address(request)
        if address is None:
            # Not by the client as well: one caller could shut out a client that all may name.
            return [limits.counted_for(request, limit=MAX_FAILURES_OF_ADDRESS)]
        try:
            claimed = request.POST.get("client_id", "") or request.headers.get("Authorization", "")
        except UNREADABLE:
            claimed = ""
        return [(f"{address} {claimed}", MAX_FAILURES), (address, MAX_FAILURES_OF_ADDRESS)]


def _check_form(request: HttpRequest) -> None:
    """See that a form is well-formed, before anything is done with it.

    Raises:
        Refused: it is not.
    """
    if request.GET:
        raise Refused("invalid_request", "Send the parameters in the body, none in the address.")
    if request.content_type not in FORMS:
        raise Refused("invalid_request", f"Send the form as {FORMS[0]}.")
    if not _is_bounded(request):
        raise Refused("invalid_request", f"Send at most {MAX_BODY_BYTES} bytes.", status=413)
    if request.encoding not in (None, "utf-8", "UTF-8"):
        raise Refused("invalid_request", "Send the form in UTF-8.")
    if "Authorization" in request.headers and {"client_secret", "client_assertion"} & {
        *request.POST
    }:
        raise Refused("invalid_request", "Authenticate the client in one way.")
    if _CONTROLS.search(_basic_credentials(request)):
        raise Refused("invalid_request", "The Authorization header holds a control character.")
    for name, values in request.POST.lists():
        if len(values) > 1 and name not in REPEATABLE:
            raise Refused("invalid_request", "Send each parameter once; only resource may repeat.")
        if any(_CONTROLS.search(value) for value in (name, *values)):
            raise Refused("invalid_request", "A parameter holds a control character.")


def _basic_credentials(request: HttpRequest) -> str:
    """What a client presents by HTTP Basic, as the toolkit reads it; empty where it does not."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return unquote_plus(base64.b64decode(encoded).decode("utf-8", "replace"))
    except ValueError:
        return ""


def _is_bounded(request: HttpRequest) -> bool:
    """Whether the body is no larger than it may be; a larger one is not read to its end."""
    try:
        if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
            return False
        if not hasattr(request, "_body"):
            # A chunked body says no length, and Django would take all of it into memory.
            request._body = request.read(MAX_BODY_BYTES + 1)
        return len(request.body) <= MAX_BODY_BYTES
    except (RequestDataTooBig, ValueError):
        return False


def _refusal(refused: Refused, *, headers: dict[str, str] | None = None) -> HttpResponse:
    return JsonResponse(refused.as_dict(), status=refused.status, headers=headers)


# The token endpoint -------------------------------------------------------------------------------

Grant = Callable[[HttpRequest], dict[str, Any]]


class TokenView(_FormEndpoint, ToolkitTokenView):  # type: ignore[misc]  # it has no types
    """Exchanges codes, refresh tokens and, where they are on, what machines and companies have."""

    limit = "token"

    def answer(self, request: HttpRequest) -> HttpResponse:
        """The token of a grant."""
        grant_type = request.POST.get("grant_type", "")
        if not grant_type:
            raise Refused("invalid_request", "Send grant_type.")
        grant = self._grants().get(grant_type)
        if grant is None:
            raise Refused("unsupported_grant_type")
        _name_resources(request)
        return JsonResponse(grant(request))

    def _grants(self) -> Mapping[str, Grant]:
        """The grants in force."""
        settings = get_settings().oauth
        found: dict[str, Grant] = {
            "authorization_code": self._exchange,
            "refresh_token": self._refresh,
        }
        if settings.client_credentials:
            found["client_credentials"] = grants.issue_client_credentials
        if settings.trusted_issuers:
            found[grants.GRANT_TYPE] = grants.issue_for_assertion
        return found

    def _exchange(self, request: HttpRequest) -> dict[str, Any]:
        """What the toolkit answers.

        Raises:
            Refused: it answers an error; what it says about it may repeat values, and is dropped.
        """
        try:
            response = self.authorization_flow_token_response(request)
        except get_grant_model().DoesNotExist as exc:
            # The code was used by somebody else, or withdrawn, since the toolkit looked first.
            raise Refused("invalid_grant") from exc
        answer: dict[str, Any] = json.loads(response.content)
        if response.status_code != 200:
            raise Refused(answer.get("error"), status=response.status_code)
        return answer

    def _refresh(self, request: HttpRequest) -> dict[str, Any]:
        # Before the transaction, since what is found to have ended has to stay so.
        bindings.look_before_refresh(request.POST.get("refresh_token", ""))
        return _once(request, self._exchange)


def _name_resources(request: HttpRequest) -> None:
    """Put the canonical names of the resources into the form.

    Raises:
        Refused: one of them is no resource of this site.
    """
    asked = request.POST.getlist("resource")
    if not asked:
        return
    named = known(asked, request)
    if named is None:
        raise Refused("invalid_target")
    form = request.POST.copy()
    form.setlist("resource", named)
    request.POST = form  # type: ignore[assignment]  # a copy that can be written to, as the toolkit reads it


# The revocation endpoint (RFC 7009) ---------------------------------------------------------------


class RevokeView(_FormEndpoint):
    """Ends what a client no longer needs: with either token of a sign-in all of that sign-in.

    What the user let the same client do elsewhere, with another sign-in, goes on.
    """

    limit = "revoke"

    def answer(self, request: HttpRequest) -> HttpResponse:
        """An empty answer, whether or not there was such a token (RFC 7009, section 2.2)."""
        token = request.POST.get("token", "")
        if not token:
            raise Refused("invalid_request", "Send token.")
        _end(token, clients.identify(request), request)
        return JsonResponse({})


@sensitive_variables("token", "checksum")
def _end(token: str, client: Any, request: HttpRequest) -> None:
    checksum = digest(token)
    mine = {"token_checksum": checksum, "application": client}
    refresh = get_refresh_token_model()._default_manager.filter(**mine).order_by("-pk").first()
    access = (
        get_access_token_model()._default_manager.select_related("refresh_token").filter(**mine)
    ).first()
    found = refresh or access
    if found is None:
        return
    family = refresh.token_family if refresh is not None else family_of(access)
    if family is not None:
        bindings.release(families=[family])
        ended = end_family(family)
    else:
        bindings.release(checksums=[checksum])
        ended = end_token(checksum)
    if ended:
        security_log.record(
            AuthEvent.Kind.REVOKE,
            request=request,
            user=found.user,
            client_id=client.client_id,
            by="client",
        )


# Retries of a refresh -----------------------------------------------------------------------------

# Hosts run several processes with one refresh token, and connections break after the answer was
# made. Within ``OAUTH["REFRESH_REPLAY_SECONDS"]`` the same client gets the pair that was issued
# for the same refresh token; later the token counts as stolen, and its family ends (RFC 9700,
# section 4.14.2). The pair is kept encrypted under the refresh token itself, so the table reveals
# nothing.


@sensitive_variables()
def _once(request: HttpRequest, exchange: Grant) -> dict[str, Any]:
    """What ``exchange`` answers, or has answered a moment ago for the same refresh token.

    Of several requests at once one exchanges and the others wait for its answer: only one can
    insert the row of a digest, and the database holds back the rest until it is committed.

    Raises:
        Refused: the token cannot be used, by this client or for this.
    """
    refresh_token = request.POST.get("refresh_token", "")
    checksum = digest(refresh_token)
    tokens = get_refresh_token_model()._default_manager
    seconds = get_settings().oauth.refresh_replay_seconds
    # Nobody is to write rows for tokens that he made up.
    if not seconds or not tokens.filter(token_checksum=checksum).exists():
        return exchange(request)
    row = RefreshReplay(
        digest=checksum, answer=b"", expires_at=timezone.now() + timedelta(seconds=seconds)
    )
    refused: Refused | None = None
    answer: dict[str, Any] = {}
    # A refusal is no rollback: what ended because of it has ended.
    with transaction.atomic(using=router.db_for_write(RefreshReplay)):
        is_first = row.claim()
        if is_first:
            try:
                answer = exchange(request)
            except Refused as exc:
                refused = exc
                row.delete()
            else:
                _keep(row, request, answer)
    if refused is not None:
        raise refused
    return answer if is_first else _again(request, checksum, exchange)


@sensitive_variables()
def _keep(row: RefreshReplay, request: HttpRequest, answer: dict[str, Any]) -> None:
    token = _issued(answer)
    row.client_id = token.application.client_id
    kept = json.dumps({"answer": answer, "asked": _asked(request)})
    row.answer = _cipher(request).encrypt(kept.encode())
    row.save(update_fields=["client_id", "answer"])


@sensitive_variables()
def _again(request: HttpRequest, checksum: str, exchange: Grant) -> dict[str, Any]:
    row = RefreshReplay._default_manager.filter(digest=checksum).first()
    if row is None or row.expires_at <= timezone.now():
        return exchange(request)
    if clients.identify(request).client_id != row.client_id:
        raise Refused("invalid_grant")
    kept = json.loads(_cipher(request).decrypt(bytes(row.answer)))
    if kept["asked"] != _asked(request):
        raise Refused("invalid_grant", "The refresh token was used a moment ago, for other things.")
    token = _issued(kept["answer"])
    if token is None:
        # It was replaced again or withdrawn meanwhile; the validator knows which.
        return exchange(request)
    if token.user is None or not token.user.is_active:
        raise Refused("invalid_grant")
    answer: dict[str, Any] = kept["answer"]
    left = (token.expires - timezone.now()).total_seconds()
    return {**answer, "expires_in": max(0, int(left))}


def _issued(answer: dict[str, Any]) -> Any:
    tokens = get_access_token_model()._default_manager.select_related("user", "application")
    return tokens.filter(token_checksum=digest(answer["access_token"])).first()


def _asked(request: HttpRequest) -> dict[str, list[str]]:
    """What the token is to be good for, which a second answer has to be the answer to as well."""
    return {
        "resource": sorted(request.POST.getlist("resource")),
        "scope": sorted(request.POST.get("scope", "").split()),
    }


def _cipher(request: HttpRequest) -> Fernet:
    secret = b"mcp_django.refresh-replay\0" + request.POST["refresh_token"].encode()
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(secret).digest()))
