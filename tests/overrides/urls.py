"""A site with the server `shed`, which the tests override."""

from django.urls import path

from tests.overrides.site import server_of

shed = server_of("shed", "spade", "rake")

urlpatterns = [path("shed/mcp", shed.urls)]
