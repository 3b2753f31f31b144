"""``mcp contract``: what the servers promise, as a file to commit, and what changed since.

Exit statuses of ``--check``: 0 if nothing changed but what is allowed, 2 if something needs
approval, 3 if something breaks. 1 is for a file that cannot be compared, as for all commands.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mcp_django.management.contract.canonical import sealed, text_of
from mcp_django.management.contract.change import Change, Level
from mcp_django.management.contract.comparing import changes_between
from mcp_django.management.contract.document import PLURALS, SERVERS, contract_of
from mcp_django.management.contract.reading import read_contract
from mcp_django.management.lookups import declared_servers
from mcp_django.management.rendering import printable

DEFAULT_PATH = "mcp-contract.json"
LEVELS = {level.word: level for level in Level}
STATUSES = {Level.APPROVAL: 2, Level.BREAKING: 3}
HEADINGS = {
    Level.BREAKING: "breaking, or nobody can tell",
    Level.APPROVAL: "needs approval",
    Level.SAFE: "safe",
}


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser(
        "contract", help="Write down what the servers promise, or compare with what is written."
    )
    parser.add_argument("--server", metavar="NAME", help="Only this server.")
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=DEFAULT_PATH,
        help=f"The file, {DEFAULT_PATH} if not given; - for the standard output.",
    )
    parser.add_argument(
        "--check", action="store_true", help="Write nothing; say what changed since the file."
    )
    parser.add_argument(
        "--allow",
        choices=list(LEVELS),
        default=Level.SAFE.word,
        help="With --check: the worst change that is no failure (default: safe).",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Write the file, or compare with it."""
    contract = contract_of(declared_servers(options["server"]))
    if options["check"]:
        _check(command, contract, options)
    elif options["output"] == "-":
        command.stdout.write(text_of(contract), ending="")
    else:
        _write(command, contract, options)


def _write(command: BaseCommand, contract: dict[str, Any], options: Mapping[str, Any]) -> None:
    path = Path(options["output"])
    if options["server"] and path.exists():
        # The other servers in the file are left as they are.
        contract = sealed({**contract, SERVERS: read_contract(path)[SERVERS] | contract[SERVERS]})
    try:
        path.write_text(text_of(contract), encoding="utf-8", newline="\n")
    except OSError as exc:
        raise CommandError(f"{path} cannot be written: {exc.strerror}.") from None
    servers = contract[SERVERS]
    count = sum(len(server[plural]) for server in servers.values() for plural in PLURALS)
    if options["json"]:
        told = {"file": str(path), "digest": contract["digest"], "components": count}
        command.stdout.write(json.dumps(told, ensure_ascii=False))
    else:
        names = ", ".join(servers) or "none"
        command.stdout.write(f"{path}: {count} components of the servers: {names}.")


def _check(command: BaseCommand, contract: dict[str, Any], options: Mapping[str, Any]) -> None:
    if options["output"] == "-":
        raise CommandError("--check compares with a file; name it with --output FILE.")
    path = Path(options["output"])
    written = read_contract(path)
    if options["server"]:
        kept = {name: one for name, one in written[SERVERS].items() if name == options["server"]}
        written = {**written, SERVERS: kept}
    changes = changes_between(written, contract)
    worst = max((one.level for one in changes), default=Level.SAFE)
    is_allowed = worst <= LEVELS[options["allow"]]
    if options["json"]:
        told = _told(changes, worst, contract, is_allowed=is_allowed)
        command.stdout.write(json.dumps(told, ensure_ascii=False))
    else:
        command.stdout.write(printable(_text(changes, path)))
    if not is_allowed:
        counted = Counter(one.level for one in changes if one.level > LEVELS[options["allow"]])
        said = " and ".join(
            f"{counted[level]} {HEADINGS[level]}" for level in HEADINGS if counted[level]
        )
        raise CommandError(
            f"The contract changed: {said}. Where that is meant, write it down with "
            f"manage.py mcp contract, commit {path}, and let it be reviewed.",
            returncode=STATUSES[worst],
        )


def _told(
    changes: Sequence[Change], worst: Level, contract: dict[str, Any], *, is_allowed: bool
) -> dict[str, Any]:
    return {
        "ok": is_allowed,
        "level": worst.word if changes else None,
        "digest": contract["digest"],
        "changes": [
            {
                "level": one.level.word,
                **dict(zip(("server", "kind", "component"), one.where, strict=False)),
                "what": one.what,
            }
            for one in changes
        ],
    }


def _text(changes: Sequence[Change], path: Path) -> str:
    if not changes:
        return f"Everything is as in {path}."
    lines: list[str] = []
    for level, heading in HEADINGS.items():
        of_level = [one for one in changes if one.level is level]
        if of_level:
            lines += ["", f"{heading} ({len(of_level)})"]
        before: tuple[str, ...] = ()
        for one in of_level:
            if one.where != before:
                lines.append(f"  {' '.join(one.where)}")
                before = one.where
            lines.append(f"    {one.what}")
    return "\n".join(lines[1:])
