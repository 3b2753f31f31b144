"""The URLconf of the worker processes."""

from django.urls import path

from tests.transports.http_session.server import server

urlpatterns = [path("mcp", server.urls)]
