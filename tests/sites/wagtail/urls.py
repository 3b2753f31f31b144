"""The addresses of the site."""

from django.contrib import admin
from django.urls import include, path
from wagtail import urls as wagtail_urls

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("mcp_django.urls")),
    path("", include(wagtail_urls)),
]
