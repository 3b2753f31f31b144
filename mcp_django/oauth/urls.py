"""Everything the authorization server serves: ``path("", include("mcp_django.oauth.urls"))``.

Include it at the root of the site, since clients look for the metadata at the root of the host; the
endpoints are below ``/oauth/``. Each address works with and without a slash at its end, since
nothing may redirect a POST.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from django.urls import include, path, re_path, register_converter

from mcp_django.oauth.converters import IssuerPath, OIDCPath
from mcp_django.oauth.views.authorize import AuthorizeView
from mcp_django.oauth.views.connections import connections, disconnect
from mcp_django.oauth.views.metadata import authorization_server, jwks, openid_configuration
from mcp_django.oauth.views.register import register
from mcp_django.oauth.views.revoke import RevokeView
from mcp_django.oauth.views.token import TokenView

register_converter(IssuerPath, "mcp_issuer")
register_converter(OIDCPath, "mcp_oidc")

# Not `app_name`: include() would put the whole module under it, the metadata of resources too.
NAMESPACE = "mcp_oauth"

endpoints = [
    re_path(r"^oauth/authorize/?$", AuthorizeView.as_view(), name="authorize"),
    re_path(r"^oauth/token/?$", TokenView.as_view(), name="token"),
    re_path(r"^oauth/register/?$", register, name="register"),
    re_path(r"^oauth/revoke/?$", RevokeView.as_view(), name="revoke"),
    re_path(r"^oauth/jwks/?$", jwks, name="jwks"),
    path("oauth/connections/", connections, name="connections"),
    path("oauth/connections/<int:pk>/disconnect/", disconnect, name="disconnect"),
]
well_known = [
    re_path(
        r"^\.well-known/oauth-authorization-server(?P<path>/.*)?$",
        authorization_server,
        name="metadata",
    ),
    path(".well-known/openid-configuration<mcp_oidc:path>", openid_configuration, name="openid"),
    # Inside a prefix, where a site cannot serve the root of its host.
    path("<mcp_issuer:path>/.well-known/openid-configuration", openid_configuration),
]
# The client of a third party is an extra of its own: mcp_django[upstream].
upstream = (
    import_module("mcp_django.oauth.upstream.urls").urlpatterns if find_spec("authlib") else []
)
urlpatterns = [
    path("", include("mcp_django.urls")),
    path("", include((well_known + endpoints + upstream, NAMESPACE))),
]
