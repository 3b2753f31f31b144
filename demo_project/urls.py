"""Where the demo's pages and servers are."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path
from django.views.generic import TemplateView

from demo_project.servers import staff
from mcp_django import mcp

urlpatterns = [
    path("", TemplateView.as_view(template_name="desk/home.html"), name="home"),
    path("mcp", mcp.urls),
    path("staff/mcp", staff.urls),
    path("admin/", admin.site.urls),
]
