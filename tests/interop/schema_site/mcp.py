"""The servers, which have a tool for each entry of the tables in `cases.py`."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le
from pydantic import Base64Bytes, Base64UrlBytes, Field
from typing_extensions import TypedDict

from mcp_django import MCPServer, ModelTools, ToolResult
from mcp_django.auth.permissions import AllowAny
from tests.interop.schema_site.api import ParcelViewSet
from tests.interop.schema_site.cases import (
    BIG,
    CASES,
    DIGITS,
    ECHOES,
    NAMES,
    PATTERNS,
    RETURNED,
    TAKEN,
    WRITTEN,
)
from tests.interop.schema_site.models import Parcel


class Older(MCPServer):
    """A server of the first revision that has output schemas, so that clients fall back to it."""

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """Only this revision."""
        return ("2025-06-18",)


# Everything is in one page: a client that compiles the schemas of a page forgets the last page's.
servers = {
    path: kind("schemas", permission=AllowAny, page_size=2 * len(CASES))
    for path, kind in (("latest", MCPServer), ("older", Older))
}


def declare(name: str, function: Any, **options: Any) -> None:
    """Register a tool with all servers."""
    for server in servers.values():
        server.tool(name, description=f"The tool {name}.", read_only=True, **options)(function)


def echo(name: str, takes: Any, returns: Any) -> None:
    """Register a tool that returns its argument."""

    def function(value: Any) -> Any:
        return value

    function.__annotations__ = {"value": takes, "return": returns}
    declare(name, function)


def constant(name: str, result: Any, returns: Any, **options: Any) -> None:
    """Register a tool that always returns the same."""

    def function() -> Any:
        return result

    function.__annotations__ = {"return": returns}
    declare(name, function, **options)


for name, (pattern, _) in PATTERNS.items():
    matching = Annotated[str, Field(pattern=pattern)]

    def enlist(value: str) -> list[str]:
        """Return the text in a list, since text alone has no schema."""
        return [value]

    enlist.__annotations__ = {"value": matching, "return": list[matching]}
    declare(f"pattern_{name}", enlist)
for name, case in ECHOES.items():
    echo(f"echo_{name}", case.annotation, case.annotation)
for name, member in NAMES.items():
    shape = TypedDict("shape", {member: int})
    echo(f"name_{name}", shape, shape)
for name, (schema, value) in WRITTEN.items():
    constant(f"written_{name}", value, Any, output_schema=schema)
for name, returned in RETURNED.items():
    constant(f"returned_{name}", returned.result, returned.annotation)
for name, (schema, _) in TAKEN.items():

    def collect(**arguments: Any) -> dict[str, Any]:
        """Return the arguments."""
        return arguments

    declare(f"taken_{name}", collect, input_schema=schema)


def decode(value: Base64Bytes) -> list[str]:
    """Return the text that is encoded."""
    return [value.decode()]


def decode_for_urls(value: Base64UrlBytes) -> list[str]:
    """Return the text that is encoded for a URL."""
    return [value.decode()]


def measure(
    day: Annotated[date, Ge(date(2026, 1, 1))],
    length: Annotated[timedelta, Le(timedelta(days=1))],
    price: Annotated[Decimal, Gt(0)],
) -> tuple[date, int, Decimal]:
    """Return arguments with bounds that are no numbers."""
    return day, length.seconds, price


def summarize() -> ToolResult:
    """Return structured content beside a text of its own."""
    text = json.dumps({"id": DIGITS, "ids": [DIGITS]})
    return ToolResult(text, structured={"id": BIG, "ids": [BIG]})


for function in (decode, decode_for_urls, measure, summarize):
    declare(function.__name__, function)


class ParcelMCP(ModelTools[Parcel]):
    """Parcels."""

    fields = [field.name for field in Parcel._meta.fields]
    filter_fields = {"id": ["exact"], "serial": ["gte"], "parent": ["exact"]}
    tools = ["list", "get"]
    permission = AllowAny


for server in servers.values():
    server.register(Parcel)(ParcelMCP)
    server.register_viewset(ParcelViewSet, name="view", permission=AllowAny)
