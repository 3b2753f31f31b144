"""The authorization endpoint: sign-in, consent page and redirect (RFC 6749, section 3.1).

A request is validated only after the user has signed in, so anonymous users cannot make the site
fetch a client's metadata document. The form carries the validated request, signed, so the user
approves exactly what the page shows. No parameter of the request skips the consent page.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NoReturn, cast
from urllib.parse import quote_plus

from django.conf import settings
from django.contrib.auth import logout, user_logged_in
from django.contrib.auth.views import redirect_to_login
from django.core.signing import BadSignature
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views import View
from oauth2_provider.views import AuthorizationView
from oauthlib.oauth2 import FatalClientError, OAuth2Error

from mcp_django.auth import limits, security_log
from mcp_django.auth.pages import protect_page
from mcp_django.models import AuthEvent
from mcp_django.oauth import consent
from mcp_django.oauth.authorization_request import (
    MAX_AGE_SECONDS,
    MAX_QUERY,
    AuthorizationError,
    AuthorizationRequest,
    UntrustedRequest,
    add_code,
    check_again,
    check_client,
    check_query,
    document_access,
    parse_request,
    redirect,
)
from mcp_django.oauth.clients import client_display, destination_of, is_manually_registered
from mcp_django.oauth.upstream import bindings
from mcp_django.oauth.upstream.conf import UpstreamUnavailable
from mcp_django.oauth.upstream.grants import live_grant

# Allowed requests of one user per minute; a person needs one or two.
LIMIT, SECONDS = 60, 60
# Errors that a client gets after the user approved the request (RFC 6749, section 4.1.2.1).
UPSTREAM_ERRORS = {
    "access_denied": "The user did not authorize this site at the provider that the server needs.",
    "temporarily_unavailable": "The provider that the server needs does not respond.",
}


@method_decorator(protect_page, name="dispatch")
class AuthorizeView(View):
    """Sign the user in, ask for consent and redirect to the client.

    GET shows the consent page, POST submits it; other methods get 405. Errors go to the client only
    if the client and its redirect URI are known; otherwise the user sees an error page (400).
    """

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Handle the request, and report errors as RFC 6749 requires."""
        respond = partial(super().dispatch, request, *args, **kwargs)
        hint = _("Go back to your assistant and connect again.")
        return _report_errors(request, respond, hint=hint, may_switch=True)

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the consent page, or redirect to the login page or the client."""
        check_query(request)
        query = request.GET.copy()
        if PENDING in query and "client_id" not in query:
            return _resume(request, query.get(PENDING, ""))
        prompts = set(query.get("prompt", "").split())
        if not request.user.is_authenticated and "none" not in prompts:
            return _sign_in(request, query)
        if busy := _rate_limit_response(request, limit=LIMIT):
            return busy
        if not request.user.is_authenticated:
            check_client(query)
        auth_request, application = parse_request(query, request)
        if "none" in prompts:
            return _answer_prompt_none(request, auth_request, application, prompts)
        _check_user(request, auth_request)
        if "login" in prompts:
            # Login pages do not ask a signed-in user to sign in: Django's admin shows its index.
            # Only a POST signs the user out, since any page can send a user here.
            return consent.sign_in_again_page(request, auth_request)
        response = (
            None if prompts else _response_without_consent(request, auth_request, application)
        )
        return response or _show_consent_page(request, auth_request, application)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Process the consent form, which this user opened within the last hour."""
        if not request.user.is_authenticated:
            raise UntrustedRequest(_("You are not signed in anymore."))
        if busy := _rate_limit_response(request, limit=LIMIT):
            return busy
        decision = request.POST.get("decision")
        if decision == "switch" and "request" not in request.POST:
            logout(request)
            return _sign_in(request, request.GET.copy())
        try:
            auth_request = AuthorizationRequest.unsign(
                request.POST.get("request", ""), request.user
            )
        except (BadSignature, TypeError):
            raise UntrustedRequest(
                _("The page was open for too long, or was shown to another account.")
            ) from None
        if decision == "switch":
            logout(request)
            return _sign_in(request, QueryDict(auth_request.query(), mutable=True))
        auth_request, application = _check_again(request, auth_request)
        if decision != "allow":
            consent.log_decision(AuthEvent.Kind.DENIAL, auth_request, request)
            raise auth_request.error("access_denied", "The user denied the request.")
        scopes = consent.chosen_scopes(auth_request, request, request.POST.getlist("scope"))
        if not scopes:
            return _show_consent_page(
                request, auth_request, application, error=_("Choose at least one permission.")
            )
        return _approve(request, auth_request, scopes)


