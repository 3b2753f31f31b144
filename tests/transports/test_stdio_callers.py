"""The caller over stdio: named by the command or its environment, looked up for each request."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from mcp_django.models import AccessToken
from mcp_django.protocol.errors import FORBIDDEN, INTERNAL_ERROR, INVALID_PARAMS, UNAUTHORIZED
from tests.kit.servers import person, token_for
from tests.spec import spec
from tests.transports.stdio_process import StdioProcess, stdio

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]
HINT = "--user USERNAME"


@contextmanager
def sharing(directory: Path, *arguments: str, **environ: str) -> Iterator[StdioProcess]:
    """Start a process on the database of the test."""
    database = str(connection.settings_dict["NAME"])
    with stdio(directory, *arguments, MCP_TEST_DATABASE=database, **environ) as process:
        yield process


def who(process: StdioProcess) -> str:
    user: str = json.loads(process.call("whoami"))["user"]
    return user


@spec("IO-9")
def test_the_command_line_names_the_user(tmp_path):
    person("ada")
    with sharing(tmp_path, "--user", "ada") as process:
        assert who(process) == "ada"
        assert json.loads(process.call("whoami"))["method"] is None


@spec("IO-9")
def test_the_environment_names_the_user(tmp_path):
    person("ada")
    with sharing(tmp_path, MCP_DJANGO_USER="ada") as process:
        assert who(process) == "ada"


@spec("IO-9", "AUT-7")
def test_the_environment_holds_a_token_with_its_scopes(tmp_path):
    _, plaintext = token_for(person("ada"), "orders:read")
    with sharing(tmp_path, MCP_DJANGO_TOKEN=plaintext) as process:
        assert who(process) == "ada"
        refused = process.request("tools/call", {"name": "scoped_tool", "arguments": {}})
        assert refused["error"]["code"] == FORBIDDEN
        assert refused["error"]["data"] == {"scopes": ["orders:write", "orders:read"]}
        # The use is stored in the background, at the latest when the process ends.
        process.close_input()
        assert process.wait() == 0
    assert AccessToken.objects.get().last_used_at is not None
    assert plaintext not in process.stderr


@spec("IO-9")
def test_the_command_line_counts_more_than_the_environment(tmp_path):
    person("ada")
    person("bob")
    arguments = ("--user", "bob")
    with sharing(tmp_path, *arguments, MCP_DJANGO_USER="ada", MCP_DJANGO_TOKEN="x") as process:
        assert who(process) == "bob"


@spec("IO-9")
def test_without_a_user_a_closed_server_refuses_and_says_what_helps(tmp_path):
    with sharing(tmp_path) as process:
        for method in ("server/discover", "tools/list", "subscriptions/listen", "nothing"):
            error = process.request(method)["error"]
            assert error["code"] == UNAUTHORIZED
            assert HINT in error["message"]
        process.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
        assert HINT in process.response()["error"]["message"]
    assert "'default' will reject every request" in process.stderr
    assert HINT in process.stderr


def test_a_user_whom_the_server_does_not_want_is_refused(tmp_path):
    user = person("ada")
    with sharing(tmp_path, "--server", "staff", "--user", "ada") as process:
        for method in ("server/discover", "tools/list"):
            error = process.request(method)["error"]
            assert error == {"code": FORBIDDEN, "message": "You may not use this server."}
        # The caller is looked up anew each time.
        user.is_staff = True
        user.save()
        assert process.call("staff_tool") == "done"
        assert "capabilities" in process.request("server/discover")["result"]
    assert "'staff' will reject every request: You may not use this server." in process.stderr


def test_an_anonymous_caller_learns_what_a_tool_of_an_open_server_needs(tmp_path):
    with sharing(tmp_path, "--server", "open") as process:
        assert process.call("echo", text="hi") == "hi"
        error = process.request("tools/call", {"name": "members_tool", "arguments": {}})["error"]
        assert error["code"] == UNAUTHORIZED
        assert HINT in error["message"]
    assert process.stderr.count(HINT) == 0


@spec("IO-8", "VER-2")
def test_a_user_who_was_deactivated_is_not_served_any_more(tmp_path):
    user = person("ada")
    with sharing(tmp_path, "--user", "ada") as process:
        assert who(process) == "ada"
        user.is_active = False
        user.save()
        error = process.request("tools/list")["error"]
        assert error["code"] == UNAUTHORIZED
        assert error["message"] == "The user 'ada' does not exist or is inactive."
        User.objects.all().delete()
        assert process.request("tools/list")["error"] == error


@spec("IO-8")
def test_a_token_that_was_revoked_is_not_taken_any_more(tmp_path):
    token, plaintext = token_for(person("ada"))
    with sharing(tmp_path, MCP_DJANGO_TOKEN=plaintext) as process:
        assert who(process) == "ada"
        token.revoke()
        began = time.monotonic()
        while "error" not in (answer := process.request("tools/list")):
            # Three times the documented delay.
            assert time.monotonic() - began < 3
        error = answer["error"]
        assert error["code"] == UNAUTHORIZED
        assert error["message"] == "The token is unknown, expired or revoked."


def test_permissions_that_were_taken_away_are_gone(tmp_path):
    user = person("ada", is_staff=True)
    call = {"name": "secret_tool", "arguments": {}}
    with sharing(tmp_path, "--user", "ada") as process:
        assert process.call("secret_tool") == "secret"
        user.is_staff = False
        user.save()
        assert process.request("tools/call", call)["error"]["code"] == INVALID_PARAMS


# What cannot begin --------------------------------------------------------------------------------


def failure(directory: Path, *arguments: str, **environ: str) -> str:
    """Return the error output of a command that fails to start."""
    with sharing(directory, *arguments, **environ) as process:
        assert process.rest() == []
        assert process.wait() == 1
    assert "Traceback" not in process.stderr
    return process.stderr


def test_an_unknown_server_is_named_with_the_known_ones(tmp_path):
    output = failure(tmp_path, "--server", "stuff")
    assert "No server named 'stuff'" in output
    assert "default, cracked, noisy, open, parlor, staff, stage" in output


def test_an_unknown_user_is_named_with_the_nearest_one(tmp_path):
    person("ada")
    assert "No user named 'adda'. Did you mean ada?" in failure(tmp_path, "--user", "adda")
    assert "No user named 'adda'." in failure(tmp_path, MCP_DJANGO_USER="adda")


def test_an_inactive_user_is_named(tmp_path):
    person("ada", is_active=False)
    assert "The user 'ada' is inactive" in failure(tmp_path, "--user", "ada")


@pytest.mark.parametrize("kind", ["unknown", "malformed", "expired", "revoked"])
def test_a_token_that_does_not_hold_is_not_repeated(tmp_path, kind):
    ended = timezone.now() - timedelta(days=1)
    token, plaintext = token_for(person("ada"), expires=ended if kind == "expired" else None)
    if kind == "revoked":
        token.revoke()
    given = {"unknown": "mcp_unknown", "malformed": "two words"}.get(kind, plaintext)
    output = failure(tmp_path, MCP_DJANGO_TOKEN=given)
    assert "MCP_DJANGO_TOKEN: " in output
    assert "mcp token list" in output
    assert given not in output


def test_a_user_and_a_token_are_one_too_many(tmp_path):
    output = failure(tmp_path, MCP_DJANGO_USER="ada", MCP_DJANGO_TOKEN="mcp_x")
    assert "Both MCP_DJANGO_USER and MCP_DJANGO_TOKEN are set" in output


# The database -------------------------------------------------------------------------------------


@spec("IO-11", "VER-21")
def test_discovery_needs_no_database(tmp_path):
    nowhere = str(tmp_path / "no such directory" / "db.sqlite3")
    with stdio(tmp_path, "--server", "open", MCP_TEST_DATABASE=nowhere) as process:
        assert "capabilities" in process.request("server/discover")["result"]


@spec("IO-11", "ERR-5")
def test_discovery_goes_on_where_the_database_does_not(tmp_path):
    person("ada")
    copy = tmp_path / "copy.sqlite3"
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(copy)])
    with stdio(tmp_path, "--user", "ada", MCP_TEST_DATABASE=str(copy)) as process:
        assert process.call("count_groups") == "0"
        copy.write_bytes(b"this is no database any more" * 1000)
        broken = process.request("tools/list")
        assert broken["error"]["code"] == INTERNAL_ERROR
        assert "database" not in json.dumps(broken)
        assert "capabilities" in process.request("server/discover")["result"]


def test_requests_leave_no_connection_open(tmp_path):
    person("ada")
    database = str(connection.settings_dict["NAME"])
    with sharing(tmp_path, "--user", "ada") as process:
        for _ in range(20):
            process.call("count_groups")
            process.call("count_groups_later")
        files = Path(f"/proc/{process.process.pid}/fd")
        process.request("server/discover")
        while any(_target(link) == database for link in files.iterdir()):
            process.request("server/discover")


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""
