"""Django's own options are accepted before and after the subcommands of `manage.py mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class

from tests.kit.processes import REPOSITORY
from tests.management.console import run, server_of
from tests.management.shell.running import SETTINGS, shell


def echo(value: Any) -> str:
    """Say what came."""
    return repr(value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("call", "echo", "value=1"),
        ("list",),
        ("inspect", "echo"),
        ("contract", "--output", "-"),
    ],
    ids=" ".join,
)
def test_djangos_options_stand_after_a_subcommand(arguments):
    server = server_of(echo)
    here = str(Path.cwd())
    options = ("--settings", "tests.settings", "--pythonpath", here, "--traceback", "--no-color")
    where = ("--server", server.name)
    plain = run(*arguments, *where)
    assert run(*arguments, *where, *options, "-v", "0", "--skip-checks") == plain
    assert run(arguments[0], *options, *arguments[1:], "--verbosity=0", *where) == plain


def test_an_option_before_the_subcommand_still_counts():
    command = load_command_class("mcp_django", "mcp")
    parser = command.create_parser("manage.py", "mcp")
    words = ["call", "echo"]
    before = parser.parse_args(["-v", "2", "--traceback", *words])
    assert (before.verbosity, before.traceback, before.no_color) == (2, True, False)
    after = parser.parse_args([*words, "-v", "3", "--no-color"])
    assert (after.verbosity, after.traceback, after.no_color) == (3, False, True)
    nested = parser.parse_args(["token", "-v", "2", "list", "--settings", "x"])
    assert (nested.verbosity, nested.settings) == (2, "x")


@pytest.mark.parametrize(
    "start",
    [
        ["manage.py"],
        ["-m", "django"],
        ["-c", "from django.core.management import execute_from_command_line as run; run()"],
    ],
    ids=["manage.py", "-m django", "django-admin"],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ["mcp", "call", "emoji"],
        ["mcp", "contract", "--output", "-"],
        ["mcp", "token", "list", "--json"],
    ],
    ids=" ".join,
)
@pytest.mark.outside
def test_they_choose_the_settings_of_a_process(start, arguments, shell_database):
    options = ["--settings", SETTINGS, f"--pythonpath={REPOSITORY}", "-v", "0", "--no-color"]
    cwd = "" if start == ["manage.py"] else "cd / && "
    done = shell(
        f'{cwd}"$@"',
        [*start, *arguments, *options, "--skip-checks"],
        settings=None,
        SHELL_DATABASE=shell_database,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