def finish_request(request: HttpRequest, approved_request: dict[str, Any]) -> HttpResponse:
    """Return the redirect to the client with a code, for a request the user has approved.

    ``approved_request`` is the argument of ``upstream.flow.begin_authorization``. Client, redirect
    URI, servers and scopes are checked again; if another upstream provider is still missing, the
    redirect goes there. An error is returned as a response as well: a redirect or a page.
    """

    def respond() -> HttpResponse:
        auth_request, _application = _check_again(
            request, AuthorizationRequest.from_dict(approved_request)
        )
        return _complete(request, auth_request)

    return _report_errors(request, respond)


def reject_request(
    request: HttpRequest, approved_request: dict[str, Any], *, error: str
) -> HttpResponse:
    """Return the redirect to the client with an error, for a request the user has approved.

    ``error`` is a key of ``UPSTREAM_ERRORS``. Client and redirect URI are checked again; if they
    are no longer valid, the user sees an error page instead.
    """

    def respond() -> NoReturn:
        auth_request, _application = _check_again(
            request, AuthorizationRequest.from_dict(approved_request)
        )
        raise auth_request.error(error, UPSTREAM_ERRORS[error])

    return _report_errors(request, respond)


def _report_errors(
    request: HttpRequest,
    respond: Callable[[], HttpResponseBase],
    *,
    hint: str = "",
    may_switch: bool = False,
) -> HttpResponse:
    """Return the response, or an error: as a page for the user, or a redirect to the client.

    With ``may_switch``, a user whose account is the problem may first choose another account. A
    rejected document is logged in the security log, even if the client is already registered.
    """
    user, access = request.user, document_access(request)
    try:
        return cast(HttpResponse, respond())
    except UntrustedRequest as exc:
        return consent.render_error(
            request,
            title=_("This request cannot be answered"),
            message=str(exc),
            detail=exc.detail,
            hint=hint,
        )
    except AuthorizationError as refusal:
        choice = consent.account_choice_page(request, refusal) if may_switch else None
        return choice or redirect(request, refusal.location())
    finally:
        for client_id, reason in access.take_problems().items():
            security_log.record_limited(
                AuthEvent.Kind.DOCUMENT,
                request=request,
                user=user,
                client_id=client_id,
                reason=reason,
            )


def _rate_limit_response(
    request: HttpRequest, *, limit: int, counter: str = "authorize"
) -> HttpResponse | None:
    user = request.user if request.user.is_authenticated else None
    key, limit = (f"user:{user.pk}", limit) if user else limits.limit_key(request, limit=limit)
    seconds = limits.count_event(counter, key, limit=limit, seconds=SECONDS)
    if not seconds:
        return None
    security_log.record_limited(
        AuthEvent.Kind.RATE_LIMIT, request=request, user=user, at="authorize"
    )
    response = consent.render_error(
        request,
        title=_("Too many requests"),
        message=_("This account received too many requests for access within a minute."),
        hint=_("Wait a minute, then connect again."),
        status=429,
    )
    response["Retry-After"] = str(seconds)
    return response


# Django's login pages ignore a ``next`` of more than 2048 characters, so the user would not return
# here. A longer request waits in the session, and ``next`` has only its digest. Anonymous users can
# store little: the newest few requests of a session, which ends after an hour unless its user signs
# in, and few sessions from one address.

