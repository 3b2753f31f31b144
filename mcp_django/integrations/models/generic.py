"""Generic tools: one set of tools for all models of a server, instead of one set per model.

A server opts in with ``generic=True`` or a number of models, above which ``GenericSet`` uses the
generic tools. ``GenericSet`` decides whenever a model is registered or unregistered, so the result
depends on the registered models and not on their order; the apps' ``mcp`` modules are all imported
before the first client connects. The generic tools do not access rows themselves: each call is
passed to the tool of the model, the same one that would otherwise be in the catalog.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from django.core.exceptions import ImproperlyConfigured

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal, anonymous_principal
from mcp_django.components.component import Component
from mcp_django.components.context import Context
from mcp_django.components.declare import TrustedOutput, build_function
from mcp_django.components.tool import DryRun, Tool
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.execution.policy import authorize, is_visible
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.integrations.models.writing import CLEAR, PREVIEW, PREVIEWED
from mcp_django.protocol.text import nearest
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    ArgumentSource,
    InvalidArguments,
    ValidationProblem,
    invalid_argument,
    to_json_text,
    unknown_argument_problem,
)
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import decode_arguments

if TYPE_CHECKING:
    from mcp_django.components.registry import Registrar
    from mcp_django.integrations.models.declaration import ModelComponents

Generic: TypeAlias = bool | int
Registrations: TypeAlias = Mapping["ModelComponents[Any]", Sequence[Component]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericModel:
    """One model of the set, with its tools by operation (``list``, ``get``, …)."""

    declaration: ModelTools[Any]
    tools: Mapping[str, Tool]

    @property
    def name(self) -> str:
        """The value of the argument ``model``."""
        return self.declaration.singular

    def visible(self, principal: Principal) -> dict[str, Tool]:
        """Return the tools of the model that the caller may see and that can be described."""
        return {
            name: tool
            for name, tool in self.tools.items()
            if is_visible(principal, tool) and not tool.problem_for(principal)
        }


class GenericSet:
    """The models of a server that have tools, and the tools in the catalog for them."""

    def __init__(self, server: Registrar, generic: Generic) -> None:
        self._server = server
        self._members: list[GenericModel] = []
        self._own: list[Tool] = []
        self.set_option(generic)

    def set_option(self, generic: Generic) -> None:
        """Set the option ``generic``; it takes effect with the next ``update``."""
        self._limit = _limit(generic)
        self.generic = generic

    def update(self) -> None:
        """Register the generic tools or the tools of each model, depending on the number of models.

        Raises:
            AlreadyRegistered: the name of a tool, or of a model, is already used.
        """
        members = list(_members(self._server.registry.declarations))
        own = _generic_tools(members) if len(members) > self._limit else []
        self._exchange([*_tools(self._members), *self._own], own or _tools(members))
        self._members, self._own = members, own

    def _exchange(self, registered: Sequence[Tool], replacements: Sequence[Tool]) -> None:
        """Replace the registered tools with others; on an error, restore the old state."""
        registry = self._server.registry
        tools = registry.tools
        registry.generation += 1
        before = dict(tools)
        replacement_ids = {id(tool) for tool in replacements}
        for tool in registered:
            if id(tool) not in replacement_ids and tools.get(tool.key) is tool:
                del tools[tool.key]
        try:
            for tool in replacements:
                if tools.get(tool.key) is not tool:
                    self._server.add(tool)
        except BaseException:
            tools.clear()
            tools.update(before)
            raise


def _limit(generic: Generic) -> float:
    """Return the number of models above which generic tools are used."""
    if isinstance(generic, bool):
        return 0 if generic else math.inf
    number: Any = generic
    if not isinstance(number, int) or number < 0:
        raise ImproperlyConfigured(
            f"generic={generic!r} is not valid; write True, False, or the number of models above "
            "which generic tools replace those of each model."
        )
    return generic


def _members(registrations: Registrations) -> Iterator[GenericModel]:
    for declaration, components in registrations.items():
        if not isinstance(declaration, ModelTools):
            continue
        registered_ids = {id(component) for component in components}
        tools = {
            name: tool
            for name, tool in declaration.operations.items()
            if id(tool) in registered_ids
        }
        if tools:
            yield GenericModel(declaration=declaration, tools=tools)


def _tools(members: Iterable[GenericModel]) -> list[Tool]:
    return [tool for member in members for tool in member.tools.values()]


Raws = dict[str, bytes]

_FIRST = re.compile(r"[^.\[]*")
_NUMBER = re.compile(rb"-?\d")


@dataclass(frozen=True, kw_only=True, eq=False)
class GenericArguments:
    """Parses the arguments of a generic tool, for the models that a principal may see.

    The arguments name a model and contain the arguments of the model's own tool. They are parsed
    twice: first for their structure, then by the model's tool, which knows its filters and fields.
    Errors of the second pass are reported under the names that the caller used.
    """

    operation: GenericOperation
    members: Mapping[str, GenericModel]
    principal: Principal | None = None

    def for_caller(self, principal: Principal) -> GenericArguments:
        """Return the arguments with the models that this caller may see."""
        return replace(self, principal=principal)

    @property
    def json_schema(self) -> Schema:
        """The JSON Schema with the models that the caller may see; all models without a caller."""
        model: Schema = {"type": "string", "enum": self._names()}
        return portable_input(
            {
                "type": "object",
                "properties": {"model": model, **self.operation.properties},
                "required": ["model", *self.operation.required],
                "additionalProperties": False,
            }
        )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the model's own ``tool`` and its ``arguments``, or the ``member`` to describe.

        Raises:
            InvalidArguments: an argument is not valid; the caller can correct it.
            InsufficientScope: the user has the permission, but the credential lacks a scope.
        """
        if self.principal is None:
            return self.for_caller(anonymous_principal()).parse(raw)
        pieces: Raws = {}
        if decode_arguments(raw):
            pieces = {name: piece for name, piece in _raws(raw).items() if piece != b"null"}
        names = ["model", *self.operation.properties]
        problems = [unknown_argument_problem(name, names) for name in pieces if name not in names]
        problems += [
            ValidationProblem(path=name, message="is required")
            for name in ("model", *self.operation.required)
            if name not in pieces
        ]
        if problems:
            raise InvalidArguments(problems[:MAX_KEPT_PROBLEMS])
        member = self._member(json.loads(pieces.pop("model")))
        if self.operation is DESCRIBE:
            return {"member": member}
        tool = member.tools[self.operation.key]
        authorize(self.principal, tool)
        return {
            "tool": tool,
            "arguments": _Translation(
                self.operation, member, tool.arguments_for(self.principal)
            ).parse(pieces),
        }

    def _member(self, name: Any) -> GenericModel:
        """Return the model of this name; a hidden one is treated as if it did not exist."""
        names = self._names()
        if name in names:
            return self.members[name]
        close = nearest(name, names)
        hint = f"; did you mean {to_json_text(close)}?" if close else ""
        choices = ", ".join(names)
        raise invalid_argument("model", f"must be one of {choices}{hint}", value=name)

    def _names(self) -> list[str]:
        principal = self.principal
        if principal is None:
            return sorted(self.members)
        if self.operation is DESCRIBE:
            return sorted(
                name for name, member in self.members.items() if member.visible(principal)
            )
        tools = {name: member.tools[self.operation.key] for name, member in self.members.items()}
        return sorted(
            name
            for name, tool in tools.items()
            if is_visible(principal, tool) and not tool.problem_for(principal)
        )


