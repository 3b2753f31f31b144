"""What the endpoints that clients post forms to have in common (RFC 6749, sections 3.2 and 5).

Every answer is JSON that no cache may keep, also for a wrong verb or a mistake of ours, and repeats
nothing of the request. Any origin may ask, since no cookie is looked at.
"""

from __future__ import annotations

import logging
import re
from base64 import b64decode
from typing import Any, ClassVar
from urllib.parse import unquote_plus

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.http.multipartparser import MultiPartParserError
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.debug import sensitive_post_parameters
from oauthlib.oauth2.rfc6749.errors import OAuth2Error

from mcp_django.auth import limits, security_log
from mcp_django.auth.limits import counted_for, limited_address
from mcp_django.exceptions import AuthenticationUnavailable
from mcp_django.models import AuthEvent
from mcp_django.oauth.refusals import Refused
from mcp_django.oauth.views.cors import with_cors

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
class FormEndpoint(View):
    """Takes a form and answers in JSON; a subclass says what by ``answer``.

    Not within a transaction of the request: what a refusal ends has to stay ended.
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
            return _json(refused, headers={"Allow": METHODS})
        try:
            _check(request)
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
            return _json(Refused("server_error", status=500))

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
        return _json(refused, headers=headers)

    def _counted(self, request: HttpRequest) -> list[tuple[str, int]]:
        """What failures are counted for, with how many may be."""
        address = limited_address(request)
        if address is None:
            # Not by the client as well: one caller could shut out a client that all may name.
            return [counted_for(request, limit=MAX_FAILURES_OF_ADDRESS)]
        try:
            claimed = request.POST.get("client_id", "") or request.headers.get("Authorization", "")
        except UNREADABLE:
            claimed = ""
        return [(f"{address} {claimed}", MAX_FAILURES), (address, MAX_FAILURES_OF_ADDRESS)]


def _check(request: HttpRequest) -> None:
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
        return unquote_plus(b64decode(encoded).decode("utf-8", "replace"))
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


def _json(refused: Refused, *, headers: dict[str, str] | None = None) -> HttpResponse:
    return JsonResponse(refused.as_dict(), status=refused.status, headers=headers)
