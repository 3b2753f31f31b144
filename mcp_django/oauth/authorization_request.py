"""The authorization request: how it is read and checked, and how it is answered.

``AuthorizationRequest`` is what a client asks a user for, once everything in it was checked.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote_plus, urlencode, urlsplit

from django.core import signing
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext as _
from oauth2_provider.cimd import is_cimd_client_id
from oauth2_provider.http import OAuth2ResponseRedirect
from oauth2_provider.models import get_application_model
from oauth2_provider.views import AuthorizationView
from oauthlib.oauth2 import FatalClientError, OAuth2Error

from mcp_django.auth.endpoints import all_resources, find_server, known
from mcp_django.auth.permissions import can_connect
from mcp_django.conf import get_settings
from mcp_django.oauth import redirects
from mcp_django.oauth.cimd import MAX_URL_LENGTH, problem_of
from mcp_django.oauth.clients import (
    OFFLINE_ACCESS,
    Scopes,
    baseline,
    granted,
    is_manual,
    printable,
    site_scopes,
)
from mcp_django.oauth.responses import issuer_of

SALT = "mcp_django.oauth.authorize"
# How long a user may look at the page before he has to start again in his assistant.
MAX_AGE_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """An authorization request (RFC 6749, section 4.1.1; RFC 7636; RFC 8707) that may be shown.

    ``scopes`` are those of the asked ones that this client may have. ``resources`` are canonical
    URLs of endpoints of this site; ``is_bound`` says that the client named none and the site did.
    """

    client_id: str
    redirect_uri: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    code_challenge: str
    state: str = ""
    nonce: str = ""
    claims: str = ""
    is_bound: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The request in values of JSON; ``from_dict`` takes it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AuthorizationRequest:
        """The request that ``as_dict`` gave.

        Raises:
            TypeError: it is something else.
        """
        lists: dict[str, Any] = {
            name: tuple(values.get(name, ())) for name in ("scopes", "resources")
        }
        return cls(**(values | lists))

    def sign(self, user: Any) -> str:
        """The request as text that travels through the page of one user, for an hour.

        The form then says nothing that the server did not check: there is no hidden field to
        tamper with but this one.
        """
        values = self.as_dict() | {"user": str(user.pk)}
        return signing.dumps(values, salt=SALT, compress=True)

    @classmethod
    def unsign(cls, text: str, user: Any) -> AuthorizationRequest:
        """The request that ``sign`` sealed for this user.

        Raises:
            BadSignature: it was tampered with, is older than an hour (``SignatureExpired``), or
                was shown to somebody else.
        """
        values = signing.loads(text, salt=SALT, max_age=MAX_AGE_SECONDS)
        if values.pop("user", None) != str(user.pk):
            raise signing.BadSignature("The request was shown to another user.")
        return cls.from_dict(values)

    def query(self, *, bound: bool) -> str:
        """The query of the request; with the resources the site chose only where ``bound``."""
        pairs = [
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", self.redirect_uri),
            ("scope", " ".join(self.scopes)),
            ("state", self.state),
            ("code_challenge", self.code_challenge),
            ("code_challenge_method", "S256"),
            ("nonce", self.nonce),
            ("claims", self.claims),
        ]
        if bound or not self.is_bound:
            pairs += [("resource", one) for one in self.resources]
        return urlencode([(name, value) for name, value in pairs if value])


# Reading and checking a request -------------------------------------------------------------------

# The toolkit says whether the client and its redirect URI are registered; until both are known
# nothing goes to that address. Then come the rules of OAuth 2.1 and MCP that it leaves open: PKCE
# with S256 for every client, scopes that the client may ask for, servers of this site (RFC 8707).

# A request that is larger was not made by an assistant: everything in it but `state` is short.
MAX_QUERY = 16_384
MAX_NONCE = 255
PKCE = "PKCE is required: code_challenge with code_challenge_method=S256 (RFC 7636)."
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_FOR_TOOLKIT = ("client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method")
_ONCE = (
    "scope",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "claims",
    "prompt",
    "response_mode",
)


def read(query: QueryDict, request: HttpRequest) -> tuple[AuthorizationRequest, Any]:
    """What the query of an authorization request asks for, and the registered client that asks.

    Raises:
        UntrustedRequest: nothing may be sent to the redirect URI; the message is for the user.
        Refused: the client is to be told.
        WrongAccount: so it is, once the user has had the choice of another account.
    """
    application, redirect_uri = _client(query, request)
    state = query.get("state", "")

    try:
        _check_form(query)
        scopes = _scopes(query, application)
        resources, is_bound = _resources(query, request, application, scopes)
        scopes = scopes or _default_scopes(resources, request, application)
    except _Fault as fault:
        kind = WrongAccount if isinstance(fault, _AccountFault) else Refused
        raise kind(*fault.args, redirect_uri=redirect_uri, state=state) from None
    asked = AuthorizationRequest(
        client_id=application.client_id,
        redirect_uri=redirect_uri,
        scopes=scopes,
        resources=resources,
        is_bound=is_bound,
        code_challenge=query.get("code_challenge", ""),
        state=state,
        nonce=query.get("nonce", ""),
        claims=query.get("claims", ""),
    )
    return asked, application


def check_query(request: HttpRequest) -> None:
    """Refuse a query of more than 16 KiB before any of it is repeated, be it to the login page.

    Raises:
        UntrustedRequest: it is longer, or names a client with a NUL, which no database knows.
    """
    if len(request.META.get("QUERY_STRING", "")) > MAX_QUERY:
        raise UntrustedRequest(_("The request is too long."))
    if any("\0" in one for one in request.GET.getlist("client_id")):
        raise UntrustedRequest(_("The assistant that sent you here is not known to this site."))


def check_client(query: QueryDict) -> None:
    """See that it is a client registered by hand, to whom a stranger may be sent on with an error.

    Anybody can register another, and a link to this site would then lead wherever he likes (RFC
    9700, section 4.11.2).

    Raises:
        UntrustedRequest: it is another, or none.
    """
    client_id = query.get("client_id", "")
    if not is_manual(get_application_model().objects.filter(client_id=client_id).first()):
        raise UntrustedRequest(_("You are not signed in."))


class _Fault(Exception):
    """An error code and its description, before it is known where they go."""


class _AccountFault(_Fault):
    """An error that another account would not have."""


def _client(query: QueryDict, request: HttpRequest) -> tuple[Any, str]:
    """The registered client and the redirect URI, which is one of the client's."""
    check_query(request)
    core = AuthorizationView.get_oauthlib_core()
    pairs = [(name, value) for name in _FOR_TOOLKIT for value in query.getlist(name)]
    uri = f"{request.path}?{urlencode([*pairs, ('response_type', 'code')])}"
    try:
        _scopes_unused, found = core.server.validate_authorization_request(
            uri, http_method="GET", body="", headers=core.extract_headers(request)
        )
    except FatalClientError as exc:
        detail = _document_problem(query.get("client_id", ""))
        raise UntrustedRequest(_reason(exc), detail=detail) from None
    except OAuth2Error as exc:
        application = get_application_model().objects.filter(client_id=exc.client_id).first()
        _check_redirect(application, exc.redirect_uri or "")
        raise Refused(
            exc.error,
            exc.description or "",
            redirect_uri=exc.redirect_uri,
            state=query.get("state", ""),
        ) from None
    application, redirect_uri = found["request"].client, found["redirect_uri"]
    _check_redirect(application, redirect_uri)
    return application, redirect_uri


