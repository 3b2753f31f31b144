"""The authorization endpoint: sign-in, consent page and redirect (RFC 6749, section 3.1).

A request is validated only after the user has signed in, so anonymous users cannot make the site
fetch a client's metadata document. The form carries the validated request, signed, so the user
approves exactly what the page shows. No parameter of the request skips the consent page.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from django.contrib.auth.views import redirect_to_login
from django.core.signing import BadSignature
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views import View
from oauth2_provider.views import AuthorizationView
from oauthlib.oauth2 import FatalClientError, OAuth2Error

from mcp_django.auth import limits, security_log
from mcp_django.auth.pages import guarded
from mcp_django.models import AuthEvent
from mcp_django.oauth import consent
from mcp_django.oauth.authorization_request import (
    AuthorizationRequest,
    Refused,
    UntrustedRequest,
    check_client,
    check_query,
    read,
    redirect,
    with_code,
)
from mcp_django.oauth.cimd import problems, signed_in
from mcp_django.oauth.clients import destination_of, is_manual, party_of
from mcp_django.oauth.upstream import bindings
from mcp_django.oauth.upstream.conf import UpstreamUnavailable
from mcp_django.oauth.upstream.grants import live_grant

# Allowed requests of one user per minute; a person needs one or two.
LIMIT, SECONDS = 60, 60
# Errors that a client gets after the user approved the request (RFC 6749, section 4.1.2.1).
DESCRIPTIONS = {
    "access_denied": "The user did not authorize this site at the provider that the server needs.",
    "temporarily_unavailable": "The provider that the server needs does not respond.",
}


@method_decorator(guarded, name="dispatch")
class AuthorizeView(View):
    """Sign the user in, ask for consent and redirect to the client.

    GET shows the consent page, POST submits it; other methods get 405. Errors go to the client only
    if the client and its redirect URI are known; otherwise the user sees an error page (400).
    """

    http_method_names = ["get", "post"]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Handle the request, and report errors as RFC 6749 requires."""
        try:
            with _fetching_for(request):
                return cast(HttpResponse, super().dispatch(request, *args, **kwargs))
        except UntrustedRequest as exc:
            hint = _("Go back to your assistant and connect again.")
            return _cannot_answer(request, exc, hint=hint)
        except Refused as refusal:
            return consent.offer_another_account(request, refusal) or redirect(
                request, refusal.location()
            )

    def get(self, request: HttpRequest) -> HttpResponse:
        """Show the consent page, or redirect to the login page or the client."""
        check_query(request)
        query = request.GET.copy()
        # With this parameter, the toolkit lets a client skip the consent page.
        query.pop("approval_prompt", None)
        prompts = set(query.get("prompt", "").split())
        if not request.user.is_authenticated and "none" not in prompts:
            return _sign_in(request, query)
        if busy := _busy(request):
            return busy
        if not request.user.is_authenticated:
            check_client(query)
        asked, application = read(query, request)
        if "none" in prompts:
            return _answer_silently(request, asked, application, prompts)
        _check_user(request, asked)
        if "login" in prompts:
            # The user signs in again; the consent page is still shown afterwards.
            query["prompt"] = "consent"
            return _sign_in(request, query)
        decided = None if prompts else _decided(request, asked, application)
        return decided or _ask(request, asked, application)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Process the consent form, which this user opened within the last hour."""
        if not request.user.is_authenticated:
            raise UntrustedRequest(_("You are not signed in anymore."))
        if busy := _busy(request):
            return busy
        decision = request.POST.get("decision")
        if decision == "switch" and "request" not in request.POST:
            return consent.switch_account(request, request.get_full_path())
        try:
            asked = AuthorizationRequest.unsign(request.POST.get("request", ""), request.user)
        except (BadSignature, TypeError):
            raise UntrustedRequest(
                _("The page was open for too long, or was shown to another account.")
            ) from None
        if decision == "switch":
            return consent.switch_account(request, f"{request.path}?{asked.query(bound=False)}")
        asked, application = _again(request, asked)
        if decision != "allow":
            consent.log(AuthEvent.Kind.DENIAL, asked, request)
            raise _refused(asked, "access_denied", "The user denied the request.")
        scopes = consent.chosen_scopes(asked, request, request.POST.getlist("scope"))
        if not scopes:
            return _ask(request, asked, application, error=_("Choose at least one permission."))
        return _approve(request, asked, scopes)


def finish(request: HttpRequest, approved_request: dict[str, Any]) -> HttpResponse:
    """Return the redirect to the client with a code, for a request the user has approved.

    ``approved_request`` is the argument of ``upstream.flow.begin``. Client, redirect URI, servers
    and scopes are checked again; if another upstream provider is still missing, the redirect goes
    there. An error is returned as a response as well: a redirect or a page.
    """
    asked = AuthorizationRequest.from_dict(approved_request)
    try:
        with _fetching_for(request):
            return _finish(request, asked)
    except UntrustedRequest as exc:
        return _cannot_answer(request, exc)
    except Refused as refusal:
        return redirect(request, refusal.location())


def refuse(request: HttpRequest, approved_request: dict[str, Any], *, error: str) -> HttpResponse:
    """Return the redirect to the client with an error, for a request the user has approved.

    ``error`` is a key of ``DESCRIPTIONS``. Client and redirect URI are checked again; if they are
    no longer valid, the user sees an error page instead.
    """
    asked = AuthorizationRequest.from_dict(approved_request)
    try:
        with _fetching_for(request):
            asked, _application = _again(request, asked)
    except UntrustedRequest as exc:
        return _cannot_answer(request, exc)
    except Refused as refusal:
        return redirect(request, refusal.location())
    return redirect(request, _refused(asked, error, DESCRIPTIONS[error]).location())


def _cannot_answer(
    request: HttpRequest, refusal: UntrustedRequest, *, hint: str = ""
) -> HttpResponse:
    return consent.show_error(
        request,
        title=_("This request cannot be answered"),
        message=str(refusal),
        detail=refusal.detail,
        hint=hint,
    )


@contextmanager
def _fetching_for(request: HttpRequest) -> Iterator[None]:
    """Allow fetching the client's metadata document if the user is signed in.

    A rejected document is logged in the security log, even if the client is already registered.
    """
    user = request.user
    token = signed_in.set(user.is_authenticated and user.is_active)
    noted: dict[str, str] = {}
    noting = problems.set(noted)
    try:
        yield
    finally:
        problems.reset(noting)
        signed_in.reset(token)
        for client_id, reason in noted.items():
            kind = AuthEvent.Kind.DOCUMENT
            security_log.record_some(
                kind, request=request, user=user, client_id=client_id, reason=reason
            )


def _busy(request: HttpRequest) -> HttpResponse | None:
    user = request.user if request.user.is_authenticated else None
    key, limit = (f"user:{user.pk}", LIMIT) if user else limits.counted_for(request, limit=LIMIT)
    seconds = limits.take("authorize", key, limit=limit, seconds=SECONDS)
    if not seconds:
        return None
    security_log.record_some(AuthEvent.Kind.RATE_LIMIT, request=request, user=user, at="authorize")
    response = consent.show_error(
        request,
        title=_("Too many requests"),
        message=_("This account received too many requests for access within a minute."),
        hint=_("Wait a minute, then connect again."),
        status=429,
    )
    response["Retry-After"] = str(seconds)
    return response


def _sign_in(request: HttpRequest, query: QueryDict) -> HttpResponse:
    """Redirect to the site's login page, which returns here."""
    return redirect_to_login(f"{request.path}?{query.urlencode()}")


