"""The official TypeScript client over stdio, at 2026-07-28: it starts the server itself.

`typescript/stdio.mjs` does everything once, in Node; each test checks a part of what it saw.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import Any

import pytest

from tests.interop import node
from tests.kit.processes import REPOSITORY
from tests.spec import spec

REVISION = "2026-07-28"
INVALID_PARAMS = -32602

pytestmark = [
    pytest.mark.requires("node", "npm"),
    # The first test waits for the installation, the demo and the script.
    pytest.mark.timeout(node.INSTALL_SECONDS + 2 * node.SCRIPT_SECONDS),
]


def command(*arguments: str, **environ: str) -> dict[str, Any]:
    """Return the configuration with which a host starts a server."""
    return {
        "command": sys.executable,
        "args": ["manage.py", "mcp", "stdio", *arguments],
        "cwd": str(REPOSITORY),
        "env": {**environ, "PYTHONUNBUFFERED": ""},
    }


@pytest.fixture(scope="session")
def seen(installed, demo_server):
    """Return what the script printed."""
    demo = {
        "DEMO_VAR": str(demo_server.var),
        "DJANGO_SETTINGS_MODULE": "demo_project.settings",
    }
    asking = {"DJANGO_SETTINGS_MODULE": "tests.interop.asking_site.settings"}
    servers = {
        "guest": command("--user", "guest", **demo),
        "desk": command("--server", "staff", **demo, MCP_DJANGO_TOKEN=demo_server.staff_token),
        "nobody": command(**demo),
        "asking": command("--server", "asking", **asking),
    }
    return node.run("stdio.mjs", servers)


@spec("IO-11", "VER-7", "VER-21")
@pytest.mark.parametrize("mode", ["auto", "pinned"])
def test_client_discovers_whom_it_talks_to(seen, mode):
    report = seen[mode]
    assert (report["version"], report["era"]) == (REVISION, "modern")
    assert report["server"]["title"] == "Airport operations desk"


@spec("IO-1", "PRG-1", "PRG-2")
@pytest.mark.parametrize("mode", ["auto", "pinned"])
def test_client_does_everything(seen, mode):
    report = seen[mode]
    assert {"find_route", "search_airports"} < set(report["tools"])
    assert report["distance"] == 5539.6
    airports = report["country"]["structuredContent"]["airports"]
    assert {event["total"] for event in report["progress"]} == {airports}
    assert all(
        earlier["progress"] < later["progress"] for earlier, later in pairwise(report["progress"])
    )
    assert report["image"]["content"][0]["mimeType"] == "image/png"
    assert json.loads(report["airport"]["contents"][0]["text"])["iata"] == "HKG"
    assert "early shift" in report["briefing"]["messages"][0]["content"]["text"]
    assert report["completed"]["completion"]["values"] == ["ZRH"]
    assert report["unknown"]["code"] == INVALID_PARAMS


@spec("CAN-1", "IO-5")
def test_client_leaves_a_long_call_and_goes_on(seen):
    assert seen["leave"]["left"]["message"] == "enough"
    assert seen["leave"]["next"] == 5539.6


@spec("IO-7", "SUB-7", "SUB-8", "SUB-14")
def test_client_listens_and_works_on_one_channel(seen):
    heard = seen["listen"]
    assert heard["honored"] == {"resourceSubscriptions": ["notices://ENBR"]}
    assert heard["uri"] == "notices://ENBR"
    assert heard["number"]
    assert heard["closed"] == "local"
    assert heard["after"] is True


@spec("SUB-12", "SUB-13")
def test_client_takes_the_leave_of_a_stopping_server_for_what_it_is(seen):
    assert seen["dismissed"]["closed"] == "graceful"


@spec("IO-9")
def test_client_that_says_nothing_is_told_what_to_say(seen):
    assert "--user USERNAME" in seen["turned_away"]["message"]


@spec("IO-3", "MRT-1")
def test_user_and_model_are_asked(seen):
    answers = seen["ask"]
    assert answers["refund"]["content"][0]["text"] == "7: refunded, late"
    assert answers["summary"]["structuredContent"]["text"] == "Short."


@spec("IO-2", "IO-3")
def test_client_met_no_errors(seen):
    for name in ("auto", "pinned", "leave", "listen", "ask"):
        assert seen[name]["errors"] == []
