"""The tools of the generic set: names, words and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.core.context import Context
from mcp_django.core.declare import MadeHere, function
from mcp_django.core.tool import Tool
from mcp_django.execution.policy import visible
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.generic import Member
from mcp_django.sources.models.generic_arguments import GenericArguments, GenericCall
from mcp_django.sources.models.generic_describing import describe
from mcp_django.sources.models.generic_shapes import DESCRIBE, SHAPES

_RECORD: Schema = {"type": "object", "additionalProperties": True}
_PAGE: Schema = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": _RECORD},
        "total": {"type": "integer", "description": "On the first page: how many match."},
        "next_cursor": {"type": "string", "description": "There are more; absent at the end."},
    },
    "required": ["items"],
}
_COUNTED: Schema = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": True,
}
_PREVIEWED = "With preview it answers what would change, and changes nothing."


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One tool of the set."""

    name: str
    operation: str
    words: str
    output: Schema
    hints: Mapping[str, bool]


KINDS = (
    Kind(
        name="search_records",
        operation="list",
        words="Find records of a model: search, filter, order and page. describe_model says what "
        "a model has, and what its filters are.",
        output=_PAGE,
        hints={"read_only": True},
    ),
    Kind(
        name="get_record",
        operation="get",
        words="Get one record of a model by its key.",
        output=_RECORD,
        hints={"read_only": True},
    ),
    Kind(
        name="count_records",
        operation="count",
        words="Count the records of a model that match, in groups if asked, with sums, averages "
        "and extremes. describe_model says what its filters are.",
        output=_COUNTED,
        hints={"read_only": True},
    ),
    Kind(
        name="create_record",
        operation="create",
        words=f"Create one record of a model. describe_model says what values it takes. "
        f"{_PREVIEWED}",
        output=_RECORD,
        hints={"read_only": False, "destructive": False, "idempotent": False},
    ),
    Kind(
        name="update_record",
        operation="update",
        words="Change the fields of one record that are in values, and leave the others. "
        f"describe_model says what values it takes. {_PREVIEWED}",
        output=_RECORD,
        hints={"read_only": False, "destructive": True, "idempotent": True},
    ),
    Kind(
        name="delete_record",
        operation="delete",
        words="Delete one record with all that depends on it, which the answer counts. "
        f"{_PREVIEWED}",
        output=_RECORD,
        hints={"read_only": False, "destructive": True},
    ),
)
NAMES = {kind.operation: kind.name for kind in KINDS}


def generic_tools(members: Mapping[str, Member]) -> list[Tool]:
    """The tools that at least one of the models allows, and the one that describes a model."""
    found = [_describing(members)]
    for kind in KINDS:
        able = {name: one for name, one in members.items() if kind.operation in one.tools}
        if able:
            found.append(_tool(kind, able))
    return found


class AnyModel(BasePermission):
    """Whether the caller may use the tool with one of the models at least."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)

    def __str__(self) -> str:
        return "that of the model"

    def has_permission(self, principal: Principal) -> bool:
        """Whether there is a model left for this caller."""
        return any(visible(principal, tool) for tool in self._tools)


def _tool(kind: Kind, members: Mapping[str, Member]) -> Tool:
    tools = {name: one.tools[kind.operation] for name, one in members.items()}
    return Tool(
        name=kind.name,
        description=kind.words,
        function=function(_run, name=kind.name),
        arguments=GenericArguments(SHAPES[kind.operation], members, operation=kind.operation),
        output=MadeHere(kind.output),
        permission=AnyModel(tools.values()),
        atomic=True if any(tool.atomic for tool in tools.values()) else None,
        dry_run=_Previewing() if all(tool.dry_run for tool in tools.values()) else None,
        **kind.hints,  # type: ignore[arg-type]  # names of hints
    )


class _Previewing:
    """The dry run of the model's own tool."""

    def is_one(self, arguments: Mapping[str, Any]) -> bool:
        call: GenericCall = arguments["call"]
        return call.tool.dry_run is not None and call.tool.dry_run.is_one(call.arguments)

    def of(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        call: GenericCall = arguments["call"]
        assert call.tool.dry_run is not None
        dry = replace(call, arguments=call.tool.dry_run.of(call.arguments))
        return {**arguments, "call": dry}


def _run(ctx: Context, given: dict[str, Any]) -> Any:
    """Call the function of the model's own tool."""
    call: GenericCall = given["call"]
    return call.tool.function.bind(dict(call.arguments), ctx)()


def _describing(members: Mapping[str, Member]) -> Tool:
    return Tool(
        name="describe_model",
        description="What the records of a model hold, and which filters, orders and values the "
        "other tools take for it, as JSON Schema.",
        function=function(_describe(members), name="describe_model"),
        arguments=GenericArguments(DESCRIBE, members),
        output=MadeHere(_RECORD),
        permission=AnyModel(_all(members.values())),
        read_only=True,
    )


def _describe(members: Mapping[str, Member]) -> Callable[[Context, dict[str, Any]], Any]:
    def described(ctx: Context, given: dict[str, Any]) -> dict[str, Any]:
        return describe(given["member"], ctx.principal, NAMES)

    return described


def _all(members: Iterable[Member]) -> Sequence[Tool]:
    return [tool for member in members for tool in member.tools.values()]