def _check_user(request: HttpRequest, asked: AuthorizationRequest) -> None:
    if not request.user.is_active:
        raise _refused(asked, "access_denied", "This account may not connect.")


def _decided(
    request: HttpRequest, asked: AuthorizationRequest, application: Any
) -> HttpResponse | None:
    """Return the response if no consent page is needed: skipped by the site, or remembered."""
    if application.skip_authorization and is_manual(application):
        return _approve(request, asked, asked.scopes)
    if consent.is_remembered(asked, application, request.user):
        return _finish(request, asked)
    return None


def _answer_silently(
    request: HttpRequest, asked: AuthorizationRequest, application: Any, prompts: set[str]
) -> HttpResponse:
    """Return the response to ``prompt=none``: a code or an error, never a page (OIDC Core)."""
    if len(prompts) > 1:
        raise _refused(
            asked, "invalid_request", "prompt=none cannot be combined with other values."
        )
    if not request.user.is_authenticated:
        raise _refused(asked, "login_required", "The user is not signed in.")
    _check_user(request, asked)
    if bindings.missing(request.user, asked.resources):
        raise _refused(asked, "interaction_required", "The user has to sign in at a provider.")
    decided = _decided(request, asked, application)
    if decided is None:
        raise _refused(asked, "consent_required", "The user has to consent.")
    return decided


