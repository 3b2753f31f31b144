"""A site with an admin."""

from django.contrib import admin
from django.urls import path

from tests.admin.shelf import shelf

urlpatterns = [path("admin/", admin.site.urls), path("shelf/mcp", shelf.urls)]
