"""``mcp inspect``: show everything about one component, including its entry in clients' lists."""

from __future__ import annotations

import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from django.core.management.base import BaseCommand

from mcp_django.components.component import Component
from mcp_django.components.tool import Tool
from mcp_django.execution.handlers.entries import ESTIMATE, component_type, estimate_tokens
from mcp_django.execution.policy import Verdict
from mcp_django.hosts.configuration import server_urls
from mcp_django.integrations.models.form_tools import FormTools
from mcp_django.integrations.skills import SkillFolder
from mcp_django.management.lookups import (
    DISABLED,
    add_component_options,
    audience_text,
    check_access,
    component_summary,
    denial_names,
    find_component,
    find_principal,
    find_revision,
    flags,
    is_in_catalog,
    permission_names,
    server_permissions,
)
from mcp_django.management.text_output import (
    format_table,
    indented_json,
    output_width,
    print_result,
)
from mcp_django.management.values import Schema, describe_arguments
from mcp_django.protocol.revisions import LATEST, Revision
from mcp_django.schema.lint import lint
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
    revision, verdict = find_revision(options["protocol_version"]), None
    if username := options["user"]:
        verdict = check_access(server, component, find_principal(username), use="list")
    report = ComponentReport(
        server=server,
        component=component,
        revision=revision,
        username=username or "",
        verdict=verdict,
    )
    text = _report_text(report, output_width(command.stdout))
    print_result(command, options, report.as_json(), text)


