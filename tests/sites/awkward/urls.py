"""The endpoint lies below a tenant."""

from django.urls import include, path

from mcp_django import mcp

urlpatterns = [
    path("<slug:tenant>/", include([path("api/mcp", mcp.urls)])),
    path("", include("mcp_django.oauth.urls")),
]
