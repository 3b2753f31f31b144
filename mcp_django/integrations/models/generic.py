"""Generic tools: one set of tools for all models of a server, instead of one set per model.

``GenericSet`` uses the generic tools above a number of models, and the tools of each model
otherwise. It decides whenever a model is registered or unregistered, so the result depends on the
registered models and not on their order; the apps' ``mcp`` modules are all imported before the
first client connects. The generic tools do not access rows themselves: each call is passed to the
tool of the model, the same one that would otherwise be in the catalog.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from django.core.exceptions import ImproperlyConfigured

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal, anonymous_principal
from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.core.declare import TrustedOutput, build_function
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.execution.policy import authorize, is_visible
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.integrations.models.writing import CLEAR, PREVIEW, PREVIEWED
from mcp_django.protocol.text import nearest
from mcp_django.schema.arguments import (
    MAX_KEPT_PROBLEMS,
    InvalidArguments,
    ValidationProblem,
    to_json_text,
    unknown_argument_problem,
)
from mcp_django.schema.portable import portable_input
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import decode_arguments

if TYPE_CHECKING:
    from mcp_django.integrations.models.declaration import ModelComponents
    from mcp_django.integrations.registration import IntegrationRegistry

MAX_MODELS = 8

Generic: TypeAlias = bool | int | None
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
        """Return the tools of the model that the caller may see."""
        return {name: tool for name, tool in self.tools.items() if is_visible(principal, tool)}


class GenericSet:
    """The models of a server that have tools, and the tools in the catalog for them."""

    def __init__(self, server: IntegrationRegistry, generic: Generic) -> None:
        self._server = server
        self._members: list[GenericModel] = []
        self._own: list[Tool] = []
        self.set_option(generic)

    def set_option(self, generic: Generic) -> None:
        """Set the option ``generic``; it takes effect with the next ``update_tools``."""
        self._limit = _limit(generic)
        self.generic = generic

    def update_tools(self, registrations: Registrations) -> None:
        """Register the generic tools or the tools of each model, depending on their number.

        Raises:
            AlreadyRegistered: the name of a tool, or of a model, is already used.
        """
        members = list(_members(registrations))
        own: list[Tool] = []
        if self._limit is not None and len(members) > self._limit:
            own = self._build(members)
        self._exchange([*_tools(self._members), *self._own], own or [*_tools(members)])
        self._members, self._own = members, own

    def _build(self, members: Sequence[GenericModel]) -> list[Tool]:
        named: dict[str, GenericModel] = {}
        for member in members:
            other = named.setdefault(member.name, member)
            if other is not member:
                raise AlreadyRegistered(
                    f"{other.declaration} and {member.declaration} are both called "
                    f"{member.name!r}, but the generic tools need distinct names; set another name "
                    "on one of them."
                )
        return _generic_tools(named)

    def _exchange(self, registered: Sequence[Tool], wanted: Sequence[Tool]) -> None:
        """Replace registered tools with the wanted ones; on an error, restore the old state."""
        known = self._server.tools
        self._server.generation += 1
        before = dict(known)
        kept = {id(tool) for tool in wanted}
        for tool in registered:
            if id(tool) not in kept and known.get(tool.key) is tool:
                del known[tool.key]
        try:
            for tool in wanted:
                if known.get(tool.key) is not tool:
                    self._server.add(tool)
        except BaseException:
            known.clear()
            known.update(before)
            raise


def _limit(generic: Generic) -> int | None:
    """Return the number of models above which generic tools are used, ``None`` for never."""
    if generic is None:
        return MAX_MODELS
    if isinstance(generic, bool):
        return 0 if generic else None
    number: Any = generic
    if not isinstance(number, int) or number < 0:
        raise ImproperlyConfigured(
            f"generic={generic!r} is not valid; write True, False, or the number of models above "
            f"which generic tools replace those of each model (default: {MAX_MODELS})."
        )
    return generic


def _members(registrations: Registrations) -> Iterator[GenericModel]:
    for declaration, components in registrations.items():
        if not isinstance(declaration, ModelTools):
            continue
        left = {id(component) for component in components}
        tools = {name: one for name, one in declaration.operations.items() if id(one) in left}
        if tools:
            yield GenericModel(declaration=declaration, tools=tools)


def _tools(members: Sequence[GenericModel]) -> Iterator[Tool]:
    for member in members:
        yield from member.tools.values()


# Arguments of the generic tools -------------------------------------------------------------------

# These name a model and contain the arguments of its own tool. They are parsed twice: first for
# their structure, then by the model's tool, which knows its filters and fields. Errors of the
# second pass are reported under the names that the caller used.

Raws = dict[str, bytes]

_FIRST = re.compile(r"[^.\[]*")
_NUMBER = re.compile(rb"-?\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericCall:
    """The model's own tool and its parsed arguments."""

    tool: Tool
    arguments: Mapping[str, Any]


