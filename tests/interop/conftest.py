"""The sites that all tests talk to, and what the official TypeScript client needs."""

import pytest

from tests.interop import node
from tests.interop.demo_site import running_demo
from tests.interop.wire import Wire
from tests.kit.processes import serving

ASKING = "tests.interop.asking_site"
MOUNTS = ("lane", "raw")


@pytest.fixture(scope="session")
def demo_server(tmp_path_factory):
    """Yield the demo, started once in a directory of its own."""
    with running_demo(tmp_path_factory.mktemp("demo")) as server:
        yield server


@pytest.fixture
def guest(demo_server):
    """Yield a guest's client of the server for every account."""
    with Wire(demo_server.url, token=demo_server.token) as wire:
        yield wire


@pytest.fixture
def desk(demo_server):
    """Yield a client of the server for staff, which can be asked to fill in forms."""
    with Wire(
        demo_server.staff_url, token=demo_server.staff_token, capabilities={"elicitation": {}}
    ) as wire:
        yield wire


@pytest.fixture(scope="session")
def asking_urls(tmp_path_factory):
    """Yield the endpoints of the site that asks, by mount; one process serves both."""
    with serving(
        "uvicorn",
        f"{ASKING}.asgi:application",
        tmp_path_factory.mktemp("asking"),
        settings=f"{ASKING}.settings",
    ) as server:
        yield {mount: f"{server.url}/{mount}/mcp" for mount in MOUNTS}


@pytest.fixture(params=MOUNTS)
def asking_url(request, asking_urls):
    """Return each endpoint of the site that asks."""
    return asking_urls[request.param]


@pytest.fixture(scope="session")
def installed():
    """Install the official TypeScript client."""
    node.install()
