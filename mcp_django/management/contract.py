"""``mcp contract``: write the interface of the servers to a file to commit, and check for changes.

Exit statuses of ``--check``: 0 if all changes are allowed, 2 if a change needs approval, 3 if a
change is breaking. As for all commands, 1 is an error, such as a file that cannot be compared.

The contract contains what code declares. Changes made in the admin are not part of a release, so
they are not included. URLs are not included either, so that the file is the same in every
environment.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import override

from mcp_django.components.component import Component, Prompt
from mcp_django.components.resource import ResourceTemplate
from mcp_django.components.tool import Tool
from mcp_django.execution.handlers.entries import KINDS
from mcp_django.management.contract_schemas import Change, Level, LeveledChange, schema_changes
from mcp_django.management.lookups import PLURALS, declared_servers, permission_names
from mcp_django.management.text_output import escape_control_characters, print_result
from mcp_django.protocol.content import Icon
from mcp_django.protocol.jsonrpc import encode
from mcp_django.server import MCPServer

DEFAULT_PATH = "mcp-contract.json"
LEVELS = {level.label: level for level in Level}
STATUSES = {Level.APPROVAL: 2, Level.BREAKING: 3}
HEADINGS = {
    Level.BREAKING: "breaking, or not proven safe",
    Level.APPROVAL: "needs approval",
    Level.SAFE: "safe",
}


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser(
        "contract", help="Write the interface of the servers to a file, or compare with the file."
    )
    parser.add_argument("--server", metavar="NAME", help="Only this server.")
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=DEFAULT_PATH,
        help=f"The file (default: {DEFAULT_PATH}); - for the standard output.",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="Write nothing; report the changes since the file was written.",
    )
    parser.add_argument(
        "--allow",
        choices=list(LEVELS),
        default=Level.SAFE.label,
        help="With --check: the highest level of change that is not a failure (default: safe).",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Write the contract file, or compare with it."""
    declared = declared_servers(options["server"])
    # Texts are in the site's language, not in that of the environment.
    with override(settings.LANGUAGE_CODE):
        described = {server.name: _describe_server(server) for server in declared}
    contract = _with_digest({"contract": FORMAT, SERVERS: described})
    if options["check"]:
        _compare_with_file(command, contract, options)
        return
    if options["output"] == "-":
        command.stdout.write(_serialize_contract(contract), ending="")
        return
    path = Path(options["output"])
    if options["server"] and path.exists():
        # Keeps the other servers in the file unchanged.
        contract = _with_digest(
            {**contract, SERVERS: _read_contract(path)[SERVERS] | contract[SERVERS]}
        )
    try:
        path.write_text(_serialize_contract(contract), encoding="utf-8", newline="\n")
    except OSError as exc:
        raise CommandError(f"{path} cannot be written: {exc.strerror}.") from None
    servers = contract[SERVERS]
    count = sum(len(server[plural]) for server in servers.values() for plural in PLURALS)
    report = {"file": str(path), "digest": contract["digest"], "components": count}
    text = f"{path}: {count} components of the servers: {', '.join(servers) or 'none'}."
    print_result(command, options, report, text)


def _compare_with_file(
    command: BaseCommand, contract: dict[str, Any], options: Mapping[str, Any]
) -> None:
    if options["output"] == "-":
        raise CommandError("--check compares with a file; name the file with --output FILE.")
    path = Path(options["output"])
    written = _read_contract(path)
    if options["server"]:
        servers = {
            name: server for name, server in written[SERVERS].items() if name == options["server"]
        }
        written = {**written, SERVERS: servers}
    changes = _changes_between(written, contract)
    worst = max((change.level for change in changes), default=Level.SAFE)
    is_allowed = worst <= LEVELS[options["allow"]]
    report = {
        "ok": is_allowed,
        "level": worst.label if changes else None,
        "digest": contract["digest"],
        "changes": [
            {
                "level": change.level.label,
                **dict(zip(("server", "kind", "component"), change.where, strict=False)),
                "what": change.what,
            }
            for change in changes
        ],
    }
    text = escape_control_characters(_report_text(changes, path))
    if changes and is_allowed:
        text += f"\n\nAllowed. To write them to {path}, run manage.py mcp contract."
    print_result(command, options, report, text)
    if not is_allowed:
        counted = Counter(
            change.level for change in changes if change.level > LEVELS[options["allow"]]
        )
        summary = ", ".join(
            _count_text(level, counted[level]) for level in HEADINGS if counted[level]
        )
        raise CommandError(
            f"The contract changed: {summary}. If the change is intended, run "
            f"manage.py mcp contract, commit {path}, and have it reviewed.",
            returncode=STATUSES[worst],
        )


