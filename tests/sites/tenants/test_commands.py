"""Commands work for the tenant that is named, over stdio too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.kit.drivers import message
from tests.kit.processes import REPOSITORY
from tests.sites.tenants.fill import TENANTS
from tests.sites.tenants.load import KINDS, PATH
from tests.sites.tenants.sites import environ_of

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

SITES = ("schemas", "rows", "files")


def run(site: str, *arguments: str, sent: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", "mcp", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **environ_of(site)},
        input=sent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def rows(text: str) -> set[str]:
    return set(re.findall(r"\b(?:alpha|beta)-\d", text))


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("site", SITES)
def test_stdio_serves_the_tenant(site, tenant):
    requests = [
        {**message(method, params), "id": number}
        for number, (path, method, params) in enumerate(KINDS.values())
        if path == PATH and params.get("name") != "required_task"
    ]
    lines = "".join(f"{json.dumps(body)}\n" for body in requests)
    process = run(site, "stdio", "--server", "tenants", "--tenant", tenant, sent=lines)
    assert process.returncode == 0, process.stderr
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    results = {response["id"]: response for response in answers if "id" in response}
    assert results.keys() == {body["id"] for body in requests}
    for answer in results.values():
        assert rows(str(answer)) == {f"{tenant}-{number}" for number in (1, 2, 3)}, answer


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("site", SITES)
def test_a_call_is_made_for_the_tenant(site, tenant):
    for tool in ("sync_items", "async_items", "thread_items"):
        process = run(site, "call", tool, "--server", "tenants", "--tenant", tenant)
        assert process.returncode == 0, process.stderr
        assert rows(process.stdout) == {f"{tenant}-{number}" for number in (1, 2, 3)}


@pytest.mark.parametrize("site", ["rows", "files"])
def test_a_tenant_has_to_be_named(site):
    for arguments in (("stdio",), ("call", "sync_items")):
        process = run(site, *arguments, "--server", "tenants")
        assert process.returncode == 1
        assert "--tenant NAME" in process.stderr


def test_a_tenant_that_does_not_exist():
    process = run("schemas", "call", "sync_items", "--server", "tenants", "--tenant", "gamma")
    assert (process.returncode, process.stdout) == (1, "")
    assert "gamma" in process.stderr
