"""An endpoint whose address ends like one of those of HTTP+SSE."""

from django.urls import include, path

from mcp_django import mcp

urlpatterns = [path("odd/sse", mcp.urls), path("", include("tests.oauth.vault"))]
