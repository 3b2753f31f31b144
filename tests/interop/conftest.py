"""One demo site for all tests that talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.demo_site import DemoServer, running_demo
from tests.interop.wire import Wire


@pytest.fixture(scope="session")
def demo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoServer]:
    """The demo, started once in a directory of its own."""
    with running_demo(tmp_path_factory.mktemp("demo")) as server:
        yield server


@pytest.fixture
def guest(demo_server: DemoServer) -> Iterator[Wire]:
    """A guest at the server for every account."""
    with Wire(demo_server.url, token=demo_server.token) as wire:
        yield wire


@pytest.fixture
def desk(demo_server: DemoServer) -> Iterator[Wire]:
    """A member of staff at the server for staff."""
    with Wire(demo_server.staff_url, token=demo_server.staff_token) as wire:
        yield wire
