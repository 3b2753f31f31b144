"""One endpoint, at the address that the suite gets."""

from django.urls import path

from tests.conformance.server import server

urlpatterns = [path("mcp", server.urls)]
