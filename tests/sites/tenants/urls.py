"""The addresses of each site."""

from django.contrib import admin
from django.urls import path

from tests.sites.tenants.mcp import guarded, tenants

urlpatterns = [
    path("mcp", tenants.urls),
    path("guarded", guarded.urls),
    path("admin/", admin.site.urls),
]
