"""``mcp inspect``: everything about one component, down to what a client gets to see of it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.management.lookups import add_place, find_component, find_principal, find_revision
from mcp_django.management.parameters import Schema
from mcp_django.management.portrait import Portrait, portrait
from mcp_django.management.tables import columns, width_of
from mcp_django.protocol.revisions import LATEST

INDENT = 2


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser("inspect", help="Show everything about one component.")
    parser.add_argument("name", help="The name of a component, or the URI of a resource.")
    add_place(parser)
    parser.add_argument("--user", help="Say whether this user may see it.")
    parser.add_argument(
        "--protocol-version",
        default=LATEST.version,
        metavar="VERSION",
        help="The revision of the client that lists it.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the component."""
    server, component = find_component(
        options["name"], server=options["server"], kind=options["kind"]
    )
    found = portrait(
        server,
        component,
        find_revision(options["protocol_version"]),
        principal=find_principal(options["user"]) if options["user"] else None,
        username=options["user"] or "",
    )
    if options["json"]:
        command.stdout.write(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        command.stdout.write(_text(found, width_of(command.stdout)))


def _text(found: Portrait, width: int) -> str:
    rows = [(label, text) for label, text in found.lines() if text]
    sections = [
        f"{found.heading}\n{columns(rows, width=width, indent=INDENT)}",
        _section("description", _wrapped(found.description, width)),
        _section("arguments", _arguments(found, width)),
        _section("input schema", _unlisted(found, "inputSchema", found.input_schema)),
        _section("output schema", _unlisted(found, "outputSchema", found.output_schema)),
        _section(f"on the wire at {found.revision.version}", _pretty(found.wire)),
        _section("portability", _portability(found)),
    ]
    return "\n\n".join(section for section in sections if section)


def _section(heading: str, body: str) -> str:
    return f"{heading}\n{textwrap.indent(body, ' ' * INDENT)}" if body else ""


def _wrapped(text: str, width: int) -> str:
    lines = [
        textwrap.wrap(line, width - INDENT, break_long_words=False) or [""]
        for line in text.splitlines()
    ]
    return "\n".join(line for wrapped in lines for line in wrapped)


def _arguments(found: Portrait, width: int) -> str:
    rows = [
        (
            one.name,
            one.type,
            "required" if one.required else one.default_text,
            one.description,
        )
        for one in found.arguments
    ]
    return columns(rows, width=width - INDENT, squeeze=(3,)) if rows else ""


def _portability(found: Portrait) -> str:
    if "inputSchema" not in found.wire:
        # Only the schemas of tools reach a host.
        return ""
    return "\n".join(found.portability) or "Nothing that a host is known to choke on."


def _unlisted(found: Portrait, member: str, schema: Schema | None) -> str:
    """A schema, where the entry of the list does not show it already."""
    return "" if schema is None or found.wire.get(member) == schema else _pretty(schema)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
