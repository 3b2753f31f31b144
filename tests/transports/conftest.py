"""Every test here runs on the example site with the stage; `app` is each mount in turn."""

from __future__ import annotations

import uuid

import pytest
from asgiref.sync import SyncToAsync
from django.contrib.auth.models import User
from django.db import connections

from mcp_django.models import AccessToken
from mcp_django.storage import pubsub
from mcp_django.transports import answer
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import EVERY_MOUNT
from tests.transports.stage import gates


@pytest.fixture(autouse=True)
def _stage(settings, monkeypatch):
    settings.ROOT_URLCONF = "tests.transports.urls"
    # Shorten the intervals of fixed length, so that tests do not wait for them.
    monkeypatch.setattr(answer, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(pubsub, "DEBOUNCE_SECONDS", 0.005)
    # Async ORM calls of tests, in other folders too, leave a connection open in asgiref's thread.
    close_asgiref_connections()
    yield
    close_asgiref_connections()


def close_asgiref_connections() -> None:
    SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture(params=MOUNTS)
def app(request):
    """One ASGI mount after the other."""
    return MOUNTS[request.param]


@pytest.fixture(params=EVERY_MOUNT)
def mount(request):
    """The name of one mount after the other, WSGI included."""
    name: str = request.param
    return name


@pytest.fixture
def token(transactional_db):
    """The Authorization header of a staff user."""
    user = User.objects.create_user("ada", is_staff=True)
    return f"Bearer {AccessToken.objects.issue(user, name='test')[1]}"


@pytest.fixture
def gate():
    """The name of a gate for this test alone, opened at the end so that no thread keeps waiting."""
    name = uuid.uuid4().hex
    yield name
    gates.pop(name).opened.set() if name in gates else None
