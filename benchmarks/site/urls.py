"""URLconf: the servers, which the fast handler serves, and the views to compare with."""

from __future__ import annotations

from django.urls import path

from benchmarks.site.exposed import exposed
from benchmarks.site.mcp import connected, members, server, signed
from benchmarks.site.views import row, rows, view

urlpatterns = [
    path("mcp", server.urls),
    path("members/mcp", members.urls),
    path("connected/mcp", connected.urls),
    path("signed/mcp", signed.urls),
    path("exposed/mcp", exposed.urls),
    path("view", view),
    path("rows", rows),
    path("rows/<int:pk>", row),
]
