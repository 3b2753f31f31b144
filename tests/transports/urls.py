"""The example site's addresses, and the stage."""

from __future__ import annotations

from django.urls import include, path

from tests.transports.stage import stage

urlpatterns = [path("stage/mcp", stage.urls), path("", include("tests.urls"))]