def _reason(exc: FatalClientError) -> str:
    """What the user is told; the description of the toolkit is for developers, and in English."""
    if "client_id" in (exc.description or ""):
        return _("The assistant that sent you here is not known to this site.")
    if "redirect" in (exc.description or ""):
        return _("The assistant asked to send you to an address that is not registered for it.")
    return _("The request that sent you here is malformed.")


def _document_problem(client_id: str) -> str:
    """Why a client that is a document is not known; empty for another one, and for a known one."""
    if not is_cimd_client_id(client_id):
        return ""
    problem = problem_of(client_id)
    if not problem:
        return ""
    address = printable(client_id, limit=MAX_URL_LENGTH)
    return _("Its document %(address)s was not taken: %(reason)s") % {
        "address": address,
        "reason": problem,
    }


def _check_redirect(application: Any, redirect_uri: str) -> None:
    """A self-registered client keeps to the policy of today, whatever it registered before."""
    scheme = urlsplit(redirect_uri).scheme.lower()
    if application is not None and not is_manual(application):
        trusted = redirects.is_allowed(redirect_uri)
    else:
        apps = (one.partition(":")[0].lower() for one in get_settings().oauth.app_redirects)
        own = application.get_allowed_schemes() if application is not None else ()
        trusted = scheme in {"http", "https", *apps, *own} - (redirects.NEVER - {"http", "https"})
    if not trusted:
        raise UntrustedRequest(
            _("The assistant asked to send you to an address that this site does not trust.")
        )


def _check_form(query: QueryDict) -> None:
    """Refuse what OAuth 2.1 has no more, and what this server does not do."""
    for name in _ONCE:
        if len(query.getlist(name)) > 1:
            raise _Fault("invalid_request", f"Send {name} once.")
    if not query.get("response_type"):
        raise _Fault("invalid_request", "Send response_type=code.")
    nonce, claims = query.get("nonce", ""), query.get("claims", "")
    for holds, error, description in (
        (query["response_type"] == "code", "unsupported_response_type", "Codes only."),
        (query.get("response_mode", "query") == "query", "invalid_request", "Queries only."),
        ("request" not in query, "request_not_supported", "Send the parameters."),
        ("request_uri" not in query, "request_uri_not_supported", "Send the parameters."),
        (query.get("code_challenge_method") == "S256", "invalid_request", PKCE),
        (_CHALLENGE.fullmatch(query.get("code_challenge", "")), "invalid_request", PKCE),
        (len(nonce) <= MAX_NONCE, "invalid_request", f"nonce has at most {MAX_NONCE} characters."),
        ("\0" not in nonce + claims, "invalid_request", "nonce and claims are text."),
    ):
        if not holds:
            raise _Fault(error, description)


