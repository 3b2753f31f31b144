"""The URLconf of the example site, with the stage and the parlor."""

from django.urls import include, path

from tests.transports.http_session.parlor import parlor
from tests.transports.stage import stage

urlpatterns = [
    path("stage/mcp", stage.urls),
    path("parlor/mcp", parlor.urls),
    path("", include("tests.sites.example.urls")),
]
