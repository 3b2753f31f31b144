"""Two users with tokens, and the mounts of this site."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.servers import person, token_for
from tests.sites.audit.callers import OWN_MOUNTS, Caller
from tests.transports.asgi import MOUNTS
from tests.transports.conftest import close_asgiref_connections


@pytest.fixture(autouse=True)
def _own_mounts(monkeypatch):
    for name, app in OWN_MOUNTS.items():
        monkeypatch.setitem(MOUNTS, name, app)
    close_asgiref_connections()
    yield
    close_asgiref_connections()


def _caller(name: str) -> Caller:
    user: Any = person(name, is_staff=True, is_superuser=True)
    return Caller(username=name, token=f"Bearer {token_for(user)[1]}")


@pytest.fixture
def ada(transactional_db):
    return _caller("ada")


@pytest.fixture
def bob(transactional_db):
    return _caller("bob")
