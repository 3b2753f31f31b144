"""Fixtures for the site of `tests/oauth/vault.py`; `mount` is each mount in turn, with WSGI."""

from __future__ import annotations

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections

pytest.importorskip("oauth2_provider")

from tests.oauth import parties, vault
from tests.oauth.vault_asking import EVERY_MOUNT, Holder


@pytest.fixture(autouse=True)
def _vault(settings):
    settings.ROOT_URLCONF = "tests.oauth.vault"
    scopes = {**parties.SETTINGS["SCOPES"], "vault": "Look into the vault"}
    settings.MCP_DJANGO = {**parties.SETTINGS, "SCOPES": scopes}
    vault.executed.clear()
    _close()
    yield
    _close()


def _close() -> None:
    """Close the connections that async ORM calls leave open in asgiref's thread."""
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture(params=EVERY_MOUNT)
def mount(request):
    """The name of each mount in turn."""
    name: str = request.param
    return name


@pytest.fixture
def ada(transactional_db):
    """A user with a client, and no token yet."""
    return Holder(parties.make_user(), parties.make_app())
