"""The URLs of a site whose tokens are issued by another server."""

from django.urls import include, path

from mcp_django import mcp
from tests.sites.example.mcp import staff

urlpatterns = [
    path("", include("mcp_django.urls")),
    path("mcp", mcp.urls),
    path("staff/mcp", staff.urls),
]
