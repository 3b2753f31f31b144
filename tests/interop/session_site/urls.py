"""The servers that are not mounted raw."""

from django.urls import path

from tests.interop.session_site.mcp import dated, old, pictures, view

urlpatterns = [
    *(path(f"lane/{version}/mcp", server.urls) for version, server in dated.items()),
    path("lane/old/mcp", old.urls),
    path("view/mcp", view.urls),
    path("pictures/mcp", pictures.urls),
]