def _ask(
    request: HttpRequest, asked: AuthorizationRequest, application: Any, *, error: str = ""
) -> HttpResponse:
    context = {
        "client": party_of(application),
        "destination": destination_of(asked.redirect_uri),
        "servers": consent.offered_servers(asked, request),
        "is_bound": asked.is_bound,
        "scopes": consent.offered_scopes(asked, application, request),
        "known_before": bool(consent.granted_before(asked, request.user)),
        "account": request.user,
        "signed_request": asked.sign(request.user),
        "error": error,
    }
    return consent.show(request, "authorize.html", context, status=400 if error else 200)


def _approve(
    request: HttpRequest, asked: AuthorizationRequest, scopes: tuple[str, ...]
) -> HttpResponse:
    consent.keep_consent(asked, scopes, request)
    return _finish(request, AuthorizationRequest.from_dict(asked.as_dict() | {"scopes": scopes}))


def _again(request: HttpRequest, asked: AuthorizationRequest) -> tuple[AuthorizationRequest, Any]:
    """Validate the request again, since time has passed since the page was shown."""
    again, application = read(QueryDict(asked.query(bound=True)), request)
    _check_user(request, again)
    values = again.as_dict() | {
        "scopes": tuple(one for one in asked.scopes if one in again.scopes),
        "is_bound": asked.is_bound,
    }
    return AuthorizationRequest.from_dict(values), application


def _finish(request: HttpRequest, asked: AuthorizationRequest) -> HttpResponse:
    """Redirect to a provider that is not yet connected, or to the client with a code."""
    asked, _application = _again(request, asked)
    for _resource, server in consent.servers_of(asked, request):
        step = _next_step(request, server, asked.as_dict())
        if step is not None:
            return step
    return redirect(request, _issue_code(request, asked))


def _next_step(
    request: HttpRequest, server: Any, approved_request: dict[str, Any]
) -> HttpResponse | None:
    """Return a redirect to the provider of ``server.upstream`` if the user is not connected to it.

    Return ``None`` if the client can get its code. When the user returns from the provider,
    ``finish`` or ``refuse`` completes the request.

    Raises:
        ImproperlyConfigured: if the server names a provider that is not configured.
    """
    name = getattr(server, "upstream", "")
    if not name or live_grant(request.user, name) is not None:
        return None
    # Imported here to avoid a circular import, and because it needs an optional dependency.
    from mcp_django.oauth.upstream import flow

    try:
        return flow.begin(request, request.user, name, approved_request)
    except UpstreamUnavailable:
        return refuse(request, approved_request, error="temporarily_unavailable")


def _issue_code(request: HttpRequest, asked: AuthorizationRequest) -> str:
    """Return the redirect URL with a new code; the toolkit checks the request once more."""
    core = AuthorizationView.get_oauthlib_core()
    credentials = {
        "client_id": asked.client_id,
        "redirect_uri": asked.redirect_uri,
        "response_type": "code",
        "state": asked.state or None,
        "code_challenge": asked.code_challenge,
        "code_challenge_method": "S256",
        "resource": list(asked.resources),
        "user": request.user,
    }
    optional = {"nonce": asked.nonce, "claims": asked.claims}
    try:
        headers, _body, _status = core.server.create_authorization_response(
            request.path,
            http_method="GET",
            headers=core.extract_headers(request),
            scopes=list(asked.scopes),
            credentials=credentials | {name: value for name, value in optional.items() if value},
        )
    except FatalClientError as exc:
        raise UntrustedRequest(_("The assistant that sent you here is not known anymore.")) from exc
    except OAuth2Error as exc:
        raise _refused(asked, exc.error, exc.description or "") from exc
    return with_code(asked.redirect_uri, headers["Location"], state=asked.state)


def _refused(asked: AuthorizationRequest, error: str, description: str) -> Refused:
    return Refused(error, description, redirect_uri=asked.redirect_uri, state=asked.state)
