"""An endpoint for each server, and the views."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from tests.interop.schema_site.api import ParcelViewSet
from tests.interop.schema_site.mcp import servers

router = SimpleRouter()
router.register("parcels", ParcelViewSet)
urlpatterns = [
    *(path(f"{place}/mcp", server.urls) for place, server in servers.items()),
    path("api/", include(router.urls)),
]
