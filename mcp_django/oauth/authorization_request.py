"""Parse and validate an OAuth authorization request, and build the response to it.

``AuthorizationRequest`` is the validated request that the consent page shows to the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote_plus, urlencode, urlsplit

from django.core import signing
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.translation import gettext as _
from oauth2_provider.cimd import is_cimd_client_id
from oauth2_provider.http import OAuth2ResponseRedirect
from oauth2_provider.views import AuthorizationView
from oauthlib.common import Request
from oauthlib.oauth2 import FatalClientError, OAuth2Error
from oauthlib.oauth2.rfc6749.utils import scope_to_list

from mcp_django.auth.endpoints import all_resources, find_resources, find_server
from mcp_django.conf import get_settings
from mcp_django.execution.policy import can_connect
from mcp_django.oauth import clients
from mcp_django.oauth.cimd import (
    MAX_URL_LENGTH,
    DocumentAccess,
    document_access_of,
    recent_document_problem,
)
from mcp_django.oauth.conf import FORBIDDEN_SCHEMES
from mcp_django.oauth.responses import issuer_of
from mcp_django.protocol.text import printable

SALT = "mcp_django.oauth.authorize"
# How long the consent page is valid before the user has to start again in the assistant.
MAX_AGE_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """A validated authorization request (RFC 6749, section 4.1.1; RFC 7636; RFC 8707).

    ``scopes`` are the requested scopes that this client may have. ``resources`` are canonical URLs
    of endpoints of this site; ``is_bound`` means that the client named none and the site chose
    them.
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

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AuthorizationRequest:
        """Return the request from the JSON values of ``asdict``.

        Raises:
            TypeError: if the values are not those of a request.
        """
        lists = {name: tuple(values.get(name, ())) for name in ("scopes", "resources")}
        return cls(**(values | lists))

    def sign(self, user: Any) -> str:
        """Return the request as signed text for the form of this user, valid for an hour.

        The form has no other hidden field that could be tampered with, so the server receives only
        values that it has checked.
        """
        values = asdict(self) | {"user": str(user.pk)}
        return signing.dumps(values, salt=SALT, compress=True)

    @classmethod
    def unsign(cls, text: str, user: Any) -> AuthorizationRequest:
        """Return the request that ``sign`` signed for this user.

        Raises:
            BadSignature: if it was tampered with, is older than an hour (``SignatureExpired``), or
                was shown to another user.
        """
        values = signing.loads(text, salt=SALT, max_age=MAX_AGE_SECONDS)
        if values.pop("user", None) != str(user.pk):
            raise signing.BadSignature("The request was shown to another user.")
        return cls.from_dict(values)

    def query(self) -> str:
        """Return the query string, without resources that the site chose."""
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
        if not self.is_bound:
            pairs += [("resource", resource) for resource in self.resources]
        return urlencode([(name, value) for name, value in pairs if value])

    def error(self, error: str, description: str) -> AuthorizationError:
        """Return the error that the client receives instead of a code."""
        return AuthorizationError(
            error, description, redirect_uri=self.redirect_uri, state=self.state
        )


# Reading and checking a request -------------------------------------------------------------------

# The toolkit checks that the client and its redirect URI are registered; until both are known,
# nothing is sent to that URI. Then come the rules of OAuth 2.1 and MCP that the toolkit does not
# enforce: PKCE with S256 for every client, scopes that the client may request, servers of this site
# (RFC 8707).

# No assistant sends a longer request: all of its parameters except `state` are short.
MAX_QUERY = 16_384
MAX_NONCE = 255
PKCE = "PKCE is required: code_challenge with code_challenge_method=S256 (RFC 7636)."
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_TOOLKIT_PARAMETERS = (
    "client_id",
    "redirect_uri",
    "state",
    "code_challenge",
    "code_challenge_method",
)
_SINGLE_PARAMETERS = (
    "scope",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "claims",
    "prompt",
    "response_mode",
)


