"""The vault on a site that does not serve the metadata of its endpoints."""

from django.urls import path

from tests.oauth.vault import vault

urlpatterns = [path("vault/mcp", vault.urls)]
