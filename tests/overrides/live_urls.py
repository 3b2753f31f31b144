"""The addresses of the worker processes."""

from django.contrib import admin
from django.urls import path

from tests.transports.http_session.server import server

urlpatterns = [path("mcp", server.urls), path("admin/", admin.site.urls)]