def parse_request(query: QueryDict, request: HttpRequest) -> tuple[AuthorizationRequest, Any]:
    """Return the validated authorization request in a query, and its registered client.

    Raises:
        UntrustedRequest: if nothing may be sent to the redirect URI; the message is for the user.
        AuthorizationError: if the client has to receive an error.
        WrongAccount: if the client has to receive an error unless the user changes the account.
    """
    check_query(request)
    names = _TOOLKIT_PARAMETERS
    pairs = [(name, value) for name in names for value in query.getlist(name)]
    state = query.get("state", "")
    application, redirect_uri = _validate_client(pairs, request, state=state)
    try:
        _check_parameters(query)
        scopes, resources, is_bound = _resolve(
            query.get("scope", "").split(), query.getlist("resource"), application, request
        )
    except _RequestError as fault:
        raise fault.at(redirect_uri, state) from None
    auth_request = AuthorizationRequest(
        client_id=application.client_id,
        redirect_uri=redirect_uri,
        scopes=tuple(scopes),
        resources=resources,
        is_bound=is_bound,
        code_challenge=query.get("code_challenge", ""),
        state=state,
        nonce=query.get("nonce", ""),
        claims=query.get("claims", ""),
    )
    return auth_request, application


def check_again(
    auth_request: AuthorizationRequest, request: HttpRequest
) -> tuple[AuthorizationRequest, Any]:
    """Return a request that was valid some time ago with what is still allowed, and its client.

    Raises:
        UntrustedRequest: if nothing may be sent to the redirect URI any longer.
        AuthorizationError: if the client has to receive an error.
        WrongAccount: if the client has to receive an error unless the user changes the account.
    """
    check_query(request)
    values = asdict(auth_request) | {"code_challenge_method": "S256"}
    pairs = [(name, values[name]) for name in _TOOLKIT_PARAMETERS if values[name]]
    state = auth_request.state
    application, redirect_uri = _validate_client(pairs, request, state=state)
    try:
        scopes, resources, _is_bound = _resolve(
            auth_request.scopes, auth_request.resources, application, request
        )
    except _RequestError as fault:
        raise fault.at(redirect_uri, state) from None
    allowed = tuple(scope for scope in auth_request.scopes if scope in scopes)
    return replace(auth_request, scopes=allowed, resources=resources), application


def document_access(request: HttpRequest) -> DocumentAccess:
    """Return whether the request may fetch documents of clients: while a user is signed in."""
    access = document_access_of(request)
    if access is None:
        user = request.user
        access = DocumentAccess(is_allowed=user.is_authenticated and user.is_active)
        request.mcp_oauth = access  # type: ignore[attr-defined]
    return access


def check_query(request: HttpRequest) -> None:
    """Reject a query of more than 16 KiB before it is repeated, as in the login URL.

    Raises:
        UntrustedRequest: if the query is longer, or has a NUL in the client id, which databases
            reject.
    """
    if len(request.META.get("QUERY_STRING", "")) > MAX_QUERY:
        raise UntrustedRequest(_("The request is too long."))
    if any("\0" in client_id for client_id in request.GET.getlist("client_id")):
        raise UntrustedRequest(_("The assistant that sent you here is not known to this site."))


def check_client(query: QueryDict) -> None:
    """Check that the client was registered manually, so an anonymous user may be redirected to it.

    Anyone can register other clients, which would make this site an open redirector (RFC 9700,
    section 4.11.2).

    Raises:
        UntrustedRequest: if the client was not registered manually, or does not exist.
    """
    client_id = query.get("client_id", "")
    if not clients.is_manually_registered(clients.find_client(client_id)):
        raise UntrustedRequest(_("You are not signed in."))


class _RequestError(Exception):
    """An error code and its description, without the redirect URI that they are sent to."""

    def at(self, redirect_uri: str, state: str) -> AuthorizationError:
        """Return the error for the client with this redirect URI."""
        kind = WrongAccount if isinstance(self, _AccountError) else AuthorizationError
        return kind(*self.args, redirect_uri=redirect_uri, state=state)


class _AccountError(_RequestError):
    """An error about the account; another account of the user may be allowed."""


