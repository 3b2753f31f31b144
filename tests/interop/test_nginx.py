"""The nginx lines of docs/howto/deploy.md in a real nginx: events arrive, also with a prefix."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client

from tests.conformance.fixture import serving
from tests.interop.wire import Wire
from tests.kit.processes import HOST, REPOSITORY, free_port, wait_until_answering

pytestmark = pytest.mark.requires("nginx")

PAGE = REPOSITORY / "docs" / "howto" / "deploy.md"
CONFIGURATION = """
daemon off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    # What must not reach an event stream, whatever the site compresses.
    gzip on;
    gzip_types *;
    server {{
        listen {host}:{port};
        {location}
        location /behind/ {{
            {settings}
            proxy_pass http://{host}:{application}/;
        }}
    }}
}}
"""


def location() -> str:
    """Return the block that the page tells readers to paste."""
    (block,) = re.findall(r"```nginx\n(.+?)```", PAGE.read_text(), re.DOTALL)
    return str(block)


@contextmanager
def proxied(application: int, directory: Path) -> Iterator[str]:
    """Yield the address of an nginx that passes requests to a port of this machine."""
    port = free_port()
    block = location().replace("127.0.0.1:8000", f"{HOST}:{application}")
    lines = [line for line in block.splitlines()[1:-1] if "proxy_pass" not in line]
    text = CONFIGURATION.format(
        directory=directory,
        host=HOST,
        port=port,
        application=application,
        location=block,
        settings="\n".join(lines),
    )
    (directory / "nginx.conf").write_text(text)
    log = directory / "nginx.txt"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["nginx", "-p", str(directory), "-c", str(directory / "nginx.conf")],
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            wait_until_answering(process, port, log)
            yield f"http://{HOST}:{port}"
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def nginx(tmp_path_factory):
    with (
        serving(directory=tmp_path_factory.mktemp("site")) as fixture,
        proxied(fixture.port, tmp_path_factory.mktemp("nginx")) as url,
    ):
        yield url


@pytest.mark.parametrize("prefix", ["", "/behind"])
def test_an_event_comes_while_its_stream_is_open(nginx, prefix):
    wanted = {"notifications": {"toolsListChanged": True}}
    with (
        Wire(f"{nginx}{prefix}/mcp") as wire,
        wire.stream("subscriptions/listen", wanted) as messages,
    ):
        assert next(messages)["method"] == "notifications/subscriptions/acknowledged"


@pytest.mark.parametrize("prefix", ["", "/behind"])
async def test_the_two_addresses_of_http_and_sse_are_found(nginx, prefix):
    async with (
        sse_client(f"{nginx}{prefix}/mcp/sse") as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        result = await session.call_tool("test_simple_text", {})
    assert json.loads(result.model_dump_json())["content"][0]["type"] == "text"
