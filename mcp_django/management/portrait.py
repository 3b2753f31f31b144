"""One component as ``mcp inspect`` shows it: put together here, laid out there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mcp_django.auth.principal import Principal
from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.management.addresses import urls
from mcp_django.management.facts import ESTIMATE, estimated_tokens, facts, flags
from mcp_django.management.guards import Verdict, audience, guard_names, verdict
from mcp_django.management.kinds import kind_of
from mcp_django.management.offering import SWITCHED_OFF, guards_of_server, is_offered
from mcp_django.management.parameters import Parameter, Schema, parameters_of
from mcp_django.management.source import Source, source_of
from mcp_django.protocol.revisions import Revision
from mcp_django.schema.portable import lint
from mcp_django.server import MCPServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """Everything about one component of one server, for one revision."""

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
        """What it is."""
        return f"{kind_of(self.component).name} {self.component.key}"

    @property
    def description(self) -> str:
        """What a model is told of it."""
        return str(self.component.description)

    def lines(self) -> list[tuple[str, str]]:
        """The short facts with their labels; an empty one has nothing to say."""
        component = self.component
        return [
            ("server", " ".join([self.server.name, *urls(self.server)])),
            ("name", component.name if component.name != component.key else ""),
            ("answers to", ", ".join(component.aliases)),
            ("title", str(component.title)),
            ("code", str(self.source)),
            ("file", self.source.file or ""),
            ("", "" if self._is_offered else f"{SWITCHED_OFF.capitalize()}."),
            ("flags", ", ".join(flags(component))),
            ("annotations", _members(self.wire.get("annotations", {}))),
            ("MIME type", getattr(component, "mime_type", None) or ""),
            ("time limit", f"{component.timeout:g} s" if component.timeout else ""),
            ("completes", ", ".join(self.completes)),
            ("permission", self._permission()),
            ("audience", audience(self.server, component)),
            ("", self._verdict()),
            ("size", f"about {estimated_tokens(self.wire):,} tokens ({ESTIMATE})"),
        ]

    @property
    def _is_offered(self) -> bool:
        return self.server.offered.is_enabled and is_offered(self.server, self.component)

    def _permission(self) -> str:
        server = " and ".join(guard_names(guards_of_server(self.server))) or "none"
        own = " and ".join(guard_names(self.component.permission)) or "none of its own"
        return f"{own}; of the server: {server}"

    def _verdict(self) -> str:
        if self.verdict is None:
            return ""
        if self.verdict.is_visible:
            return f"{self.username} may see it."
        return f"{self.username} may not see it: {', '.join(self.verdict.refused_by)}."

    def as_json(self) -> dict[str, Any]:
        """The same as one JSON object."""
        component = self.component
        seen = {}
        if self.verdict is not None:
            seen = {"seen_by": {"user": self.username, **asdict(self.verdict)}}
        return {
            "server": self.server.name,
            "urls": urls(self.server),
            **facts(component),
            "enabled": self._is_offered,
            "description": self.description,
            "code": asdict(self.source),
            "timeout": component.timeout,
            "arguments": [one.as_json() for one in self.arguments],
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "completes": list(self.completes),
            "server_permission": guard_names(guards_of_server(self.server)),
            "audience": audience(self.server, component),
            **seen,
            "protocol_version": self.revision.version,
            "wire": self.wire,
            "portability": list(self.portability),
        }


def portrait(
    server: MCPServer,
    component: Component,
    revision: Revision,
    *,
    principal: Principal | None = None,
    username: str = "",
) -> Portrait:
    """Look at a component; ``principal`` is the caller of whom to say whether he may see it."""
    wire = kind_of(component).wire(component, revision)
    schema = getattr(component, "arguments", None)
    given = dict(schema.json_schema) if schema is not None else None
    return Portrait(
        server=server,
        component=component,
        revision=revision,
        source=source_of(component.callable),
        arguments=tuple(parameters_of(given or {})),
        input_schema=given,
        output_schema=_output(component),
        completes=_completed(server, component),
        wire=wire,
        portability=tuple(findings(wire)),
        username=username,
        verdict=verdict(server, component, principal) if principal is not None else None,
    )


def findings(wire: Schema) -> list[str]:
    """What some host would choke on in the schemas of a tool as it is listed."""
    found = [f"input: {text}" for text in lint(dict(wire.get("inputSchema", {})))]
    if "inputSchema" not in wire:
        found = []
    output = lint(dict(wire["outputSchema"])) if "outputSchema" in wire else []
    # The rules for the root are about arguments; a revision that wants an object gets one.
    return [*found, *(f"output: {text}" for text in output if not text.startswith("root: "))]


def _output(component: Component) -> Schema | None:
    output = component.output if isinstance(component, Tool) else None
    return output.json_schema if output is not None else None


def _completed(server: MCPServer, component: Component) -> tuple[str, ...]:
    return tuple(
        argument
        for kind, key, argument in server.available.completions
        if (kind, key) == (component.kind, component.key)
    )


def _members(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    )
