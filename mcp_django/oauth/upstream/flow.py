"""What the authorization of a client has to do with third parties: where it goes when the user has
consented, and how it ends when he comes back.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from mcp_django.oauth.upstream.bindings import UpstreamUnavailable

DESCRIPTIONS = {
    "access_denied": "The user has not let this site in at the provider that the server needs.",
    "temporarily_unavailable": "The provider that the server needs does not answer.",
}


def next_step(
    request: HttpRequest, user: Any, server: Any, approved_request: dict[str, Any]
) -> HttpResponse | None:
    """Where an authorization that the user has approved goes next.

    A redirect to the provider of ``server.upstream`` where the user has no live access there,
    ``None`` where the client can get its code. ``approved_request`` is the validated request, in
    values of JSON and not empty: ``views.authorize.finish(request, approved_request)`` goes on with
    it after the user came back, or ``refuse(request, approved_request, error=…)`` tells the client
    that he did not. To be called after the approval, never before; once for each server.

    Raises:
        ImproperlyConfigured: the server names a provider that is not configured.
    """
    name = getattr(server, "upstream", "")
    if not name:
        return None
    # Their dependencies are an extra of its own.
    from mcp_django.oauth.upstream.grants import live_grant
    from mcp_django.oauth.upstream.transactions import begin

    if live_grant(user, name) is not None:
        return None
    try:
        return begin(request, user, name, approved_request)
    except UpstreamUnavailable:
        return refused(request, approved_request, "temporarily_unavailable")


def finished(request: HttpRequest, approved_request: dict[str, Any]) -> HttpResponse:
    """Go on with the client's authorization: it is validated anew and ends in a code."""
    # The views import this module.
    from mcp_django.oauth import authorize

    return authorize.finish(request, approved_request)


def refused(request: HttpRequest, approved_request: dict[str, Any], error: str) -> HttpResponse:
    """Tell the client that it gets nothing (RFC 6749, section 4.1.2.1)."""
    from mcp_django.oauth import authorize

    return authorize.refuse(request, approved_request, error=error, description=DESCRIPTIONS[error])
