"""URLs of the authorization server: ``path("", include("mcp_django.oauth.urls"))``.

Include them at the root of the site, since clients look for the metadata at the root of the host;
the endpoints are below ``/oauth/``. Each endpoint URL works with and without a trailing slash,
since a POST must not be redirected.
"""

from __future__ import annotations

from importlib.util import find_spec

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver, include, path, re_path, register_converter

try:
    from mcp_django.oauth.authorize import AuthorizeView
    from mcp_django.oauth.connections import connections, disconnect, of_this_tenant
    from mcp_django.oauth.metadata import authorization_server, jwks, openid_configuration
    from mcp_django.oauth.registration import register
    from mcp_django.oauth.responses import IssuerPath, OIDCPath
    from mcp_django.oauth.token import RevokeView, TokenView
except RuntimeError as exc:
    # The error of the toolkit's models does not name the cause.
    if not apps.is_installed("oauth2_provider"):
        raise ImproperlyConfigured(
            'mcp_django.oauth.urls needs django-oauth-toolkit: add "oauth2_provider" to '
            "INSTALLED_APPS, or remove mcp_django.oauth.urls from the URLconf."
        ) from exc
    raise
if not apps.is_installed("mcp_django.oauth"):
    raise ImproperlyConfigured(
        'mcp_django.oauth.urls needs its app: add "mcp_django.oauth" to INSTALLED_APPS, or '
        "remove it from the URLconf."
    )

register_converter(IssuerPath, "mcp_issuer")
register_converter(OIDCPath, "mcp_oidc")

# Not `app_name`, which would apply to the whole module, including the metadata of resources.
NAMESPACE = "mcp_oauth"

upstream_pages: list[URLPattern] = []
# Upstream providers need Authlib, an optional dependency: django-mcp-provider[upstream].
if find_spec("authlib"):
    from mcp_django.oauth import upstream_pages as pages

    upstream_pages = [
        path("callback", of_this_tenant(pages.callback), name="upstream_callback"),
        path("backchannel-logout", pages.backchannel_logout, name="upstream_logout"),
        path("connect", of_this_tenant(pages.connect), name="upstream_connect"),
        path("disconnect", of_this_tenant(pages.disconnect), name="upstream_disconnect"),
    ]
endpoints: list[URLPattern | URLResolver] = [
    re_path(r"^oauth/authorize/?$", of_this_tenant(AuthorizeView.as_view()), name="authorize"),
    re_path(r"^oauth/token/?$", of_this_tenant(TokenView.as_view()), name="token"),
    re_path(r"^oauth/register/?$", register, name="register"),
    re_path(r"^oauth/revoke/?$", RevokeView.as_view(), name="revoke"),
    re_path(r"^oauth/jwks/?$", jwks, name="jwks"),
    path("oauth/connections/", of_this_tenant(connections), name="connections"),
    path("oauth/connections/<int:pk>/disconnect/", of_this_tenant(disconnect), name="disconnect"),
    path("oauth/upstream/<slug:provider>/", include(upstream_pages)),
]
well_known: list[URLPattern | URLResolver] = [
    re_path(
        r"^\.well-known/oauth-authorization-server(?P<path>/.*)?$",
        authorization_server,
        name="metadata",
    ),
    path(".well-known/openid-configuration<mcp_oidc:path>", openid_configuration, name="openid"),
    # Below a path prefix, where the site cannot serve the root of its host.
    path("<mcp_issuer:path>/.well-known/openid-configuration", openid_configuration),
]
urlpatterns = [
    path("", include("mcp_django.urls")),
    path("", include((well_known + endpoints, NAMESPACE))),
]
