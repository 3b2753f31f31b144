"""Clients of others accept every list and every result, and read the values that are meant.

Clients compile the schemas of a list, validate results with them, and build types from them; each
interprets JSON Schema in its own way. `schema_site/cases.py` has the tools and the values.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from tests.interop import clients, node
from tests.interop.schema_site import SITE
from tests.interop.schema_site.cases import CASES, Case
from tests.interop.session_server import MIGRATE_SECONDS
from tests.kit.processes import REPOSITORY, START_SECONDS, serving
from tests.spec import spec

pytestmark = [
    pytest.mark.outside,
    pytest.mark.timeout(
        MIGRATE_SECONDS + START_SECONDS + node.INSTALL_SECONDS + clients.SCRIPT_SECONDS
    ),
]

Seen = dict[str, Any]
Run = Callable[[Any], dict[str, Any]]


def _python(client: str, environment: str | None) -> Run:
    def run(given: Any) -> dict[str, Any]:
        return clients.run("schemas.py", {"client": client, **given}, environment=environment)

    return run


def _typescript(project: Any) -> Run:
    def run(given: Any) -> dict[str, Any]:
        node.install(project)
        return node.run("schemas.mjs", given, project=project)

    return run


NODE = pytest.mark.requires("node", "npm")
CLIENTS = pytest.mark.requires("clients")
LATEST = "2026-07-28"
# How a client gets to each revision that has output schemas: by its mode, or because the server has
# no later one. Clients that know only the handshake do not speak the first.
TARGETS = {
    LATEST: {"path": "latest", "mode": "auto"},
    "2025-11-25": {"path": "latest", "mode": "legacy"},
    "2025-06-18": {"path": "older", "mode": "legacy"},
}
HANDSHAKES = tuple(TARGETS)[1:]
# Each client with the revisions that it speaks, and what it requires.
WAYS: Mapping[str, tuple[Run, tuple[str, ...], tuple[pytest.MarkDecorator, ...]]] = {
    "mcp 1": (_python("sdk1", "mcp1"), HANDSHAKES, (CLIENTS,)),
    "mcp 2": (_python("sdk2", None), tuple(TARGETS), ()),
    "fastmcp": (_python("fastmcp", "fastmcp"), tuple(TARGETS), (CLIENTS,)),
    "sdk": (_typescript(node.OLDER_PROJECT), HANDSHAKES, (NODE,)),
    "client": (_typescript(node.PROJECT), tuple(TARGETS), (NODE,)),
}


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Yield the address of the site, started once."""
    directory = tmp_path_factory.mktemp("schemas")
    environ = {"MCP_TEST_DATABASE": str(directory / "db.sqlite3")}
    settings = f"{SITE}.settings"
    subprocess.run(
        [sys.executable, "-m", f"{SITE}.prepare"],
        cwd=REPOSITORY,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": settings, **environ},
        timeout=MIGRATE_SECONDS,
        check=True,
    )
    with serving(
        "uvicorn", f"{SITE}.asgi:application", directory, settings=settings, **environ
    ) as server:
        yield server.url


@pytest.fixture(scope="session")
def visit(site):
    """Return a function that runs a client once, and returns what it saw at each revision."""
    seen: dict[str, dict[str, Seen]] = {}

    def visit(client: str) -> dict[str, Seen]:
        if client not in seen:
            run, revisions, _ = WAYS[client]
            seen[client] = run(given(site, revisions))
        return seen[client]

    return visit


def given(site: str, revisions: Iterable[str]) -> dict[str, Any]:
    """Return the input of a script: what to call, and where."""
    targets = {
        revision: {"url": f"{site}/{TARGETS[revision]['path']}/mcp", **TARGETS[revision]}
        for revision in revisions
    }
    return {"calls": {name: case.arguments for name, case in CASES.items()}, "targets": targets}


@pytest.fixture
def seen(client, revision, visit):
    return visit(client)[revision]


every_client = pytest.mark.parametrize(
    ("client", "revision"),
    [
        pytest.param(client, revision, marks=marks, id=f"{client} at {revision}")
        for client, (_, revisions, marks) in WAYS.items()
        for revision in revisions
    ],
)


@spec("TOOL-2")
@every_client
def test_client_takes_the_whole_list(seen, revision):
    assert seen["revision"] == revision
    assert seen["refused"] is None
    assert set(seen["list"]) == set(CASES)


@spec("OUT-1", "OUT-2")
@every_client
def test_client_takes_every_result(seen):
    rejected = {
        name: call.get("error") or call["texts"]
        for name, call in seen["calls"].items()
        if call.get("error") or call["failed"]
    }
    assert rejected == {}, "\n".join(f"{name}: {reason}" for name, reason in rejected.items())


@every_client
def test_client_sees_the_value_that_is_meant(seen, revision):
    assert seen["calls"].keys() == CASES.keys()
    wrong = {}
    for name, case in CASES.items():
        call = seen["calls"][name]
        # Those that are rejected fail in the test above.
        if call.get("error") or call["failed"]:
            continue
        if (expected := _expected(case, revision)) != _shown(case, call):
            wrong[name] = f"{_shown(case, call)}, not {expected}"
    assert wrong == {}, "\n".join(f"{name}: {difference}" for name, difference in wrong.items())


def _expected(case: Case, revision: str) -> Any:
    if case.is_text:
        return {"text": case.value, "structured": None}
    is_wrapped = case.is_wrapped and revision != LATEST
    return {
        "text": case.value,
        "structured": {"result": case.value} if is_wrapped else case.value,
    }


def _shown(case: Case, call: Seen) -> Any:
    text = "".join(call["texts"])
    # Text is not encoded as JSON.
    return {
        "text": text if isinstance(case.value, str) else json.loads(text),
        "structured": call.get("structured"),
    }