def _validate_client(
    pairs: Iterable[tuple[str, str]], request: HttpRequest, *, state: str
) -> tuple[Any, str]:
    """Return the registered client and the redirect URI, which is one of the client's.

    ``pairs`` are the parameters that the toolkit checks; it reports repeated ones.
    """
    core = AuthorizationView.get_oauthlib_core()
    pairs = [*pairs, ("response_type", "code")]
    # As ``AuthorizationEndpoint.validate_authorization_request`` does, with the attribute that
    # ``cimd.SignedInOnly`` and the validator read.
    checked = Request(
        f"{request.path}?{urlencode(pairs)}",
        http_method="GET",
        body="",
        headers=core.extract_headers(request),
    )
    checked.mcp_oauth = document_access(request)
    checked.scopes = scope_to_list(checked.scope)
    try:
        handler = core.server.response_types["code"]
        _scopes_unused, credentials = handler.validate_authorization_request(checked)
    except FatalClientError as exc:
        # The toolkit's message is for developers and not translated.
        if "client_id" in (exc.description or ""):
            message = _("The assistant that sent you here is not known to this site.")
        elif "redirect" in (exc.description or ""):
            message = _(
                "The assistant asked to send you to an address that is not registered for it."
            )
        else:
            message = _("The request that sent you here is malformed.")
        detail = _document_problem(request, dict(pairs).get("client_id", ""))
        raise UntrustedRequest(message, detail=detail) from None
    except OAuth2Error as exc:
        application = clients.find_client(exc.client_id)
        _check_redirect(application, exc.redirect_uri or "")
        raise AuthorizationError(
            exc.error,
            exc.description or "",
            redirect_uri=exc.redirect_uri,
            state=state,
        ) from None
    application, redirect_uri = credentials["request"].client, credentials["redirect_uri"]
    _check_redirect(application, redirect_uri)
    return application, redirect_uri


def _document_problem(request: HttpRequest, client_id: str) -> str:
    """Return why the metadata document of a client was rejected, or an empty string."""
    if not is_cimd_client_id(client_id):
        return ""
    problem = recent_document_problem(document_access(request), client_id)
    if not problem:
        return ""
    address = printable(client_id, limit=MAX_URL_LENGTH)
    return _("Its metadata document %(address)s was rejected: %(reason)s") % {
        "address": address,
        "reason": problem,
    }


def _check_redirect(application: Any, redirect_uri: str) -> None:
    """Check the redirect URI against the current policy; the registration may be older."""
    scheme = urlsplit(redirect_uri).scheme.lower()
    if application is not None and not clients.is_manually_registered(application):
        trusted = clients.is_redirect_allowed(redirect_uri)
    else:
        apps = (uri.partition(":")[0].lower() for uri in get_settings().oauth.app_redirects)
        own = application.get_allowed_schemes() if application is not None else ()
        trusted = scheme in {"http", "https", *apps, *own} - (FORBIDDEN_SCHEMES - {"http", "https"})
    if not trusted:
        raise UntrustedRequest(
            _("The assistant asked to send you to an address that this site does not trust.")
        )


def _check_parameters(query: QueryDict) -> None:
    """Reject parameters that OAuth 2.1 removed or that this server does not support."""
    for name in _SINGLE_PARAMETERS:
        if len(query.getlist(name)) > 1:
            raise _RequestError("invalid_request", f"Send {name} only once.")
    kind = query.get("response_type")
    if kind != "code":
        error = "unsupported_response_type" if kind else "invalid_request"
        raise _RequestError(error, "Send response_type=code.")
    if query.get("response_mode", "query") != "query":
        raise _RequestError("invalid_request", "response_mode must be query.")
    if "request" in query:
        raise _RequestError("request_not_supported", "Send the parameters, not a request object.")
    if "request_uri" in query:
        raise _RequestError("request_uri_not_supported", "Send the parameters, not request_uri.")
    is_sha256 = query.get("code_challenge_method") == "S256"
    if not is_sha256 or not _CHALLENGE.fullmatch(query.get("code_challenge", "")):
        raise _RequestError("invalid_request", PKCE)
    if len(query.get("nonce", "")) > MAX_NONCE:
        raise _RequestError("invalid_request", f"nonce is longer than {MAX_NONCE} characters.")
    if "\0" in query.get("nonce", "") + query.get("claims", ""):
        raise _RequestError("invalid_request", "nonce or claims contains a NUL character.")


