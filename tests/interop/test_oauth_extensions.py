"""The official Python client and the two extensions of authorization, against a live site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("oauth2_provider")

from cryptography.hazmat.primitives import serialization

from tests.interop import clients
from tests.kit.processes import REPOSITORY, START_SECONDS
from tests.oauth.live.site import SETTINGS, Site, running_site
from tests.oauth.signing import jwks, key
from tests.spec import spec

COMPANY = "https://login.company.example"
SECRET = "s" * 40
GRANTS = {
    "secret": "client_credentials",
    "key": "client_credentials",
    "assistant": "urn:ietf:params:oauth:grant-type:jwt-bearer",
}
MODES = ("legacy", "2026-07-28")

pytestmark = [pytest.mark.outside, pytest.mark.timeout(3 * clients.SCRIPT_SECONDS)]


def machines_at(site: Site) -> dict[str, str]:
    """Create the clients in the database of a running site, and return their ids."""
    keys = jwks("machine", kind="RSA")
    done = subprocess.run(
        [sys.executable, "-m", "tests.oauth.live.machines"],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "MCP_TEST_DATABASE": str(site.database),
        },
        input=json.dumps({"issuer": COMPANY, "secret": SECRET, "keys": keys}),
        capture_output=True,
        text=True,
        check=False,
        timeout=START_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@contextmanager
def site_of_machines(directory: Path) -> Iterator[tuple[Site, dict[str, str]]]:
    """Yield a site with both extensions on, and the ids of its clients."""
    trusted = {"ISSUER": COMPANY, "JWKS": jwks("company", kind="RSA")}
    oauth = {"CLIENT_CREDENTIALS": True, "TRUSTED_ISSUERS": [trusted]}
    with running_site(directory, oauth=oauth) as site:
        yield site, machines_at(site)


def pem(name: str) -> str:
    """Return the private key of that name."""
    written: bytes = key(name, "RSA").private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return written.decode()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return what each client saw, by its kind and its mode."""
    with site_of_machines(tmp_path_factory.mktemp("machines")) as (site, ids):
        common = {"url": site.mcp, "issuer": site.issuer, "company": COMPANY, "secret": SECRET}
        targets = {
            f"{kind} {mode}": {
                **common,
                "kind": kind,
                "mode": mode,
                "client_id": ids[kind],
                "key": pem("machine" if kind == "key" else "company"),
            }
            for kind in GRANTS
            for mode in MODES
        }
        return clients.run("oauth_extensions.py", {"targets": targets}, environment=None)


@pytest.fixture(params=[f"{kind} {mode}" for kind in GRANTS for mode in MODES])
def client_report(request, seen):
    """Return the kind of a client, and what it saw."""
    return request.param.split()[0], seen[request.param]


@spec("AUT-34")
def test_official_client_calls_without_a_page_or_a_refresh_token(client_report):
    kind, report = client_report
    assert report["version"] in ("2025-11-25", "2026-07-28")
    assert report["first"] == ("ada" if kind == "assistant" else "robot")
    assert report["granted"] == "mcp"
    assert report["grants"] == [GRANTS[kind]]
    assert report["pages"] == 0
    assert report["refresh_token"] is None


@spec("AUT-6", "AUT-34")
def test_official_client_gets_more_where_a_tool_needs_it(client_report):
    _, report = client_report
    assert report["more"] == "Refunded 7."
    assert {"mcp:write", "orders:refund"} <= {*report["granted_more"].split()}