class _Translation:
    """Translates the arguments of a generic tool to those of the model's own tool."""

    def __init__(
        self, operation: GenericOperation, member: GenericModel, arguments: ArgumentSource
    ) -> None:
        self._operation = operation
        self._member = member
        self._arguments = arguments
        self._taken: Mapping[str, Schema] = arguments.json_schema["properties"]
        self._key = operation.key_of(member)

    def parse(self, pieces: Raws) -> Mapping[str, Any]:
        """Return the arguments of the model's own tool.

        Raises:
            InvalidArguments: the model's tool does not accept the arguments.
        """
        arguments: Raws = {}
        problems: list[ValidationProblem] = []
        for name, piece in pieces.items():
            if name == "key" and self._key:
                # Clients often send digits as a number, also if keys are text.
                is_text = self._taken[self._key].get("type") == "string"
                is_number = is_text and _NUMBER.match(piece)
                arguments[self._key] = b'"%b"' % piece if is_number else piece
            elif name == self._operation.within:
                arguments |= self._inner(piece)
            elif name in self._taken:
                arguments[name] = piece
            else:
                message = f"{self._member.name} does not have this argument; leave it out"
                problems.append(
                    ValidationProblem(path=name, value=json.loads(piece), message=message)
                )
        if problems:
            raise InvalidArguments(problems)
        encoded = [
            b"%b:%b" % (to_json_text(name).encode(), piece) for name, piece in arguments.items()
        ]
        raw = b"{%b}" % b",".join(encoded)
        try:
            return self._arguments.parse(raw)
        except InvalidArguments as exc:
            raise InvalidArguments(
                [self._with_outer_path(problem) for problem in exc.problems]
            ) from exc

    def _inner(self, piece: bytes) -> Raws:
        within = self._operation.within
        if not piece.startswith(b"{"):
            raise invalid_argument(within, "must be an object", value=json.loads(piece))
        pieces = _raws(piece)
        names = [
            name for name in self._taken if name not in self._operation.plain and name != self._key
        ]
        unknown = [name for name in pieces if name not in names]
        if unknown:
            raise InvalidArguments(
                [
                    unknown_argument_problem(name, names, path=within)
                    for name in unknown[:MAX_KEPT_PROBLEMS]
                ]
            )
        return pieces

    def _with_outer_path(self, problem: ValidationProblem) -> ValidationProblem:
        """Return the problem with the path that the caller used."""
        match = _FIRST.match(problem.path)
        first = match.group() if match else ""
        if self._key and first == self._key:
            return replace(problem, path=f"key{problem.path[len(first) :]}")
        if not first or first in self._operation.plain:
            return problem
        return replace(problem, path=f"{self._operation.within}.{problem.path}")


