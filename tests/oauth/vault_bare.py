"""The URLs of a site with the vault that does not serve the metadata of its endpoints."""

from django.urls import path

from tests.oauth.vault import vault

urlpatterns = [path("vault/mcp", vault.urls)]
