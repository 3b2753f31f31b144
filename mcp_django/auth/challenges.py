"""Protected resource metadata (RFC 9728), and ``WWW-Authenticate`` (RFC 6750, section 3).

The metadata says who issues tokens for an endpoint, and with which scopes. It is public, for
every origin, and served only for endpoints of this site whose backends have an issuer; any other
path is not found, so that the site does not vouch for anything that is not here (AUT-14, 15).
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
    Endpoint,
    all_resources,
    canonical,
    find_endpoint,
    origin_of,
    prefix_of,
    quoted,
)
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationUnavailable,
    Busy,
    ConnectionRefused,
    TooManyAttempts,
)

ROUTE = "mcp_protected_resource"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
MAX_AGE_SECONDS = 300
VERBS = "GET, HEAD, OPTIONS"
# Browser clients send these while they look around (AUT-19).
ALLOWED_HEADERS = "Authorization, Content-Type, Accept, MCP-Protocol-Version"
PUBLIC_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": VERBS,
    "Access-Control-Allow-Headers": ALLOWED_HEADERS,
    "Access-Control-Max-Age": "86400",
    "X-Content-Type-Options": "nosniff",
}


def protected_resource(request: HttpRequest, path: str | None = None) -> HttpResponse:
    """The document of the endpoint whose path follows the well-known name; 404 where there is none.

    Without a path: that of the only endpoint. ``resource`` is spelled as it was asked for, with or
    without a slash at its end, since clients compare it as a text.
    """
    if request.method == "OPTIONS":
        return _public(HttpResponse(status=204, headers={"Allow": VERBS}))
    if request.method not in {"GET", "HEAD"}:
        return _problem(405, "Use GET.", Allow=VERBS)
    found = _asked_for(request, path or "")
    issuers = _issuers_of(found[1].server, request) if found else []
    if found is None or not issuers:
        return _problem(404, "There is no protected resource of this site at this path.")
    url, endpoint = found
    response = JsonResponse(_document(url, endpoint.server, issuers))
    response["Cache-Control"] = f"public, max-age={MAX_AGE_SECONDS}"
    return _public(response)


# Clients have no session when they begin; read by Django's LoginRequiredMiddleware.
protected_resource.login_required = False  # type: ignore[attr-defined]
# So that a POST is told what to use, and not of cookies.
protected_resource.csrf_exempt = True  # type: ignore[attr-defined]


def metadata_url(server: Any, request: HttpRequest, path: str) -> str | None:
    """Where the document of an endpoint is, ``None`` where this site serves none.

    ``path`` is that of the endpoint as the client called it, script name included.
    """
    if not _issuers_of(server, request):
        return None
    prefix = prefix_of(request)
    within = path.removeprefix(prefix)
    try:
        route = reverse(
            ROUTE,
            urlconf=getattr(request, "urlconf", None),
            kwargs={"path": within} if within not in ("", "/") else None,
        )
    except NoReverseMatch:
        return None
    if server.resource_url:
        parts = urlsplit(server.resource_url)
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"
    # What reverse puts before it is this thread's, and outside of Django's handlers nobody's.
    route = "/" + route.removeprefix(get_script_prefix())
    return f"{origin_of(request)}{quoted(prefix)}{route}"


def _document(url: str, server: Any, issuers: list[str]) -> dict[str, Any]:
    with suppress(Busy):
        # Its title alone is a decision of the site's owner.
        server.refresh()
    identity = server.identity()
    return {
        "resource": url,
        "authorization_servers": issuers,
        # The least that the server is of any use with. A client that is told no scopes by a
        # challenge asks for all of these, and for what a tool needs beyond them when it needs it.
        "scopes_supported": list(server.scopes),
        "bearer_methods_supported": ["header"],
        "resource_name": str(identity.get("title") or identity["name"]),
    }


def _asked_for(request: HttpRequest, path: str) -> tuple[str, Endpoint] | None:
    """The URL asked for, as it is spelled, and its endpoint."""
    own, prefix = f"{request.scheme}://{request.get_host()}", prefix_of(request)
    # The path has the prefix of the site where a proxy hands on the address at the host's root,
    # and not where the document is asked for within the prefix.
    for start in dict.fromkeys((f"{prefix}{path}", path)):
        # A declared URL may have another host than BASE_URL.
        for origin in dict.fromkeys((origin_of(request), canonical(own) or "")):
            endpoint = find_endpoint(origin + quoted(start), request)
            if endpoint is not None:
                return origin + quoted(start), endpoint
    if path.rstrip("/"):
        return None
    only = list(all_resources(request).items())
    return (only[0][0], Endpoint(only[0][1], only[0][0])) if len(only) == 1 else None


def _issuers_of(server: Any, request: HttpRequest) -> list[str]:
    """The issuers whose tokens a server takes, over all of its backends."""
    found = [one for name in server.auth for one in get_backend(name).issuers(request, server.name)]
    return list(dict.fromkeys(found))


def _problem(status: int, description: str, **headers: str) -> HttpResponse:
    body = {"error": "not_found" if status == 404 else "invalid_request"}
    sent = {"Cache-Control": "no-store", **headers}
    described = {**body, "error_description": description}
    return _public(JsonResponse(described, status=status, headers=sent))


def _public(response: HttpResponse) -> HttpResponse:
    for name, value in PUBLIC_HEADERS.items():
        response[name] = value
    return response


# The ``WWW-Authenticate`` header ------------------------------------------------------------------

OFFLINE_ACCESS = "offline_access"
"""The wish of a client for a refresh token; no operation needs it."""


def challenge(
    refusal: AccessRefused,
    *,
    scopes: Sequence[str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> str | None:
    """The challenge that belongs to a refusal, ``None`` where no credential would help.

    ``scopes`` stand in place of the refusal's own; ``offline_access`` is never among them (AUT-12).
    ``parameters`` are added as they are named (``resource_metadata`` of RFC 9728).
    """
    if isinstance(refusal, (ConnectionRefused, TooManyAttempts, AuthenticationUnavailable)):
        return None
    values = {"realm": "mcp"}
    if refusal.error:
        values["error"] = refusal.error
        values["error_description"] = refusal.message
    needed = [one for one in (scopes or refusal.scopes) if one != OFFLINE_ACCESS]
    if needed:
        values["scope"] = " ".join(needed)
    values |= parameters or {}
    return "Bearer " + ", ".join(
        f"{name}={_quoted_string(value)}" for name, value in values.items()
    )


def _quoted_string(value: str) -> str:
    """A quoted-string that cannot leave its quotes nor its header line."""
    printable = "".join(c for c in value if " " <= c <= "~")
    return '"' + printable.replace("\\", "").replace('"', "'") + '"'