def _raws(raw: bytes) -> Raws:
    """Return the members of an object as raw JSON; decoding and encoding numbers loses digits."""
    try:
        pieces = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as exc:
        raise invalid_argument("", f"the arguments are not valid JSON: {exc}") from exc
    return {name: bytes(piece).strip() for name, piece in pieces.items()}


# Arguments that are the same for every model, and described by the tools themselves.
_COMMON_ARGUMENTS = frozenset({"cursor", PREVIEW})


def _describe_model(ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model for this caller."""
    member: GenericModel = arguments["member"]
    declaration = member.declaration
    return {
        "model": member.name,
        "about": " ".join(part for part in (f"{declaration.nouns}.", declaration.doc) if part),
        "fields": declaration.exposed.object_schema.get("properties", {}),
        "tools": {
            OPERATIONS[name].name: _arguments(
                member, OPERATIONS[name], tool.arguments_for(ctx.principal).json_schema
            )
            for name, tool in member.visible(ctx.principal).items()
        },
    }


def _arguments(member: GenericModel, operation: GenericOperation, schema: Schema) -> dict[str, Any]:
    """Return the arguments of a generic tool for this model, as JSON Schema."""
    required = set(schema.get("required", ()))
    key = operation.key_of(member)
    described: dict[str, Any] = {}
    inner: dict[str, Schema] = {}
    for name, argument in schema["properties"].items():
        if name == key:
            described["key"] = {**argument, "description": f"The {name} of the record."}
        elif name not in operation.plain:
            inner[name] = argument
        elif name not in _COMMON_ARGUMENTS:
            described[name] = argument
    if not operation.within:
        return described
    needed = [name for name in inner if name in required]
    described[operation.within] = {
        "type": "object",
        "properties": inner,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }
    return described


# The generic tools --------------------------------------------------------------------------------

_RECORD: Schema = {"type": "object", "additionalProperties": True}
_INNER: Mapping[str, Schema] = {
    name: {**_RECORD, "description": words}
    for name, words in {
        "filters": 'Filters by name, for example {"status": "open", "total__gte": 10}.',
        "values": "The fields to write, by name.",
    }.items()
}
_KEY: Schema = {"type": "string", "description": "The key of the record."}


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericOperation:
    """One generic tool, and its arguments besides ``model``.

    ``within`` is the argument that contains the arguments of the model's tool that differ between
    models; ``plain`` are the arguments that have the same names for all models. ``key`` is the name
    of the operation in ``ModelTools.tools``.
    """

    key: str
    name: str
    words: str
    output: Schema = field(default_factory=lambda: _RECORD)
    hints: Mapping[str, bool] = field(default_factory=lambda: {"read_only": True})
    plain: Mapping[str, Schema] = field(default_factory=dict)
    within: str = ""
    required: tuple[str, ...] = ()

    @property
    def properties(self) -> dict[str, Schema]:
        """The JSON Schema of each argument."""
        return {
            **({"key": _KEY} if "key" in self.required else {}),
            **({self.within: _INNER[self.within]} if self.within else {}),
            **self.plain,
        }

    def key_of(self, member: GenericModel) -> str:
        """Return the argument of the model's tool that gets ``key``; ``""`` if there is none."""
        return member.declaration.lookup.name if "key" in self.required else ""


_SEARCH: Schema = {"type": "string", "description": "Words to look for."}
_PREVIEW: Schema = {
    "type": "boolean",
    "description": "True: return what would change, and change nothing.",
}
_CLEAR: Schema = {"type": "array", "items": {"type": "string"}, "description": "Fields to empty."}
_PAGE: Schema = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": _RECORD},
        "total": {"type": "integer", "description": "Number of matches; on the first page."},
        "next_cursor": {"type": "string", "description": "Absent on the last page."},
    },
    "required": ["items"],
}
_COUNTED: Schema = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": True,
}
_AGGREGATES = {"sum": "sum", "avg": "average", "min": "smallest value", "max": "largest value"}

