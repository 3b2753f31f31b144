"""Authorization server metadata (RFC 8414), and the same document for OpenID Connect Discovery.

The OpenID Connect URL is the third that clients try, and the only one that a site below a path
prefix can serve. There the document has the members that OpenID clients require, with an empty key
set, since no ID tokens are issued. If the toolkit is an OpenID provider, its own document is served
at this URL instead (``oauth.responses``).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.urls import get_script_prefix, reverse

from mcp_django.auth.endpoints import all_resources, prefix_of, quote_path
from mcp_django.conf import ALGORITHMS, get_settings
from mcp_django.oauth.clients import OFFLINE_ACCESS
from mcp_django.oauth.responses import allow_cross_origin, error_response, issuer_of

CACHED = {"Cache-Control": "public, max-age=300"}
CODE, REFRESH = "authorization_code", "refresh_token"
CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:grant-profile:id-jag"
# Clients prefer a metadata document to registration only if ``none`` is listed.
AUTH_METHODS = ("none", "client_secret_basic", "client_secret_post")


@allow_cross_origin("GET", "HEAD")
def authorization_server(request: HttpRequest, path: str | None = None) -> HttpResponseBase:
    """Serve the metadata at the URL derived from the issuer (RFC 8414, section 3), else 404."""
    return _metadata_response(request, path, {})


@allow_cross_origin("GET", "HEAD")
def openid_configuration(request: HttpRequest, path: str | None = None) -> HttpResponseBase:
    """Serve the metadata at the OpenID Connect URL, with the members that OpenID requires."""
    required = {
        "jwks_uri": _endpoint(request, "jwks"),
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }
    return _metadata_response(request, path, required)


@allow_cross_origin("GET", "HEAD")
def jwks(request: HttpRequest) -> HttpResponseBase:
    """Serve an empty key set (RFC 7517): access tokens are opaque, ID tokens are not issued."""
    return JsonResponse({"keys": []}, headers=CACHED)


def metadata(request: HttpRequest) -> dict[str, Any]:
    """Return the metadata of RFC 8414, section 2, with the extensions that MCP requires."""
    oauth = get_settings().oauth
    grants = [CODE, REFRESH]
    if oauth.client_credentials:
        grants.append(CLIENT_CREDENTIALS)
    if oauth.trusted_issuers:
        grants.append(JWT_BEARER)
    # Clients of these two grants may authenticate with keys (RFC 7523).
    has_keys = bool(oauth.client_credentials or oauth.trusted_issuers)
    key_methods = ["private_key_jwt"] if has_keys else []
    document = {
        "issuer": issuer_of(request),
        "authorization_endpoint": _endpoint(request, "authorize"),
        "token_endpoint": _endpoint(request, "token"),
        "registration_endpoint": None if oauth.dcr == "off" else _endpoint(request, "register"),
        "revocation_endpoint": _endpoint(request, "revoke"),
        "scopes_supported": [*get_settings().scopes, OFFLINE_ACCESS],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": grants,
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [*AUTH_METHODS, *key_methods],
        "token_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS) if has_keys else None,
        "authorization_grant_profiles_supported": [ID_JAG] if oauth.trusted_issuers else None,
        "revocation_endpoint_auth_methods_supported": list(AUTH_METHODS),
        "client_id_metadata_document_supported": oauth.cimd,
        "authorization_response_iss_parameter_supported": True,
        "protected_resources": list(all_resources(request)),
    }
    return {name: value for name, value in document.items() if value is not None}


def _endpoint(request: HttpRequest, name: str) -> str:
    """Return the absolute URL of a view of this app, on the origin of the issuer."""
    issuer = urlsplit(issuer_of(request))
    # The script name comes from the request, since not every handler sets that of the thread.
    route = reverse(f"mcp_oauth:{name}").removeprefix(get_script_prefix())
    prefix = quote_path(prefix_of(request))
    return f"{issuer.scheme}://{issuer.netloc}{prefix}/{route}"


def _metadata_response(
    request: HttpRequest, path: str | None, more: dict[str, Any]
) -> HttpResponseBase:
    """Serve the metadata if the URL was derived from the issuer, else 404.

    In the URL, the path of the issuer is before or after the rest. The script name is part of the
    issuer's path, but not of ``path``, which the URLconf captures.
    """
    issuer_path = urlsplit(issuer_of(request)).path.strip("/")
    requested_path = (path or "").strip("/")
    prefix = prefix_of(request).strip("/")
    if issuer_path not in {requested_path, f"{prefix}/{requested_path}".strip("/")}:
        return error_response(
            "not_found", "The URL does not match the issuer of this site.", status=404
        )
    return JsonResponse(metadata(request) | more, headers=CACHED)
