"""The official suite's `authorization` command against a live OAuth site, at its root and a prefix.

The suite asks a user to open an address and to consent; a headless browser does so.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from typing import Any

import httpx
import pytest

pytest.importorskip("oauth2_provider")

from tests.conformance import suite
from tests.kit.processes import free_port
from tests.oauth.live.browser import Browser
from tests.oauth.live.site import Site, running_site
from tests.spec import spec

SECONDS = 180
SCENARIOS = {"authorization-server-metadata-endpoint", "authorization-code-grant"}
CHECKS = {
    "authorization-server-metadata",
    "authorization-server-metadata-cimd",
    "authorization-code-grant",
}

pytestmark = [
    pytest.mark.requires("node", "conformance"),
    pytest.mark.timeout(4 * SECONDS),
]


@pytest.fixture(scope="module", params=["", "/app"], ids=["at the root", "at a prefix"])
def site(request, tmp_path_factory):
    """Yield the live site, whose issuer is its origin or has a path."""
    with running_site(tmp_path_factory.mktemp("authorization"), prefix=request.param) as running:
        yield running


def test_the_command_has_no_other_scenarios():
    listed = subprocess.run(
        ["node", str(suite.directory() / "dist" / "index.js"), "list", "--authorization"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    assert {*re.findall(r"^  - (\S+) \[", listed.stdout, re.MULTILINE)} == SCENARIOS


@spec("AUT-16", "AUT-17", "AUT-18", "AUT-21")
@pytest.mark.parametrize("has_resource", [True, False], ids=["a resource", "no resource"])
def test_every_check_of_the_command_passes(site, tmp_path, has_resource):
    port = free_port()
    client = _register(site, port)
    arguments = ["--url", site.issuer, "--client-id", client["client_id"], "--port", str(port)]
    if has_resource:
        arguments += ["--resource", site.mcp]
    output = _run(*arguments, "--output-dir", str(tmp_path))
    checks = {
        check["id"]: (check["status"], check.get("errorMessage"))
        for file in tmp_path.glob("*/checks.json")
        for check in json.loads(file.read_text())
    }
    assert checks == dict.fromkeys(CHECKS, ("SUCCESS", None)), output


def _register(site: Site, port: int) -> dict[str, Any]:
    """Register a public client: with `none`, the suite sends no secret, even if it has one."""
    answer = httpx.post(
        f"{site.base}/oauth/register",
        json={
            "client_name": "Conformance suite",
            "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
            "token_endpoint_auth_method": "none",
        },
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def _run(*arguments: str) -> str:
    """Return the command's output, while a user opens the address that it prints."""
    command = ["node", str(suite.directory() / "dist" / "index.js"), "authorization", *arguments]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        watchdog = threading.Timer(SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if re.match(r"https?://\S+[?&]response_type=code", line):
                    with Browser() as browser:
                        landed = browser.authorize(line.strip())
                    httpx.get(landed, trust_env=False)
        finally:
            watchdog.cancel()
            process.kill()
    return "".join(lines)
