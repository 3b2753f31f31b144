"""Where the example site mounts its servers and the admin."""

from django.contrib import admin
from django.urls import path

from mcp_django import mcp
from tests.sites.example.mcp import open_server, staff

urlpatterns = [
    path("mcp", mcp.urls),
    path("staff/mcp", staff.urls),
    path("open/mcp", open_server.urls),
    path("admin/", admin.site.urls),
]