def _count_text(level: Level, count: int) -> str:
    """Return a number of changes with their level, such as ``3 changes need approval``."""
    changes = "1 change" if count == 1 else f"{count} changes"
    if level is Level.APPROVAL:
        return f"{changes} {'needs' if count == 1 else 'need'} approval"
    return f"{changes} {'is' if count == 1 else 'are'} {HEADINGS[level]}"


def _report_text(changes: Sequence[Change], path: Path) -> str:
    if not changes:
        return f"No changes since {path} was written."
    lines: list[str] = []
    for level, heading in HEADINGS.items():
        of_level = [change for change in changes if change.level is level]
        if of_level:
            lines += ["", f"{heading} ({len(of_level)})"]
        before: tuple[str, ...] = ()
        for change in of_level:
            if change.where != before:
                lines.append(f"  {' '.join(change.where)}")
                before = change.where
            lines.append(f"    {change.what}")
    return "\n".join(lines[1:])


DIGEST = "digest"


def _serialize_contract(value: Any) -> str:
    """Return the contract as sorted JSON with one member per line, for readable diffs."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _with_digest(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object with its digest added as a member.

    It is the SHA-256 digest of the compact JSON of the other members, sorted, in UTF-8.
    """
    members = {name: member for name, member in value.items() if name != DIGEST}
    compact = json.dumps(members, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hashlib.sha256(compact.encode(errors="surrogatepass")).hexdigest()
    return {DIGEST: f"sha256:{digest}", **members}


def _has_valid_digest(value: Any) -> bool:
    """Return whether an object matches its digest."""
    return isinstance(value, dict) and _with_digest(value)[DIGEST] == value.get(DIGEST)


ContractEntry = Mapping[str, Any]
TEXT_MEMBERS = ("title", "description", "instructions", "website_url", "icons")


def _changes_between(old: ContractEntry, new: ContractEntry) -> list[Change]:
    """Return the changes, the most severe first."""
    changes: list[Change] = []
    for name in sorted({*old[SERVERS], *new[SERVERS]}):
        before, after = old[SERVERS].get(name), new[SERVERS].get(name)
        if before is None or after is None:
            level, what = Level.BREAKING, "the server was removed"
            if before is None:
                level, what = Level.SAFE, "the server was added"
            changes.append(Change(level=level, where=(name,), what=what))
            continue
        of_server = [
            (Level.APPROVAL, f"{word} changed")
            for word in TEXT_MEMBERS
            if before.get(word) != after.get(word)
        ]
        of_server += _access_changes(before, after)
        changes += [Change(level=level, where=(name,), what=what) for level, what in of_server]
        changes += [
            Change(level=level, where=(name, plural, key), what=what)
            for plural in PLURALS
            for key, level, what in _components_changes(
                plural, before.get(plural, {}), after.get(plural, {})
            )
        ]
    return sorted(changes, key=lambda change: (-change.level, change.where, change.what))


def _components_changes(
    plural: str, old: Mapping[str, ContractEntry], new: Mapping[str, ContractEntry]
) -> Iterator[tuple[str, Level, str]]:
    """Yield the changes of the components of one kind, each with the component's name.

    A component whose old name is now an alias of another one was renamed.
    """
    current_keys = {
        alias: key for key, component in new.items() for alias in component.get("aliases", ())
    }
    current_keys |= {key: key for key in new}
    for key, before in old.items():
        current_key = current_keys.get(key)
        if current_key is None:
            what = (
                "was removed; if another replaces it, add the old name to its aliases=[...] "
                "(generated tools have no aliases: keep name and plural)"
            )
            yield key, Level.BREAKING, what
            continue
        if current_key != key:
            what = f"was renamed to {current_key}, with the old name as an alias"
            yield key, Level.APPROVAL, what
        for level, what in _component_changes(plural, before, new[current_key]):
            yield current_key, level, what
        for alias in before.get("aliases", ()):
            if current_keys.get(alias) != current_key:
                yield current_key, Level.BREAKING, f"the alias {alias} was removed"
    for key in new.keys() - {current_keys.get(key) for key in old}:
        yield key, Level.SAFE, "was added"


IDENTIFYING_MEMBERS = frozenset({"name", "uri", "uriTemplate"})
"""The members that identify a component; a change of one is reported as a rename."""
COMPARED_SEPARATELY = frozenset(
    {"inputSchema", "outputSchema", "arguments", "execution", "mimeType", "size"}
)
NO_TASK = "forbidden"


def _component_changes(
    plural: str, old: ContractEntry, new: ContractEntry
) -> Iterator[LeveledChange]:
    """Yield the changes of a component that exists before and after."""
    if old.get("digest") == new.get("digest"):
        return
    before, after = old["definition"], new["definition"]
    yield from _access_changes(old, new)
    keys = [before[name] for name in IDENTIFYING_MEMBERS if name in before]
    for alias in new.get("aliases", ()):
        if alias not in old.get("aliases", ()) and alias not in keys:
            yield Level.SAFE, f"the alias {alias} was added"
    yield from _input_and_output_changes(plural, old, new)
    # Task support: whether a call may, must or must not become a task.
    executions = [definition.get("execution") or {} for definition in (before, after)]
    was, now = (execution.get("taskSupport", NO_TASK) for execution in executions)
    if was != now:
        # Safe if calls are still possible both as a task and without one.
        level = Level.SAFE if now == "optional" else Level.BREAKING
        yield level, f"task support was {was}, is {now}"
    rest = [{k: v for k, v in execution.items() if k != "taskSupport"} for execution in executions]
    if len({str(sorted(members.items())) for members in rest}) > 1:
        yield Level.APPROVAL, "execution changed"
    for name in sorted({*before, *after} - COMPARED_SEPARATELY - IDENTIFYING_MEMBERS):
        if before.get(name) != after.get(name):
            yield (
                Level.APPROVAL,
                f"{name} changed{_changed_members(before.get(name), after.get(name))}",
            )
    if plural in ("resources", "templates") and before.get("name") != after.get("name"):
        # Tools and prompts are identified by their name, resources by their URI.
        yield Level.APPROVAL, "name changed"
    if before.get("mimeType") != after.get("mimeType"):
        was, now = before.get("mimeType", "not given"), after.get("mimeType", "not given")
        yield Level.BREAKING, f"the MIME type was {was}, is {now}"
    if before.get("size") != after.get("size"):
        yield Level.SAFE, "size changed"


def _input_and_output_changes(
    plural: str, old: ContractEntry, new: ContractEntry
) -> Iterator[LeveledChange]:
    before, after = old["definition"], new["definition"]
    if plural == "tools":
        yield from schema_changes(before.get("inputSchema"), after.get("inputSchema"), "input")
    elif "arguments" in old or "arguments" in new:
        empty = {"type": "object", "properties": {}}
        yield from schema_changes(old.get("arguments", empty), new.get("arguments", empty), "input")
    was, now = before.get("outputSchema"), after.get("outputSchema")
    if now is None and was is not None:
        yield Level.BREAKING, "output: the schema was removed"
    elif was is None and now is not None:
        # There was no schema that a result could violate, but hosts show the new texts to the
        # model.
        yield Level.APPROVAL, "output: a schema was added"
    elif was is not None:
        yield from schema_changes(was, now, "output")


def _changed_members(old: Any, new: Any) -> str:
    """Return the names of the members that differ, as a suffix; empty for other than objects."""
    if not isinstance(old or {}, dict) or not isinstance(new or {}, dict):
        return ""
    before, after = old or {}, new or {}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return f": {', '.join(names)}" if names else ""


FORMAT = 1
SERVERS = "servers"


def _describe_server(server: MCPServer) -> dict[str, Any]:
    """Return one server with its components, each with its digest."""
    members = {
        "title": server.title_in_code,
        "description": str(server.description),
        "instructions": server.instructions_in_code,
        "website_url": server.website_url,
        "icons": _icons(server.icons),
        "permission": permission_names(server.permission),
        "scopes": sorted(server.scopes),
    }
    return _with_digest(
        {
            **{name: value for name, value in members.items() if value},
            **{
                kind.plural: {
                    key: _describe_component(kind.describe(component), component)
                    # Such as server.tools: the components in code.
                    for key, component in sorted(getattr(server, kind.plural).items())
                }
                for kind in KINDS
            },
        }
    )


def _describe_component(wire: dict[str, Any], component: Component) -> dict[str, Any]:
    """Return one component: its ``definition`` as clients receive it, and its access rules."""
    definition = {name: value for name, value in wire.items() if name != "icons"}
    if component.icons:
        definition["icons"] = _icons(component.icons)
    members: dict[str, Any] = {
        "aliases": sorted(component.aliases),
        "permission": permission_names(component.permission),
        "scopes": sorted(component.scopes),
        "needs": sorted(component.needs),
        "approval": component.approval if isinstance(component, Tool) else "",
    }
    if isinstance(component, Prompt | ResourceTemplate):
        # Clients receive only names and descriptions, but values are validated by this schema.
        members["arguments"] = component.arguments.json_schema
    members = {name: value for name, value in members.items() if value}
    # Converts to JSON as on the wire: lazy texts, tuples and the like.
    return _with_digest(json.loads(encode({"definition": definition, **members})))


def _icons(icons: Iterable[Icon]) -> list[dict[str, Any]]:
    """Return the icons as declared; which of them clients receive depends on the site's URL."""
    return [icon.to_wire() for icon in icons]


def _access_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[LeveledChange]:
    """Yield the changes of permissions, scopes, required client capabilities and approvals.

    A stricter rule is breaking for some callers; a looser one needs approval.
    """
    yield from _listed_changes("permission", "the permission", old, new, gone=Level.APPROVAL)
    yield from _listed_changes("scopes", "the scope", old, new, gone=Level.APPROVAL)
    yield from _listed_changes("needs", "the client capability", old, new, gone=Level.SAFE)
    before, after = old.get("approval", ""), new.get("approval", "")
    if before != after:
        requirement = f"approval by {after}" if after else "no approval"
        yield Level.APPROVAL, f"a call now needs {requirement}"


def _listed_changes(
    name: str, what: str, old: Mapping[str, Any], new: Mapping[str, Any], *, gone: Level
) -> Iterator[LeveledChange]:
    before, after = old.get(name, ()), new.get(name, ())
    for requirement in after:
        if requirement not in before:
            yield Level.BREAKING, f"now needs {what} {requirement}"
    for requirement in before:
        if requirement not in after:
            yield gone, f"no longer needs {what} {requirement}"


MAX_BYTES = 64 * 1024 * 1024
WRITE_COMMAND = "manage.py mcp contract"
WRITE_AGAIN = f"write it again with: {WRITE_COMMAND}"


def _read_contract(path: Path) -> dict[str, Any]:
    """Read the contract from a file.

    Raises:
        CommandError: the file does not exist, or is not as ``mcp contract`` wrote it.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CommandError(f"{path} is larger than the limit of {MAX_BYTES} bytes.")
        contract = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CommandError(f"{path} does not exist; write it with: {WRITE_COMMAND}") from None
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}.") from None
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{path} is not valid JSON ({exc}); {WRITE_AGAIN}.") from None
    version = contract.get("contract") if isinstance(contract, dict) else None
    if not isinstance(contract, dict) or not isinstance(contract.get(SERVERS), dict):
        raise CommandError(f"{path} is not an mcp_django contract; {WRITE_AGAIN}.")
    if version != FORMAT:
        raise CommandError(
            f"{path} has format {version!r}, but only {FORMAT} is supported; {WRITE_AGAIN}."
        )
    _check_digests(path, contract)
    return contract


def _check_digests(path: Path, contract: dict[str, Any]) -> None:
    """Check all digests, so that a file edited or merged by hand is rejected.

    Raises:
        CommandError: a digest does not match.
    """
    for name, server in contract[SERVERS].items():
        for plural in PLURALS:
            table = server.get(plural) if isinstance(server, dict) else None
            for key, component in (table if isinstance(table, dict) else {}).items():
                if not _has_valid_digest(component) or not isinstance(
                    component.get("definition"), dict
                ):
                    raise _digest_error(path, f"{plural} {key!r} of the server {name!r}")
        if not _has_valid_digest(server):
            raise _digest_error(path, f"the server {name!r}")
    if not _has_valid_digest(contract):
        raise _digest_error(path, "the whole file")


def _digest_error(path: Path, what: str) -> CommandError:
    return CommandError(
        f"{path}: the digest of {what} does not match its content, so the file was edited or "
        f"merged by hand; {WRITE_AGAIN}, and review the diff."
    )
