"""Where the shop of the documentation mounts its server."""

from django.urls import path

from mcp_django import mcp

urlpatterns = [path("mcp", mcp.urls)]