PENDING = "pending"
SESSION_KEY = "mcp_oauth_pending"
# Other login pages may allow less than Django's.
MAX_NEXT, MAX_DJANGO_NEXT = 1500, 2048
MAX_PENDING = 4
# New pending requests of signed-out users from one address per minute.
PENDING_LIMIT = 10
# Characters that browsers do not quote in a query (URL Standard, query percent-encode set). If they
# were quoted, the request could become longer than the one that ``check_query`` has accepted.
UNQUOTED = "/:@!$()*,;?[]\\^`{|}~"
COOKIE_SESSIONS = "django.contrib.sessions.backends.signed_cookies"


def _sign_in(request: HttpRequest, query: QueryDict) -> HttpResponse:
    """Redirect a user who is signed out to the site's login page, which returns here."""
    # With this parameter, the toolkit lets a client skip the consent page.
    query.pop("approval_prompt", None)
    if "login" in query.get("prompt", "").split():
        # Signing in fulfills it; the consent page is still shown afterwards.
        query["prompt"] = "consent"
    text = "&".join(
        quote_plus(name, UNQUOTED) + (value and f"={quote_plus(value, f'{UNQUOTED}=')}")
        for name, values in query.lists()
        for value in values
    )
    path = f"{request.path}?{text}"
    # A cookie has room for 4096 bytes.
    fits_session = settings.SESSION_ENGINE != COOKIE_SESSIONS
    if len(path) <= (MAX_NEXT if fits_session else MAX_DJANGO_NEXT):
        return redirect_to_login(path)
    if len(text) > MAX_QUERY or not fits_session:
        raise UntrustedRequest(_("The request is too long."))
    if busy := _rate_limit_response(request, counter="authorize-pending", limit=PENDING_LIMIT):
        return busy
    digest = hashlib.sha256(text.encode()).hexdigest()
    session, now = request.session, int(time.time())
    if session.is_empty():
        session.set_expiry(MAX_AGE_SECONDS)
    pending = _pending_requests(request)
    pending.pop(digest, None)
    newest = dict([*pending.items(), (digest, [now, text])][-MAX_PENDING:])
    session[SESSION_KEY] = newest
    return redirect_to_login(f"{request.path}?{PENDING}={digest}")


def _pending_requests(request: HttpRequest) -> dict[str, list[Any]]:
    """Return the start and the query of each pending request of the last hour, oldest first."""
    oldest = time.time() - MAX_AGE_SECONDS
    pending: dict[str, list[Any]] = request.session.get(SESSION_KEY, {})
    return {digest: record for digest, record in pending.items() if record[0] > oldest}


def _resume(request: HttpRequest, digest: str) -> HttpResponse:
    """Redirect to a request that has waited in the session."""
    pending = _pending_requests(request)
    if digest not in pending:
        raise UntrustedRequest(
            _("The page was open for too long, or was shown to another account.")
        )
    _began, text = pending.pop(digest)
    request.session[SESSION_KEY] = pending
    # ``HttpResponseRedirect`` may reject a URL of this length.
    return HttpResponse(status=302, headers={"Location": f"{request.path}?{text}"})


