"""The addresses of the site."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("mcp_django.urls")),
    path("helpdesk/", include("helpdesk.urls")),
]