class GenericArguments:
    """Parses the arguments of a generic tool, for the models that a principal may see."""

    def __init__(
        self,
        shape: ArgumentShape,
        members: Mapping[str, GenericModel],
        *,
        operation: str = "",
        principal: Principal | None = None,
    ) -> None:
        self._shape = shape
        self._members = members
        self._operation = operation
        self._principal = principal

    def for_caller(self, principal: Principal) -> GenericArguments:
        """Return the arguments with the models that this caller may see."""
        return GenericArguments(
            self._shape, self._members, operation=self._operation, principal=principal
        )

    @property
    def json_schema(self) -> Schema:
        """The JSON Schema with the models that the caller may see; all models without a caller."""
        model: Schema = {"type": "string", "enum": self._names()}
        return portable_input(
            {
                "type": "object",
                "properties": {"model": model, **self._shape.properties},
                "required": ["model", *self._shape.required],
                "additionalProperties": False,
            }
        )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the ``call`` to make, or the ``member`` to describe.

        Raises:
            InvalidArguments: an argument is not valid; the caller can correct it.
            InsufficientScope: the user has the permission, but the credential lacks a scope.
        """
        if self._principal is None:
            return self.for_caller(anonymous_principal()).parse(raw)
        pieces = _split_arguments(raw)
        if problems := list(self._shape_problems(pieces)):
            raise InvalidArguments(problems[:MAX_KEPT_PROBLEMS])
        member = self._member(json.loads(pieces.pop("model")))
        if not self._operation:
            return {"member": member}
        tool = member.tools[self._operation]
        authorize(self._principal, tool)
        return {"call": _Translation(self._shape, member, tool).call(pieces)}

    def _shape_problems(self, pieces: Raws) -> Iterator[ValidationProblem]:
        known = ["model", *self._shape.properties]
        for name in pieces:
            if name not in known:
                yield unknown_argument_problem(name, known)
        for name in ("model", *self._shape.required):
            if name not in pieces:
                yield ValidationProblem(path=name, message="is required")

    def _member(self, name: Any) -> GenericModel:
        """Return the model of this name; a hidden one is treated as if it did not exist."""
        names = self._names()
        if name in names:
            return self._members[name]
        close = nearest(name, names)
        hint = f"; did you mean {to_json_text(close)}?" if close else ""
        known = ", ".join(names)
        raise InvalidArguments(
            [ValidationProblem(path="model", value=name, message=f"must be one of {known}{hint}")]
        )

    def _names(self) -> list[str]:
        return sorted(name for name, one in self._members.items() if self._shows(one))

    def _shows(self, member: GenericModel) -> bool:
        if self._principal is None:
            return True
        if not self._operation:
            return bool(member.visible(self._principal))
        return is_visible(self._principal, member.tools[self._operation])


class _Translation:
    """Translates the arguments of a generic tool to those of the model's own tool."""

    def __init__(self, shape: ArgumentShape, member: GenericModel, tool: Tool) -> None:
        self._shape = shape
        self._member = member
        self._tool = tool
        self._taken: Mapping[str, Schema] = tool.arguments.json_schema["properties"]
        self._key = member.declaration.lookup.name if shape.has_key else ""

    def call(self, pieces: Raws) -> GenericCall:
        """Return the call of the model's own tool.

        Raises:
            InvalidArguments: the model's tool does not accept the arguments.
        """
        raw = _joined(self._translated(pieces))
        try:
            arguments = self._tool.arguments.parse(raw)
        except InvalidArguments as exc:
            raise InvalidArguments([self._with_outer_path(one) for one in exc.problems]) from exc
        return GenericCall(tool=self._tool, arguments=arguments)

    def _translated(self, pieces: Raws) -> Raws:
        found: Raws = {}
        problems: list[ValidationProblem] = []
        for name, piece in pieces.items():
            if name == "key" and self._shape.has_key:
                found[self._key] = self._encode_key(piece)
            elif name == self._shape.within:
                found |= self._inner(piece)
            elif name in self._taken:
                found[name] = piece
            else:
                message = f"{self._member.name} does not have this argument; leave it out"
                problems.append(
                    ValidationProblem(path=name, value=json.loads(piece), message=message)
                )
        if problems:
            raise InvalidArguments(problems)
        return found

    def _inner(self, piece: bytes) -> Raws:
        within = self._shape.within
        if not piece.startswith(b"{"):
            value = json.loads(piece)
            raise InvalidArguments(
                [ValidationProblem(path=within, value=value, message="must be an object")]
            )
        pieces = _raws(piece)
        known = [one for one in self._taken if one not in self._shape.plain and one != self._key]
        unknown = [name for name in pieces if name not in known]
        if unknown:
            raise InvalidArguments(
                [
                    unknown_argument_problem(name, known, path=within)
                    for name in unknown[:MAX_KEPT_PROBLEMS]
                ]
            )
        return pieces

    def _encode_key(self, piece: bytes) -> bytes:
        """Return a number as a string if keys are text; clients often send digits as a number."""
        is_text = self._taken[self._key].get("type") == "string"
        return b'"%b"' % piece if is_text and _NUMBER.match(piece) else piece

    def _with_outer_path(self, problem: ValidationProblem) -> ValidationProblem:
        """Return the problem with the path that the caller used."""
        found = _FIRST.match(problem.path)
        first = found.group() if found else ""
        if self._key and first == self._key:
            return replace(problem, path=f"key{problem.path[len(first) :]}")
        if not first or first in self._shape.plain:
            return problem
        return replace(problem, path=f"{self._shape.within}.{problem.path}")


