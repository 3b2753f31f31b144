"""One endpoint, where the suite is told to look."""

from django.urls import path

from tests.conformance.server import server

urlpatterns = [path("mcp", server.urls)]
