"""The addresses of each site."""

from django.urls import path

from tests.sites.tenants.mcp import guarded, tenants

urlpatterns = [path("mcp", tenants.urls), path("guarded", guarded.urls)]