def _split_arguments(raw: bytes) -> Raws:
    """Return the arguments as raw JSON, without those that are ``null``."""
    if not decode_arguments(raw):
        return {}
    return {name: one for name, one in _raws(raw).items() if one != b"null"}


def _raws(raw: bytes) -> Raws:
    """Return the members of an object as raw JSON; decoding and encoding numbers loses digits."""
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as exc:
        problem = ValidationProblem(path="", message=f"the arguments are not valid JSON: {exc}")
        raise InvalidArguments([problem]) from exc
    return {name: bytes(one).strip() for name, one in found.items()}


def _joined(pieces: Raws) -> bytes:
    return b"{%b}" % b",".join(
        b"%b:%b" % (to_json_text(n).encode(), one) for n, one in pieces.items()
    )


# The result of describe_model ---------------------------------------------------------------------

# Arguments that are the same for every model, and described by the tools themselves.
_COMMON_ARGUMENTS = frozenset({"cursor", PREVIEW})


def _describe_model(ctx: Context, given: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model for this caller."""
    member: GenericModel = given["member"]
    declaration = member.declaration
    return {
        "model": member.name,
        "about": " ".join(part for part in (f"{declaration.nouns}.", declaration.doc) if part),
        "fields": declaration.exposed.schema.get("properties", {}),
        "tools": {
            NAMES[operation]: _arguments(member, operation, tool)
            for operation, tool in member.visible(ctx.principal).items()
        },
    }


def _arguments(member: GenericModel, operation: str, tool: Tool) -> dict[str, Any]:
    """Return the arguments of a generic tool for this model, as JSON Schema."""
    schema = tool.arguments.json_schema
    required = set(schema.get("required", ()))
    shape = SHAPES[operation]
    key = member.declaration.lookup.name if shape.has_key else ""
    described: dict[str, Any] = {}
    inner: dict[str, Schema] = {}
    for name, one in schema["properties"].items():
        if name == key:
            described["key"] = {**one, "description": f"The {name} of the record."}
        elif name not in shape.plain:
            inner[name] = one
        elif name not in _COMMON_ARGUMENTS:
            described[name] = one
    if not shape.within:
        return described
    needed = [name for name in inner if name in required]
    described[shape.within] = {
        "type": "object",
        "properties": inner,
        **({"required": needed} if needed else {}),
        "additionalProperties": False,
    }
    return described


# Argument schemas that all models share -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentShape:
    """The arguments of a generic tool besides ``model``.

    ``within`` is the argument that contains the arguments of the model's tool that differ between
    models; ``plain`` are the arguments that have the same names for all models.
    """

    plain: Mapping[str, Schema] = field(default_factory=dict)
    within: str = ""
    words: str = ""
    has_key: bool = False
    required: tuple[str, ...] = ()

    @property
    def properties(self) -> dict[str, Schema]:
        """The JSON Schema of each argument."""
        key: Schema = {"type": "string", "description": "The key of the record."}
        inner: Schema = {
            "type": "object",
            "description": self.words,
            "additionalProperties": True,
        }
        return {
            **({"key": key} if self.has_key else {}),
            **({self.within: inner} if self.within else {}),
            **self.plain,
        }


_SEARCH: Schema = {"type": "string", "description": "Words to look for."}
_FILTERS = 'Filters by name, for example {"status": "open", "total__gte": 10}.'
_PREVIEW: Schema = {
    "type": "boolean",
    "description": "True: return what would change, and change nothing.",
}
_CLEAR: Schema = {"type": "array", "items": {"type": "string"}, "description": "Fields to empty."}
_VALUES = "The fields to write, by name."

LIST = ArgumentShape(
    within="filters",
    words=_FILTERS,
    plain={
        "search": _SEARCH,
        "order_by": {"type": "string", "description": "A field; prefix - for descending order."},
        "limit": {"type": "integer", "minimum": 1, "description": "The page size."},
        "cursor": {"type": "string", "description": "next_cursor of the previous page."},
    },
)
COUNT = ArgumentShape(
    within="filters",
    words=_FILTERS,
    plain={
        "search": _SEARCH,
        "group_by": {"type": "string", "description": "A field to group by."},
        **{
            f"{kind}_of": {"type": "string", "description": f"A field to get the {noun} of."}
            for kind, noun in (
                ("sum", "sum"),
                ("avg", "average"),
                ("min", "smallest value"),
                ("max", "largest value"),
            )
        },
    },
)
GET = ArgumentShape(has_key=True, required=("key",))
CREATE = ArgumentShape(
    within="values", words=_VALUES, plain={PREVIEW: _PREVIEW}, required=("values",)
)
UPDATE = ArgumentShape(
    within="values",
    words=_VALUES,
    plain={CLEAR: _CLEAR, PREVIEW: _PREVIEW},
    has_key=True,
    required=("key",),
)
DELETE = ArgumentShape(plain={PREVIEW: _PREVIEW}, has_key=True, required=("key",))
DESCRIBE = ArgumentShape()
SHAPES: Mapping[str, ArgumentShape] = {
    "list": LIST,
    "get": GET,
    "count": COUNT,
    "create": CREATE,
    "update": UPDATE,
    "delete": DELETE,
}


# Names, descriptions and hints --------------------------------------------------------------------

_RECORD: Schema = {"type": "object", "additionalProperties": True}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericToolSpec:
    """One generic tool."""

    name: str
    operation: str
    words: str
    output: Schema
    hints: Mapping[str, bool]


KINDS = (
    GenericToolSpec(
        name="search_records",
        operation="list",
        words="Find records of a model: search, filter, order and page. describe_model returns the "
        "fields and filters of a model.",
        output=_PAGE,
        hints={"read_only": True},
    ),
    GenericToolSpec(
        name="get_record",
        operation="get",
        words="Get one record of a model by its key.",
        output=_RECORD,
        hints={"read_only": True},
    ),
    GenericToolSpec(
        name="count_records",
        operation="count",
        words="Count the records of a model that match, optionally in groups; compute sums, "
        "averages, minimum and maximum. describe_model returns the filters of a model.",
        output=_COUNTED,
        hints={"read_only": True},
    ),
    GenericToolSpec(
        name="create_record",
        operation="create",
        words=f"Create one record of a model. describe_model returns the values it accepts. "
        f"{PREVIEWED}",
        output=_RECORD,
        hints={"read_only": False, "destructive": False, "idempotent": False},
    ),
    GenericToolSpec(
        name="update_record",
        operation="update",
        words="Change the fields of one record that are in values, and no others. "
        f"describe_model returns the values it accepts. {PREVIEWED}",
        output=_RECORD,
        hints={"read_only": False, "destructive": True, "idempotent": True},
    ),
    GenericToolSpec(
        name="delete_record",
        operation="delete",
        words="Delete one record and everything that depends on it; the result has the counts. "
        f"{PREVIEWED}",
        output=_RECORD,
        hints={"read_only": False, "destructive": True},
    ),
)
NAMES = {kind.operation: kind.name for kind in KINDS}


def _generic_tools(members: Mapping[str, GenericModel]) -> list[Tool]:
    """Return ``describe_model`` and the tools that at least one of the models supports."""
    found = [_build_describe_tool(members)]
    for kind in KINDS:
        able = {name: one for name, one in members.items() if kind.operation in one.tools}
        if able:
            found.append(_tool(kind, able))
    return found


class AnyModel(BasePermission):
    """Requires that the caller may use the tool with at least one of the models."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)

    def __str__(self) -> str:
        return "per model"

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller may use at least one of the tools."""
        return any(is_visible(principal, tool) for tool in self._tools)


def _tool(kind: GenericToolSpec, members: Mapping[str, GenericModel]) -> Tool:
    tools = {name: one.tools[kind.operation] for name, one in members.items()}
    return Tool(
        name=kind.name,
        description=kind.words,
        function=build_function(_run_model_tool, name=kind.name),
        arguments=GenericArguments(SHAPES[kind.operation], members, operation=kind.operation),
        output=TrustedOutput(kind.output),
        permission=AnyModel(tools.values()),
        atomic=True if any(tool.atomic for tool in tools.values()) else None,
        dry_run=_GenericDryRun() if all(tool.dry_run for tool in tools.values()) else None,
        **kind.hints,  # type: ignore[arg-type]  # names of hints
    )


class _GenericDryRun:
    """The dry run of the model's own tool."""

    def is_dry_run(self, arguments: Mapping[str, Any]) -> bool:
        call: GenericCall = arguments["call"]
        return call.tool.dry_run is not None and call.tool.dry_run.is_dry_run(call.arguments)

    def to_dry_run(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        call: GenericCall = arguments["call"]
        assert call.tool.dry_run is not None
        dry = replace(call, arguments=call.tool.dry_run.to_dry_run(call.arguments))
        return {**arguments, "call": dry}


def _run_model_tool(ctx: Context, given: dict[str, Any]) -> Any:
    """Call the function of the model's own tool."""
    call: GenericCall = given["call"]
    return call.tool.function.bind(dict(call.arguments), ctx)()


def _build_describe_tool(members: Mapping[str, GenericModel]) -> Tool:
    return Tool(
        name="describe_model",
        description="Get the fields of a model, and the filters, orders and values that the other "
        "tools accept for it, as JSON Schema.",
        function=build_function(_describe_model, name="describe_model"),
        arguments=GenericArguments(DESCRIBE, members),
        output=TrustedOutput(_RECORD),
        permission=AnyModel(_all(members.values())),
        read_only=True,
    )


def _all(members: Iterable[GenericModel]) -> Sequence[Tool]:
    return [tool for member in members for tool in member.tools.values()]