@receiver(user_logged_in)
def _lengthen_session(sender: Any, *, request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Let a session that began with a pending request last as usual once its user signs in."""
    session: Any = getattr(request, "session", {})
    if SESSION_KEY in session and session.get("_session_expiry") == MAX_AGE_SECONDS:
        session.set_expiry(None)


def _check_user(request: HttpRequest, auth_request: AuthorizationRequest) -> None:
    if not request.user.is_active:
        raise auth_request.error("access_denied", "This account may not connect.")


def _response_without_consent(
    request: HttpRequest, auth_request: AuthorizationRequest, application: Any
) -> HttpResponse | None:
    """Return the response if no consent page is needed: skipped by the site, or remembered."""
    if application.skip_authorization and is_manually_registered(application):
        return _approve(request, auth_request, auth_request.scopes)
    if consent.is_consent_remembered(auth_request, application, request.user):
        return _complete(request, auth_request)
    return None


def _answer_prompt_none(
    request: HttpRequest, auth_request: AuthorizationRequest, application: Any, prompts: set[str]
) -> HttpResponse:
    """Return the response to ``prompt=none``: a code or an error, never a page (OIDC Core)."""
    if len(prompts) > 1:
        raise auth_request.error(
            "invalid_request", "prompt=none cannot be combined with other values."
        )
    if not request.user.is_authenticated:
        raise auth_request.error("login_required", "The user is not signed in.")
    _check_user(request, auth_request)
    if bindings.missing_provider(request.user, auth_request.resources):
        raise auth_request.error("interaction_required", "The user has to sign in at a provider.")
    response = _response_without_consent(request, auth_request, application)
    if response is None:
        raise auth_request.error("consent_required", "The user has to consent.")
    return response


def _show_consent_page(
    request: HttpRequest, auth_request: AuthorizationRequest, application: Any, *, error: str = ""
) -> HttpResponse:
    context = {
        "client": client_display(application),
        "destination": destination_of(auth_request.redirect_uri),
        "servers": consent.consent_servers(auth_request, request),
        "is_bound": auth_request.is_bound,
        "scopes": consent.consent_scopes(auth_request, application, request),
        "known_before": bool(consent.granted_before(auth_request, request.user)),
        "account": request.user,
        "signed_request": auth_request.sign(request.user),
        "error": error,
    }
    return consent.render_page(request, "authorize.html", context, status=400 if error else 200)


def _approve(
    request: HttpRequest, auth_request: AuthorizationRequest, scopes: tuple[str, ...]
) -> HttpResponse:
    consent.save_consent(auth_request, scopes, request)
    return _complete(request, replace(auth_request, scopes=scopes))


def _check_again(
    request: HttpRequest, auth_request: AuthorizationRequest
) -> tuple[AuthorizationRequest, Any]:
    """Check the values of the request again, since time has passed since the page was shown."""
    current, application = check_again(auth_request, request)
    _check_user(request, current)
    return current, application


def _complete(request: HttpRequest, auth_request: AuthorizationRequest) -> HttpResponse:
    """Redirect to a provider that is not yet connected, or to the client with a code.

    The request has just been read or checked again.
    """
    for _resource, server in consent.servers_of(auth_request, request):
        step = _upstream_redirect(request, server, asdict(auth_request))
        if step is not None:
            return step
    core = AuthorizationView.get_oauthlib_core()
    credentials = {
        "client_id": auth_request.client_id,
        "redirect_uri": auth_request.redirect_uri,
        "response_type": "code",
        "state": auth_request.state or None,
        "code_challenge": auth_request.code_challenge,
        "code_challenge_method": "S256",
        "resource": list(auth_request.resources),
        "user": request.user,
        "mcp_oauth": document_access(request),
    }
    optional = {"nonce": auth_request.nonce, "claims": auth_request.claims}
    try:
        # The toolkit checks the request once more.
        headers, _body, _status = core.server.create_authorization_response(
            request.path,
            http_method="GET",
            headers=core.extract_headers(request),
            scopes=list(auth_request.scopes),
            credentials=credentials | {name: value for name, value in optional.items() if value},
        )
    except FatalClientError as exc:
        raise UntrustedRequest(_("The assistant that sent you here is not known anymore.")) from exc
    except OAuth2Error as exc:
        raise auth_request.error(exc.error, exc.description or "") from exc
    location = add_code(auth_request.redirect_uri, headers["Location"], state=auth_request.state)
    return redirect(request, location)


def _upstream_redirect(
    request: HttpRequest, server: Any, approved_request: dict[str, Any]
) -> HttpResponse | None:
    """Return a redirect to the provider of ``server.upstream`` if the user is not connected to it.

    Return ``None`` if the client can get its code. When the user returns from the provider,
    ``finish_request`` or ``reject_request`` completes the request.

    Raises:
        ImproperlyConfigured: if the server names a provider that is not configured.
    """
    name = getattr(server, "upstream", "")
    if not name or live_grant(request.user, name) is not None:
        return None
    # Imported here since it needs Authlib, an optional dependency.
    from mcp_django.oauth.upstream import flow

    try:
        return flow.begin_authorization(request, request.user, name, approved_request)
    except UpstreamUnavailable:
        return reject_request(request, approved_request, error="temporarily_unavailable")
