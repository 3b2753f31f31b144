"""The endpoint of the page, and that of the server with all features."""

from django.urls import path

from tests.interop.framework_site.mcp import features, shop

urlpatterns = [path("mcp", shop.urls), path("features/mcp", features.urls)]
