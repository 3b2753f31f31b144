"""Protected resource metadata (RFC 9728), and ``WWW-Authenticate`` (RFC 6750, section 3).

The metadata names the issuers of an endpoint's tokens, and the scopes. It is public, readable from
every origin, and served only for endpoints of this site whose backends have an issuer; any other
path is a 404, so that the site does not vouch for resources that it does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import NoReverseMatch, get_script_prefix, reverse

from mcp_django.auth.backends import get_backend
from mcp_django.auth.endpoints import (
    ServerEndpoint,
    all_resources,
    canonicalize_url,
    find_endpoint,
    origin_of,
    prefix_of,
    quote_path,
)
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationUnavailable,
    Busy,
    ConnectionRefused,
    TooManyAttempts,
)

ROUTE_NAME = "mcp_protected_resource"
WELL_KNOWN_PATH = "/.well-known/oauth-protected-resource"
MAX_AGE_SECONDS = 300
METHODS = "GET, HEAD, OPTIONS"
# Browser clients send these headers during discovery.
ALLOWED_HEADERS = "Authorization, Content-Type, Accept, MCP-Protocol-Version"
PUBLIC_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": METHODS,
    "Access-Control-Allow-Headers": ALLOWED_HEADERS,
    "Access-Control-Max-Age": "86400",
    "X-Content-Type-Options": "nosniff",
}


def protected_resource(request: HttpRequest, path: str | None = None) -> HttpResponse:
    """Return the metadata of the endpoint whose path follows the well-known name, or a 404.

    Without a path, it is the metadata of the only endpoint. ``resource`` is spelled as in the
    request, with or without a trailing slash, since clients compare it as a string.
    """
    if request.method == "OPTIONS":
        return HttpResponse(status=204, headers={"Allow": METHODS, **PUBLIC_HEADERS})
    if request.method not in {"GET", "HEAD"}:
        return _error_response(405, "Use GET.", Allow=METHODS)
    match = _requested_endpoint(request, path or "")
    issuers = _issuers_of(match[1].server, request) if match else []
    if match is None or not issuers:
        return _error_response(404, "This site has no protected resource at this path.")
    url, endpoint = match
    cached = {"Cache-Control": f"public, max-age={MAX_AGE_SECONDS}"}
    with suppress(Busy):
        # Only the title in this document depends on overrides.
        endpoint.server.refresh()
    identity = endpoint.server.identity()
    metadata = {
        "resource": url,
        "authorization_servers": issuers,
        # The minimum for using the server. A client whose challenge names no scopes requests all
        # of these; it requests the further scopes of a tool when it calls that tool.
        "scopes_supported": list(endpoint.server.scopes),
        "bearer_methods_supported": ["header"],
        "resource_name": str(identity.get("title") or identity["name"]),
    }
    return JsonResponse(metadata, headers={**cached, **PUBLIC_HEADERS})


# Clients have no session during discovery; read by Django's LoginRequiredMiddleware.
protected_resource.login_required = False  # type: ignore[attr-defined]
# A POST gets the 405 response and not an error about a CSRF cookie.
protected_resource.csrf_exempt = True  # type: ignore[attr-defined]


def metadata_url(server: Any, request: HttpRequest, path: str) -> str | None:
    """Return the URL of an endpoint's metadata, ``None`` if this site serves none.

    ``path`` is the path of the endpoint as the client requested it, including the script name.
    """
    if not _issuers_of(server, request):
        return None
    prefix = prefix_of(request)
    within = path.removeprefix(prefix)
    try:
        route = reverse(
            ROUTE_NAME,
            urlconf=getattr(request, "urlconf", None),
            kwargs={"path": within} if within not in ("", "/") else None,
        )
    except NoReverseMatch:
        return None
    if server.resource_url:
        parts = urlsplit(server.resource_url)
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN_PATH}{parts.path}"
    # ``reverse`` adds the script prefix of this thread, which only Django's handlers set.
    route = "/" + route.removeprefix(get_script_prefix())
    return f"{origin_of(request)}{quote_path(prefix)}{route}"


def _requested_endpoint(request: HttpRequest, path: str) -> tuple[str, ServerEndpoint] | None:
    """Return the requested URL, spelled as in the request, and its endpoint."""
    own, prefix = f"{request.scheme}://{request.get_host()}", prefix_of(request)
    # The path contains the site's prefix if a proxy forwards the URL at the host's root, and does
    # not if the document is requested below the prefix.
    for start in dict.fromkeys((f"{prefix}{path}", path)):
        # A declared URL may have a host other than that of BASE_URL.
        for origin in dict.fromkeys((origin_of(request), canonicalize_url(own) or "")):
            endpoint = find_endpoint(origin + quote_path(start), request)
            if endpoint is not None:
                return origin + quote_path(start), endpoint
    if path.rstrip("/"):
        return None
    only = list(all_resources(request).items())
    return (only[0][0], ServerEndpoint(only[0][1], only[0][0])) if len(only) == 1 else None


def _issuers_of(server: Any, request: HttpRequest) -> list[str]:
    """Return the issuers whose tokens a server accepts, for all of its backends."""
    issuers = [
        issuer for name in server.auth for issuer in get_backend(name).issuers(request, server.name)
    ]
    return list(dict.fromkeys(issuers))


def _error_response(status: int, description: str, **headers: str) -> HttpResponse:
    error = "not_found" if status == 404 else "invalid_request"
    return JsonResponse(
        {"error": error, "error_description": description},
        status=status,
        headers={"Cache-Control": "no-store", **headers, **PUBLIC_HEADERS},
    )


OFFLINE_ACCESS = "offline_access"
"""The scope by which a client requests a refresh token; no operation needs it."""


def build_challenge(
    rejection: AccessRefused,
    *,
    scopes: Sequence[str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> str | None:
    """Return the challenge for a rejected request, ``None`` if no credential would help.

    ``scopes`` replace those of the rejection; ``offline_access`` is never included. ``parameters``
    are added under their names (``resource_metadata`` of RFC 9728).
    """
    if isinstance(rejection, (ConnectionRefused, TooManyAttempts, AuthenticationUnavailable)):
        return None
    values = {"realm": "mcp"}
    if rejection.error:
        values["error"] = rejection.error
    needed = [scope for scope in (scopes or rejection.scopes) if scope and scope != OFFLINE_ACCESS]
    # Clients read an empty value as a scope whose name is two quotes.
    if needed:
        values["scope"] = " ".join(needed)
    values |= parameters or {}
    if rejection.error:
        # Last, since clients search the header for "scope=", which the text may contain.
        values["error_description"] = rejection.message
    for name, value in values.items():
        # Without characters that could end a quoted string or the header.
        printable = "".join(c for c in value if " " <= c <= "~")
        values[name] = printable.replace("\\", "").replace('"', "'")
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in values.items())
