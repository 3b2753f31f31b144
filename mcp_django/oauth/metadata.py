"""What clients read first: the metadata of the authorization server (RFC 8414).

The same document stands where OpenID Connect Discovery would put it, which is where clients look
third (AUT-18) and the only place inside a prefix. That form carries what OpenID clients insist
on, with an empty set of keys: no ID token is issued here. A site whose toolkit is an OpenID
provider keeps its own document there, so these addresses then fall through to it
(``oauth.responses``).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import get_script_prefix, reverse

from mcp_django.auth.endpoints import all_resources, prefix_of, quoted
from mcp_django.conf import ALGORITHMS, get_settings
from mcp_django.oauth.clients import OFFLINE_ACCESS
from mcp_django.oauth.responses import error, issuer_of, open_to_browsers

MAX_AGE_SECONDS = 300
CODE, REFRESH = "authorization_code", "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:grant-profile:id-jag"
# Clients choose a metadata document over registration only where ``none`` is listed.
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")


@open_to_browsers("GET", "HEAD")
def authorization_server(request: HttpRequest, path: str | None = None) -> HttpResponseBase:
    """The document at the address that belongs to the issuer, 404 at any other (AUT-17)."""
    return _answer(request, path, {})


@open_to_browsers("GET", "HEAD")
def openid_configuration(request: HttpRequest, path: str | None = None) -> HttpResponseBase:
    """The document where OpenID clients look, with the members that they require."""
    required = {
        "jwks_uri": _endpoint(request, "jwks"),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }
    return _answer(request, path, required)


@open_to_browsers("GET", "HEAD")
def jwks(request: HttpRequest) -> HttpResponseBase:
    """No keys (RFC 7517): access tokens are opaque and ID tokens are not issued."""
    return _kept(JsonResponse({"keys": []}))


def metadata(request: HttpRequest) -> dict[str, Any]:
    """The metadata as RFC 8414, section 2 names it, with the extensions that MCP asks for."""
    oauth = get_settings().oauth
    registration = {"registration_endpoint": _endpoint(request, "register")}
    return {
        "issuer": issuer_of(request),
        "authorization_endpoint": _endpoint(request, "authorize"),
        "token_endpoint": _endpoint(request, "token"),
        **({} if oauth.dcr == "off" else registration),
        "revocation_endpoint": _endpoint(request, "revoke"),
        "scopes_supported": [*get_settings().scopes, OFFLINE_ACCESS],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": _grant_types(),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": list(AUTH_METHODS),
        **_assertions(),
        "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "client_id_metadata_document_supported": oauth.cimd,
        "authorization_response_iss_parameter_supported": True,
        "protected_resources": list(all_resources(request)),
    }


def _grant_types() -> list[str]:
    oauth = get_settings().oauth
    machines = [CLIENT_CREDENTIALS] if oauth.client_credentials else []
    return [CODE, REFRESH, *machines, *([JWT_BEARER] if oauth.trusted_issuers else [])]


def _assertions() -> dict[str, Any]:
    """What the token endpoint takes beside secrets, where that is on (RFC 7523, ID-JAG)."""
    oauth = get_settings().oauth
    found: dict[str, Any] = {}
    if oauth.client_credentials or oauth.trusted_issuers:
        found["token_endpoint_auth_methods_supported"] = [*AUTH_METHODS, "private_key_jwt"]
        found["token_endpoint_auth_signing_alg_values_supported"] = list(ALGORITHMS)
    if oauth.trusted_issuers:
        found["authorization_grant_profiles_supported"] = [ID_JAG]
    return found


def _endpoint(request: HttpRequest, name: str) -> str:
    """The absolute address of one of our views, on the issuer's own origin."""
    issuer = urlsplit(issuer_of(request))
    # The script name of the request rather than of the thread, which not every handler sets.
    route = reverse(f"mcp_oauth:{name}").removeprefix(get_script_prefix())
    prefix = quoted(prefix_of(request))
    return f"{issuer.scheme}://{issuer.netloc}{prefix}/{route}"


def _answer(request: HttpRequest, path: str | None, more: dict[str, Any]) -> HttpResponseBase:
    if not _is_issuers(request, path):
        return error("not_found", "No authorization server has this address.", status=404)
    return _kept(JsonResponse(metadata(request) | more))


def _is_issuers(request: HttpRequest, path: str | None) -> bool:
    """Whether an address was built from the issuer: its path follows the name, or precedes it.

    A script name precedes it without being seen in the URLconf.
    """
    wanted = urlsplit(issuer_of(request)).path.strip("/")
    asked = (path or "").strip("/")
    prefix = prefix_of(request).strip("/")
    return wanted in {asked, f"{prefix}/{asked}".strip("/")}


def _kept(response: JsonResponse) -> JsonResponse:
    response.headers["Cache-Control"] = f"public, max-age={MAX_AGE_SECONDS}"
    return response
