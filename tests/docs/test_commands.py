"""docs/ref/commands.md names every option, and its examples are what the commands print."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest
from django.core.management import BaseCommand, load_command_class

from mcp_django.hosts.clients import CLIENTS
from tests.kit.servers import person
from tests.management.console import attempt

# The commands look at every server of the process.
pytestmark = pytest.mark.usefixtures("only_declared_servers")

PAGE = (Path(__file__).parents[2] / "docs" / "ref" / "commands.md").read_text()
PROMPT = "$ python manage.py mcp "
# The options of every command, which the page does not repeat for each.
DJANGOS = [
    "--tenant",
    *(
        name
        for action in BaseCommand().create_parser("", "")._actions
        for name in action.option_strings
    ),
]
# These have a page of their own.
ELSEWHERE = {"stdio", "doctor", "contract"}


def subcommands() -> dict[str, argparse.ArgumentParser]:
    parser = load_command_class("mcp_django", "mcp").create_parser("manage.py", "mcp")
    return choices(parser)


def choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the subparsers of a parser by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    own = {option for action in parser._actions for option in action.option_strings}
    below = (options_of(subparser) for subparser in choices(parser).values())
    return own.union(*below) - set(DJANGOS)


def test_djangos_own_options_are_named_once():
    named = {*re.findall(r"`(--[a-z-]+)[` ]", PAGE.partition("\n## ")[0])}
    assert {option for option in DJANGOS if option.startswith("--")} - {
        "--help",
        "--version",
    } <= named


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_every_subcommand_is_in_the_first_table():
    named = re.findall(r"^\| \[`(\w+)`\]", PAGE, re.MULTILINE)
    assert named == [*subcommands()]


@pytest.mark.parametrize("name", [name for name in subcommands() if name not in ELSEWHERE])
def test_every_option_of_a_subcommand_is_explained(name):
    documented = {*re.findall(r"`(--[a-z-]+)[ `]", section(name))}
    parser = subcommands()[name]
    assert options_of(parser) <= documented
    others = {option for subparser in subcommands().values() for option in options_of(subparser)}
    assert documented <= others | {*DJANGOS, "--config"}


def test_every_client_is_in_the_table():
    named = re.findall(r"^\| `([\w-]+)` \|", section("connect"), re.MULTILINE)
    assert [name for name in named if name in CLIENTS] == [*CLIENTS]


def examples() -> list[tuple[str, str]]:
    """Return the commands of the page with the output that it shows."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [
        tuple(example.split("\n", 1)) for block in blocks for example in block.split(PROMPT)[1:]
    ]


@pytest.mark.django_db(reset_sequences=True)
def test_the_examples_are_what_is_printed():
    person("alice")
    assert len(examples()) > 7
    for line, shown in examples():
        outcome = attempt(*shlex.split(line))
        pattern = re.escape(shown.rstrip()).replace("…", ".+")
        assert re.fullmatch(pattern, outcome.out.rstrip()), (line, outcome)