DESCRIBE = GenericOperation(
    key="",
    name="describe_model",
    words="Get the fields of a model, and the filters, orders and values that the other tools "
    "accept for it, as JSON Schema.",
)
OPERATIONS: Mapping[str, GenericOperation] = {
    operation.key: operation
    for operation in (
        GenericOperation(
            key="list",
            name="search_records",
            words="Find records of a model: search, filter, order and page. describe_model returns "
            "the fields and filters of a model.",
            output=_PAGE,
            within="filters",
            plain={
                "search": _SEARCH,
                "order_by": {
                    "type": "string",
                    "description": "A field; prefix - for descending order.",
                },
                "limit": {"type": "integer", "minimum": 1, "description": "The page size."},
                "cursor": {"type": "string", "description": "next_cursor of the previous page."},
            },
        ),
        GenericOperation(
            key="get",
            name="get_record",
            words="Get one record of a model by its key.",
            required=("key",),
        ),
        GenericOperation(
            key="count",
            name="count_records",
            words="Count the records of a model that match, optionally in groups; compute sums, "
            "averages, minimum and maximum. describe_model returns the filters of a model.",
            output=_COUNTED,
            within="filters",
            plain={
                "search": _SEARCH,
                "group_by": {"type": "string", "description": "A field to group by."},
                **{
                    f"{kind}_of": {
                        "type": "string",
                        "description": f"A field to get the {noun} of.",
                    }
                    for kind, noun in _AGGREGATES.items()
                },
            },
        ),
        GenericOperation(
            key="create",
            name="create_record",
            words="Create one record of a model. describe_model returns the values it accepts. "
            f"{PREVIEWED}",
            hints={"read_only": False, "destructive": False, "idempotent": False},
            within="values",
            plain={PREVIEW: _PREVIEW},
            required=("values",),
        ),
        GenericOperation(
            key="update",
            name="update_record",
            words="Change the fields of one record that are in values, and no others. "
            f"describe_model returns the values it accepts. {PREVIEWED}",
            hints={"read_only": False, "destructive": True, "idempotent": True},
            within="values",
            plain={CLEAR: _CLEAR, PREVIEW: _PREVIEW},
            required=("key",),
        ),
        GenericOperation(
            key="delete",
            name="delete_record",
            words="Delete one record and everything that depends on it; the result has the counts. "
            f"{PREVIEWED}",
            hints={"read_only": False, "destructive": True},
            plain={PREVIEW: _PREVIEW},
            required=("key",),
        ),
    )
}


def _generic_tools(members: Sequence[GenericModel]) -> list[Tool]:
    """Return ``describe_model`` and the tools that at least one of the models supports."""
    members_by_name: dict[str, GenericModel] = {}
    for member in members:
        other = members_by_name.setdefault(member.name, member)
        if other is not member:
            raise AlreadyRegistered(
                f"{other.declaration} and {member.declaration} are both called {member.name!r}, "
                "but the generic tools need distinct names; set another name on one of them."
            )
    arguments = GenericArguments(operation=DESCRIBE, members=members_by_name)
    generic_tools = [_tool(DESCRIBE, _describe_model, arguments, _tools(members))]
    for operation in OPERATIONS.values():
        able = {
            name: member
            for name, member in members_by_name.items()
            if operation.key in member.tools
        }
        tools = [member.tools[operation.key] for member in able.values()]
        if tools:
            generic_tools.append(
                _tool(
                    operation,
                    # Call the function of the model's own tool.
                    lambda ctx, call: call["tool"].function.bind(dict(call["arguments"]), ctx)(),
                    GenericArguments(operation=operation, members=able),
                    tools,
                    atomic=True if any(tool.atomic for tool in tools) else None,
                    dry_run=_GenericDryRun() if all(tool.dry_run for tool in tools) else None,
                )
            )
    return generic_tools


def _tool(
    operation: GenericOperation,
    function: Callable[..., Any],
    arguments: GenericArguments,
    tools: Sequence[Tool],
    **options: Any,
) -> Tool:
    return Tool(
        name=operation.name,
        description=operation.words,
        function=build_function(function, name=operation.name),
        arguments=arguments,
        output=TrustedOutput(operation.output),
        permission=AnyModel(tools),
        **operation.hints,  # type: ignore[arg-type]  # names of hints
        **options,
    )


class AnyModel(BasePermission):
    """Requires that the caller may use the tool with at least one of the models."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)

    def __str__(self) -> str:
        return "per model"

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller may use at least one of the tools."""
        return any(is_visible(principal, tool) for tool in self._tools)


class _GenericDryRun:
    """The dry run of the model's own tool."""

    def is_dry_run(self, arguments: Mapping[str, Any]) -> bool:
        dry_run = arguments["tool"].dry_run
        return dry_run is not None and bool(dry_run.is_dry_run(arguments["arguments"]))

    def to_dry_run(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        dry_run: DryRun = arguments["tool"].dry_run
        return {**arguments, "arguments": dry_run.to_dry_run(arguments["arguments"])}
