"""A URLconf with an endpoint whose path ends in `/sse`, as an HTTP+SSE endpoint does."""

from django.urls import include, path

from mcp_django import mcp

urlpatterns = [path("odd/sse", mcp.urls), path("", include("tests.oauth.vault"))]