def _report_text(report: ComponentReport, width: int) -> str:
    rows = [(label, text) for label, text in report.lines() if text]
    heading = f"{component_type(report.component).name} {report.component.key}"
    argument_rows = []
    for argument in report.arguments:
        default = ""
        if argument["required"]:
            default = "required"
        elif "default" in argument:
            default = f"= {json.dumps(argument['default'], ensure_ascii=False)}"
        argument_rows.append((argument["name"], argument["type"], default, argument["description"]))
    arguments = ""
    if argument_rows:
        arguments = format_table(argument_rows, width=width - INDENT, squeeze=(3,))
    portability = ""
    if "inputSchema" in report.wire:
        # Hosts receive the schemas of tools only.
        portability = "\n".join(report.portability) or "No problems with known hosts."
    sections = [
        f"{heading}\n{format_table(rows, width=width, indent=INDENT)}",
        _section("description", _wrapped(str(report.component.description), width)),
        _section("arguments", arguments),
        _section("input schema", _schema_if_not_listed(report, "inputSchema", report.input_schema)),
        _section(
            "output schema", _schema_if_not_listed(report, "outputSchema", report.output_schema)
        ),
        _section(f"on the wire at {report.revision.version}", indented_json(report.wire)),
        _section("portability", portability),
        _section("changed for clients", "\n".join(report.changes)),
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


def _schema_if_not_listed(report: ComponentReport, member: str, schema: Schema | None) -> str:
    """Return a schema as text; empty if the list entry already shows it."""
    return "" if schema is None or report.wire.get(member) == schema else indented_json(schema)


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
    # The function of a REST framework view: the code is that of the view.
    view_class = getattr(getattr(function, "endpoint", None), "view_class", None)
    if view_class is not None:
        return _source_of_class(view_class)
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


@dataclass(frozen=True, kw_only=True)
class ComponentReport:
    """The report about one component of one server, for one revision.

    With a ``verdict``, the report says whether the user may see the component.
    """

    server: MCPServer
    component: Component
    revision: Revision
    username: str
    verdict: Verdict | None

    @cached_property
    def wire(self) -> Schema:
        """The component's entry in the list that a client of the revision receives."""
        return component_type(self.component).wire(self.component, self.revision)

    @cached_property
    def source(self) -> Source:
        """Where the component's code is."""
        return source_of(self.component.callable)

    @property
    def input_schema(self) -> Schema | None:
        """The schema of the arguments."""
        arguments = getattr(self.component, "arguments", None)
        return dict(arguments.json_schema) if arguments is not None else None

    @property
    def output_schema(self) -> Schema | None:
        """The schema of a tool's structured results."""
        output = self.component.output if isinstance(self.component, Tool) else None
        return output.json_schema if output is not None else None

    @property
    def arguments(self) -> list[dict[str, Any]]:
        """The arguments, described without JSON Schema terms."""
        return describe_arguments(self.input_schema or {})

    @property
    def completes(self) -> list[str]:
        """The names of the arguments with completion."""
        own = (self.component.kind, self.component.key)
        return [name for *of, name in self.server.declared_catalog.completions if (*of,) == own]

    @property
    def portability(self) -> list[str]:
        """What hosts reject or misread in a tool's schemas, in the form of its list entry."""
        problems = []
        if "inputSchema" in self.wire:
            problems = [f"input: {text}" for text in lint(dict(self.wire["inputSchema"]))]
        output = lint(dict(self.wire["outputSchema"])) if "outputSchema" in self.wire else []
        # Rules for the root are for arguments; outputs are objects where a revision requires it.
        return [*problems, *(f"output: {text}" for text in output if not text.startswith("root: "))]

    @property
    def changes(self) -> list[str]:
        """What was changed in a tool's schemas so that all known clients accept them."""
        return self.component.client_changes if isinstance(self.component, Tool) else []

    def lines(self) -> list[tuple[str, str]]:
        """Return (label, text) pairs; pairs with an empty text are not printed."""
        component = self.component
        annotations = ", ".join(
            f"{name}={json.dumps(value, ensure_ascii=False)}"
            for name, value in self.wire.get("annotations", {}).items()
        )
        of_server = " and ".join(permission_names(server_permissions(self.server))) or "none"
        own = " and ".join(permission_names(component.permission)) or "none of its own"
        visibility = ""
        if self.verdict is not None and self.verdict.allowed:
            visibility = f"{self.username} may see it."
        elif self.verdict is not None:
            denials = ", ".join(denial_names(self.verdict))
            visibility = f"{self.username} may not see it: {denials}."
        return [
            ("server", " ".join([self.server.name, *server_urls(self.server)])),
            ("name", component.name if component.name != component.key else ""),
            ("aliases", ", ".join(component.aliases)),
            ("title", str(component.title)),
            ("code", str(self.source)),
            ("file", self.source.file or ""),
            ("status", "" if self._is_offered else DISABLED),
            (
                "left out",
                f"of lists, because of {problem}" if (problem := component.problem) else "",
            ),
            ("flags", ", ".join(flags(component))),
            ("annotations", annotations),
            ("MIME type", getattr(component, "mime_type", None) or ""),
            ("time limit", f"{component.timeout:g} s" if component.timeout else ""),
            ("completes", ", ".join(self.completes)),
            ("permission", f"{own}; of the server: {of_server}"),
            ("audience", audience_text(self.server, component) if self._is_offered else ""),
            ("", visibility),
            ("size", f"about {estimate_tokens(self.wire):,} tokens ({ESTIMATE})"),
        ]

    @property
    def _is_offered(self) -> bool:
        return self.server.catalog.is_enabled and is_in_catalog(self.server, self.component)

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        component = self.component
        seen = {}
        if self.verdict is not None:
            denials = denial_names(self.verdict)
            visibility = {"user": self.username, "is_visible": not denials, "refused_by": denials}
            seen = {"seen_by": visibility}
        return {
            "server": self.server.name,
            "urls": server_urls(self.server),
            **component_summary(component),
            "enabled": self._is_offered,
            "description": str(component.description),
            "code": asdict(self.source),
            "timeout": component.timeout,
            "arguments": self.arguments,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "completes": self.completes,
            "server_permission": permission_names(server_permissions(self.server)),
            "audience": audience_text(self.server, component),
            **seen,
            "protocol_version": self.revision.version,
            "wire": self.wire,
            "portability": self.portability,
            "changed_for_clients": self.changes,
        }