def _scopes(query: QueryDict, application: Any) -> tuple[str, ...]:
    """What is asked for and may be; RFC 6749, section 3.3 lets a server leave out the rest.

    A client that somebody of the site registered learns of a scope that it misspelled.
    """
    asked = query.get("scope", "").split()
    possible = granted(asked, application)
    unknown = set(asked) - {*possible, OFFLINE_ACCESS}
    if unknown and is_manual(application):
        raise _Fault("invalid_scope", "A scope is not available to this client.")
    return tuple(possible)


def _default_scopes(
    resources: tuple[str, ...], request: HttpRequest, application: Any
) -> tuple[str, ...]:
    """What a client gets that asks for nothing: what the servers need of everybody."""
    if resources:
        return tuple(baseline(find_server(one, request) for one in resources))
    return tuple(Scopes().get_default_scopes(application))


def _resources(
    query: QueryDict, request: HttpRequest, application: Any, scopes: tuple[str, ...]
) -> tuple[tuple[str, ...], bool]:
    named = query.getlist("resource")
    if named:
        resources = known(named, request)
        if resources is None:
            raise _Fault("invalid_target", "The resource is not a server of this site.")
        if not all(_may_connect(one, request, application) for one in resources):
            raise _AccountFault("access_denied", "The site does not let this account use it.")
        return tuple(resources), False
    if _is_for_own_api(application, scopes):
        return (), False
    if get_settings().oauth.missing_resource == "reject":
        raise _Fault("invalid_target", "Send the resource parameter (RFC 8707).")
    # Clients of 2025-03-26 know no resources.
    bound = [one for one in all_resources(request) if _may_connect(one, request, application)]
    if not bound:
        raise _AccountFault("access_denied", "The site does not let this account use a server.")
    return tuple(bound), True


def _is_for_own_api(application: Any, scopes: tuple[str, ...]) -> bool:
    """Whether it is about another API of the site, whose tokens open no MCP server."""
    if not is_manual(application):
        return False
    return bool(set(scopes) - set(get_settings().scopes)) if scopes else bool(site_scopes())


def _may_connect(resource: str, request: HttpRequest, application: Any) -> bool:
    if not request.user.is_authenticated:
        return True
    server = find_server(resource, request)
    return can_connect(request.user, server, application.client_id)


# The authorization response -----------------------------------------------------------------------

# An authorization ends with a redirect to the client that says who answers (RFC 9207). ``iss`` is
# on every answer, success or error, exactly once and equal to the issuer of the metadata
# (AUT-27); a client that talks to several servers tells by it whose answer it holds.


class UntrustedRequest(Exception):
    """The redirect URI cannot be trusted, so only the user may be told (RFC 6749, 4.1.2.1).

    ``detail`` is a second sentence, for whoever mends it.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Refused(Exception):
    """An error that the client is told through its redirect URI, with its state."""

    def __init__(self, error: str, description: str, *, redirect_uri: str, state: str = "") -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.redirect_uri = redirect_uri
        self.state = state

    def location(self) -> str:
        """Where the browser goes; the issuer is added by ``redirect``."""
        values = {"error": self.error, "error_description": self.description, "state": self.state}
        return _with(self.redirect_uri, {name: value for name, value in values.items() if value})


class WrongAccount(Refused):
    """A refusal that is about the account; the user may have another one."""


def with_code(redirect_uri: str, issued: str, *, state: str = "") -> str:
    """The redirect URI with the code of ``issued``, the location the toolkit made.

    That has the client's own query in another spelling, which a client may compare.
    """
    code = parse_qs(urlsplit(issued).query)["code"][-1]
    return _with(redirect_uri, {"code": code} | ({"state": state} if state else {}))


def redirect(request: HttpRequest, location: str) -> HttpResponse:
    """The redirect to a client, with ``iss``. The scheme was judged with the redirect URI."""
    scheme = urlsplit(location).scheme.lower()
    return cast(
        HttpResponse, OAuth2ResponseRedirect(with_issuer(location, issuer_of(request)), [scheme])
    )


def with_issuer(location: str, issuer: str) -> str:
    """The location with one ``iss``; what else its query says stays as it is, byte for byte."""
    base, _, query = location.partition("?")
    kept = [one for one in query.split("&") if one and unquote_plus(one.partition("=")[0]) != "iss"]
    return f"{base}?{'&'.join([*kept, 'iss=' + quote(issuer, safe='')])}"


def _with(location: str, values: dict[str, str]) -> str:
    return location + ("&" if "?" in location else "?") + urlencode(values)