def _resolve(
    requested: Sequence[str], urls: Sequence[str], application: Any, request: HttpRequest
) -> tuple[Sequence[str], tuple[str, ...], bool]:
    """Return the scopes and resources of a request, and whether this site chose the resources.

    ``requested`` are scopes, of which the client gets those that it may have (RFC 6749, section
    3.3). A manually registered client gets an error for an unknown scope, which may be misspelled.
    """
    scopes: Sequence[str] = clients.allowed_scopes(requested, application)
    unknown = set(requested) - {*scopes, clients.OFFLINE_ACCESS}
    if unknown and clients.is_manually_registered(application):
        raise _RequestError("invalid_scope", "A scope is not available to this client.")
    resources, is_bound = _resolve_resources(urls, request, application, scopes)
    # A request that names no scopes gets those that the servers require.
    if not scopes and resources:
        scopes = clients.required_scopes(find_server(url, request) for url in resources)
    elif not scopes:
        scopes = clients.Scopes().get_default_scopes(application)
    return scopes, resources, is_bound


def _resolve_resources(
    urls: Sequence[str], request: HttpRequest, application: Any, scopes: Sequence[str]
) -> tuple[tuple[str, ...], bool]:
    if urls:
        resources = find_resources(urls, request)
        if resources is None:
            raise _RequestError("invalid_target", "The resource is not a server of this site.")
        if not all(_may_connect(resource, request, application) for resource in resources):
            raise _AccountError("access_denied", "This account may not connect to the server.")
        return tuple(resources), False
    # Without an MCP server, the request may be for another API of the site.
    if clients.is_manually_registered(application) and (
        set(scopes) - set(get_settings().scopes) if scopes else clients.site_scopes()
    ):
        return (), False
    if get_settings().oauth.missing_resource == "reject":
        raise _RequestError("invalid_target", "Send the resource parameter (RFC 8707).")
    # Clients of protocol version 2025-03-26 do not send the resource parameter.
    bound = [
        resource
        for resource in all_resources(request)
        if _may_connect(resource, request, application)
    ]
    if not bound:
        raise _AccountError("access_denied", "This account may not connect to any server.")
    return tuple(bound), True


def _may_connect(resource: str, request: HttpRequest, application: Any) -> bool:
    if not request.user.is_authenticated:
        return True
    server = find_server(resource, request)
    return can_connect(request.user, server, application.client_id)


# The authorization response -----------------------------------------------------------------------

# The redirect to the client identifies the issuer (RFC 9207). Every response, success or error,
# has exactly one ``iss``, equal to the issuer in the metadata. A client of several authorization
# servers compares it to detect mix-up attacks.


class UntrustedRequest(Exception):
    """The redirect URI is not trusted, so only the user gets the error (RFC 6749, 4.1.2.1).

    ``detail`` is a second sentence, for the developer who fixes it.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class AuthorizationError(Exception):
    """An error that the client receives at its redirect URI, with its state."""

    def __init__(self, error: str, description: str, *, redirect_uri: str, state: str = "") -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.redirect_uri = redirect_uri
        self.state = state

    def location(self) -> str:
        """Return the URL to redirect to, without ``iss``, which ``redirect`` adds."""
        values = {"error": self.error, "error_description": self.description, "state": self.state}
        return _add_to_query(
            self.redirect_uri, {name: value for name, value in values.items() if value}
        )


class WrongAccount(AuthorizationError):
    """An error about the account; another account of the user may be allowed."""


def add_code(redirect_uri: str, issued: str, *, state: str = "") -> str:
    """Return the redirect URI with the code from ``issued``, the toolkit's redirect location.

    The location itself is not used: the toolkit re-encodes the query of the redirect URI, and a
    client may compare the URI with the registered one.
    """
    code = parse_qs(urlsplit(issued).query)["code"][-1]
    return _add_to_query(redirect_uri, {"code": code} | ({"state": state} if state else {}))


def redirect(request: HttpRequest, location: str) -> HttpResponse:
    """Return the redirect to a client, with ``iss``. The redirect URI was checked before."""
    scheme = urlsplit(location).scheme.lower()
    return cast(
        HttpResponse, OAuth2ResponseRedirect(add_issuer(location, issuer_of(request)), [scheme])
    )


def add_issuer(location: str, issuer: str) -> str:
    """Return the location with exactly one ``iss``; the rest of its query is not re-encoded."""
    base, _, query = location.partition("?")
    parameters = [
        parameter
        for parameter in query.split("&")
        if parameter and unquote_plus(parameter.partition("=")[0]) != "iss"
    ]
    return f"{base}?{'&'.join([*parameters, 'iss=' + quote(issuer, safe='')])}"


def _add_to_query(location: str, values: dict[str, str]) -> str:
    return location + ("&" if "?" in location else "?") + urlencode(values)
