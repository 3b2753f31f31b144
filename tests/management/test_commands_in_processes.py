"""`manage.py mcp` in a process, where streams and databases fail."""

from __future__ import annotations

import json
import shlex
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.kit.processes import REPOSITORY
from tests.management.shell.running import ENVIRONMENT, MANAGE, SETTINGS, shell

pytestmark = pytest.mark.outside


def call(*arguments: str, line: str = '"$@"', **variables: str) -> subprocess.CompletedProcess[str]:
    return shell(line, [*MANAGE, "call", *arguments], **variables)


def test_a_traceback_is_shown_where_it_is_asked_for():
    done = call("bug")
    assert (done.returncode, done.stdout.count("\n")) == (1, 1)
    assert done.stderr == (
        "CommandError: The tool 'bug' raised LookupError: the shelf is empty\n"
        "Run the command again with --traceback to see where.\n"
    )
    done = call("bug", "--traceback")
    assert done.returncode == 1
    assert "urls.py" in done.stderr
    done = shell('"$@" 2>&1', [*MANAGE, "call", "bug", "-v", "2"])
    assert "Traceback" in done.stdout


def test_a_configured_log_is_left_alone(tmp_path):
    log = tmp_path / "site.log"
    assert "Traceback" not in call("bug", SHELL_LOGGING=str(log)).stderr
    assert "LookupError: the shelf is empty" in log.read_text()
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize(
    ("line", "tool", "error"),
    [
        ('"$@" >&-', "emoji", "The standard output is closed, so nothing was run."),
        ('"$@" <&- >&-', "emoji", "The standard output is closed, so nothing was run."),
        ('"$@" >/dev/full', "emoji", "cannot be written to: No space left on device."),
        ('"$@" >/dev/full', "lines", "cannot be written to: No space left on device."),
        ('"$@" | true', "emoji", "cannot be written to: its reader has closed the pipe."),
        ('"$@" | true', "lines", "cannot be written to: its reader has closed the pipe."),
    ],
)
def test_an_output_that_fails_is_told(line, tool, error):
    done = call(tool, line=line)
    assert done.returncode == 1
    assert done.stderr.startswith("CommandError: The standard output ")
    assert done.stderr.endswith(f"{error}\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("line", ['"$@" 2>&-', '"$@" 2>/dev/full'])
def test_errors_that_cannot_be_told_still_end_with_one(line):
    done = call("bug", line=line)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_input_answers_nothing():
    assert call("emoji", line='"$@" <&-').stdout == "é 😀\n"
    done = shell('"$@" <&-', [*MANAGE, "stdio"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "The standard input or output is closed" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_escaped_as_in_json(encoding):
    expected = {"ascii": "\\u00e9 \\ud83d\\ude00", "latin-1": "\udce9 \\ud83d\\ude00"}
    done = call("emoji", PYTHONIOENCODING=encoding)
    assert done.stdout == f"{expected.get(encoding, 'é 😀')}\n"
    done = call("emoji", "--json", PYTHONIOENCODING=encoding)
    answer = done.stdout.encode(errors="surrogateescape").decode(encoding)
    assert json.loads(answer)["result"]["content"][0]["text"] == "é 😀"


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("x=$'caf\\xe9'", "No argument named 'x'"),
        ("$'caf\\xe9=1'", "No argument named 'caf\\udce9'"),
        ("--user $'caf\\xe9'", "'caf\\udce9'"),
        ('--json-args $\'{"a": "caf\\xe9"}\'', "'caf\\udce9' is not valid UTF-8"),
    ],
)
def test_bytes_that_are_not_utf8_are_shown(argument, words, shell_database):
    done = call("emoji", line=f'"$@" {argument}', SHELL_DATABASE=shell_database)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize("command", [["token", "list"], ["call", "emoji", "--user", "ada"]])
def test_a_database_that_fails_is_named_with_the_way_out(command, tmp_path):
    def error(**variables: str) -> str:
        done = shell('"$@"', [*MANAGE, *command], **variables)
        assert done.returncode == 1
        (message,) = (
            line for line in done.stderr.splitlines() if line.startswith("CommandError: ")
        )
        return message

    absent = error(SHELL_DATABASE=str(tmp_path / "no" / "db.sqlite3"))
    assert absent == (
        "CommandError: The database 'default' cannot be reached: unable to open database file. "
        "See DATABASES in the settings."
    )
    empty = error(SHELL_DATABASE=str(tmp_path / "empty.sqlite3"))
    assert empty.startswith("CommandError: The database 'default': no such table: ")
    assert empty.endswith(". Did you run manage.py migrate?")
    none = error()
    assert none.startswith(
        "CommandError: The database 'default' is not configured: settings.DATABASES"
    )


def test_a_log_of_calls_without_a_database_is_told_of(tmp_path):
    missing = str(tmp_path / "no" / "db.sqlite3")
    for variables in ({}, {"SHELL_DATABASE": missing}, {"SHELL_DATABASE": str(tmp_path / "db")}):
        done = call("users", SHELL_LOG_CALLS="1", **variables)
        assert done.returncode == 1
        assert "The database 'default'" in done.stderr


def test_a_locked_database_is_told(shell_database):
    other = sqlite3.connect(shell_database, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        done = shell('"$@"', [*MANAGE, "token", "list"], SHELL_DATABASE=shell_database)
    finally:
        other.close()
    assert done.returncode == 1
    assert "The database 'default': database is locked. Another process" in done.stderr


def test_a_urlconf_that_cannot_be_imported_is_named():
    for command in ("call emoji", "list", "inspect emoji", "connect cursor", "doctor", "contract"):
        done = shell('"$@"', [*MANAGE, *shlex.split(command)], SHELL_URLCONF="no.urls")
        assert done.returncode == 1
        assert done.stderr == (
            "CommandError: ROOT_URLCONF 'no.urls' cannot be imported: "
            "ModuleNotFoundError: No module named 'no'\n"
            "Run the command again with --traceback to see where.\n"
        )


def test_ctrl_c_ends_a_running_call():
    environment = {**ENVIRONMENT, "DJANGO_SETTINGS_MODULE": SETTINGS}
    # Processes that a shell runs in the background ignore the interrupt, and so do their children.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [sys.executable, *MANAGE, "call", "wait"],
            env=environment,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "CommandError: Interrupted.\n")
