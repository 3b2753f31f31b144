"""``mcp inspect``: show everything about one component, including its entry in clients' lists."""

from __future__ import annotations

import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.auth.principal import Principal
from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.execution.policy import Verdict
from mcp_django.integrations.models.form_tools import FormTools
from mcp_django.integrations.skills import SkillFolder
from mcp_django.management.lookups import (
    DISABLED,
    ESTIMATE,
    add_component_options,
    audience_text,
    check_access,
    component_summary,
    component_type,
    denial_names,
    estimate_tokens,
    find_component,
    find_principal,
    find_revision,
    flags,
    is_in_catalog,
    permission_names,
    server_permissions,
    server_urls,
)
from mcp_django.management.text_output import format_table, output_width
from mcp_django.management.values import Parameter, Schema, parameters_of
from mcp_django.protocol.revisions import LATEST, Revision
from mcp_django.schema.portable import lint
from mcp_django.server import MCPServer

INDENT = 2


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser("inspect", help="Show everything about one component.")
    parser.add_argument("name", help="The name of a component, or the URI of a resource.")
    add_component_options(parser)
    parser.add_argument("--user", help="Also show whether this user may see the component.")
    parser.add_argument(
        "--protocol-version",
        default=LATEST.version,
        metavar="VERSION",
        help="The protocol revision of the list entry (default: the newest).",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the report about the component."""
    server, component = find_component(
        options["name"], server=options["server"], kind=options["kind"]
    )
    found = _build_report(
        server,
        component,
        find_revision(options["protocol_version"]),
        principal=find_principal(options["user"]) if options["user"] else None,
        username=options["user"] or "",
    )
    if options["json"]:
        command.stdout.write(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        command.stdout.write(_report_text(found, output_width(command.stdout)))


def _report_text(found: ComponentReport, width: int) -> str:
    rows = [(label, text) for label, text in found.lines() if text]
    sections = [
        f"{found.heading}\n{format_table(rows, width=width, indent=INDENT)}",
        _section("description", _wrapped(found.description, width)),
        _section("arguments", _arguments_table(found, width)),
        _section("input schema", _schema_if_not_listed(found, "inputSchema", found.input_schema)),
        _section(
            "output schema", _schema_if_not_listed(found, "outputSchema", found.output_schema)
        ),
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


def _arguments_table(found: ComponentReport, width: int) -> str:
    rows = [
        (
            one.name,
            one.type,
            "required" if one.required else one.default_text,
            one.description,
        )
        for one in found.arguments
    ]
    return format_table(rows, width=width - INDENT, squeeze=(3,)) if rows else ""


def _portability(found: ComponentReport) -> str:
    if "inputSchema" not in found.wire:
        # Hosts receive the schemas of tools only.
        return ""
    return "\n".join(found.portability) or "No problems with known hosts."


def _schema_if_not_listed(found: ComponentReport, member: str, schema: Schema | None) -> str:
    """Return a schema as text; empty if the list entry already shows it."""
    return "" if schema is None or found.wire.get(member) == schema else _pretty(schema)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


# Where a component's code is ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A location in the code; ``line`` is ``None`` if it is not in a Python source file."""

    module: str
    name: str
    file: str | None
    line: int | None

    def __str__(self) -> str:
        place = self.module if self.line is None else f"{self.module}:{self.line}"
        return f"{place} {self.name}()"


def source_of(function: Callable[..., Any]) -> Source:
    """Return where a registered function is defined, below any decorators and partials.

    For a function that was generated for a class, return where the class is defined.
    """
    declaration = getattr(function, "declared_by", None)
    if isinstance(declaration, SkillFolder):
        file = str(declaration.path)
        return Source(module=declaration.module, name="register_skills", file=file, line=None)
    if isinstance(declaration, FormTools) and declaration.form is not None:
        return _source_of_class(declaration.form)
    if declaration is not None:
        return _source_of_class(type(getattr(declaration, "model_admin", declaration)))
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not inspect.isroutine(function):
        # A callable instance is defined by its class.
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return Source(
        module=function.__module__,
        name=name,
        file=code.co_filename if code else None,
        line=code.co_firstlineno if code else None,
    )


def _source_of_class(cls: type) -> Source:
    try:
        file, line = inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        # The class was created at run time, or in a shell.
        file, line = None, None
    return Source(module=cls.__module__, name=cls.__qualname__, file=file, line=line)


# What the command prints --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentReport:
    """The report about one component of one server, for one revision."""

    server: MCPServer
    component: Component
    revision: Revision
    source: Source
    arguments: tuple[Parameter, ...]
    input_schema: Schema | None
    output_schema: Schema | None
    completes: tuple[str, ...]
    wire: Schema
    portability: tuple[str, ...]
    username: str
    verdict: Verdict | None

    @property
    def heading(self) -> str:
        """The component's kind and key."""
        return f"{component_type(self.component).name} {self.component.key}"

    @property
    def description(self) -> str:
        """The component's description for models."""
        return str(self.component.description)

    def lines(self) -> list[tuple[str, str]]:
        """Return (label, text) pairs; pairs with an empty text are not printed."""
        component = self.component
        return [
            ("server", " ".join([self.server.name, *server_urls(self.server)])),
            ("name", component.name if component.name != component.key else ""),
            ("aliases", ", ".join(component.aliases)),
            ("title", str(component.title)),
            ("code", str(self.source)),
            ("file", self.source.file or ""),
            ("", "" if self._is_offered else f"{DISABLED.capitalize()}."),
            ("flags", ", ".join(flags(component))),
            ("annotations", _members(self.wire.get("annotations", {}))),
            ("MIME type", getattr(component, "mime_type", None) or ""),
            ("time limit", f"{component.timeout:g} s" if component.timeout else ""),
            ("completes", ", ".join(self.completes)),
            ("permission", self._permission()),
            ("audience", audience_text(self.server, component)),
            ("", self._verdict()),
            ("size", f"about {estimate_tokens(self.wire):,} tokens ({ESTIMATE})"),
        ]

    @property
    def _is_offered(self) -> bool:
        return self.server.catalog.is_enabled and is_in_catalog(self.server, self.component)

    def _permission(self) -> str:
        server = " and ".join(permission_names(server_permissions(self.server))) or "none"
        own = " and ".join(permission_names(self.component.permission)) or "none of its own"
        return f"{own}; of the server: {server}"

    def _verdict(self) -> str:
        if self.verdict is None:
            return ""
        if self.verdict.allowed:
            return f"{self.username} may see it."
        return f"{self.username} may not see it: {', '.join(denial_names(self.verdict))}."

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        component = self.component
        seen = {}
        if self.verdict is not None:
            denials = denial_names(self.verdict)
            found = {"user": self.username, "is_visible": not denials, "refused_by": denials}
            seen = {"seen_by": found}
        return {
            "server": self.server.name,
            "urls": server_urls(self.server),
            **component_summary(component),
            "enabled": self._is_offered,
            "description": self.description,
            "code": asdict(self.source),
            "timeout": component.timeout,
            "arguments": [one.as_json() for one in self.arguments],
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "completes": list(self.completes),
            "server_permission": permission_names(server_permissions(self.server)),
            "audience": audience_text(self.server, component),
            **seen,
            "protocol_version": self.revision.version,
            "wire": self.wire,
            "portability": list(self.portability),
        }


def _build_report(
    server: MCPServer,
    component: Component,
    revision: Revision,
    *,
    principal: Principal | None = None,
    username: str = "",
) -> ComponentReport:
    """Return the report about a component.

    If ``principal`` is given, the report says whether this caller may see the component.
    """
    wire = component_type(component).wire(component, revision)
    schema = getattr(component, "arguments", None)
    given = dict(schema.json_schema) if schema is not None else None
    return ComponentReport(
        server=server,
        component=component,
        revision=revision,
        source=source_of(component.callable),
        arguments=tuple(parameters_of(given or {})),
        input_schema=given,
        output_schema=_output_schema(component),
        completes=_completed(server, component),
        wire=wire,
        portability=tuple(_portability_problems(wire)),
        username=username,
        verdict=check_access(server, component, principal, use="list")
        if principal is not None
        else None,
    )


def _portability_problems(wire: Schema) -> list[str]:
    """Return the portability problems of a tool's schemas in its list entry."""
    found = [f"input: {text}" for text in lint(dict(wire.get("inputSchema", {})))]
    if "inputSchema" not in wire:
        found = []
    output = lint(dict(wire["outputSchema"])) if "outputSchema" in wire else []
    # Rules for the root apply to arguments only; outputs are objects where a revision requires it.
    return [*found, *(f"output: {text}" for text in output if not text.startswith("root: "))]


def _output_schema(component: Component) -> Schema | None:
    output = component.output if isinstance(component, Tool) else None
    return output.json_schema if output is not None else None


def _completed(server: MCPServer, component: Component) -> tuple[str, ...]:
    return tuple(
        argument
        for kind, key, argument in server.declared_catalog.completions
        if (kind, key) == (component.kind, component.key)
    )


def _members(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    )
