"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Catalog
from mcp_django.components.tool import Tool
from mcp_django.exceptions import InvalidParams
from mcp_django.execution import results
from mcp_django.execution.call import Call, ComponentMethod
from mcp_django.execution.handlers.listing import common_members, list_page
from mcp_django.execution.policy import is_visible
from mcp_django.execution.quotas import consume
from mcp_django.execution.task_support import (
    TaskRequestParams,
    describe_task_support,
    has_task_tools,
)
from mcp_django.protocol import headers
from mcp_django.protocol.jsonrpc import is_empty_array, read_params
from mcp_django.schema.arguments import ArgumentSource, InvalidArguments, with_objects


class CallParams(TaskRequestParams, kw_only=True):
    """Parameters of ``tools/call``; ``arguments`` stay raw until the tool's schema parses them."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def list_tools(call: Call) -> dict[str, Any]:
    """Return the tools that the caller may see."""
    catalog = call.catalog
    assert catalog is not None
    # Only 2025-11-25 lists ``taskSupport``.
    lists_support = call.revision.tasks and has_task_tools(catalog)

    def describe(tool: Tool) -> dict[str, Any]:
        described = describe_tool(tool, principal=call.principal, catalog=catalog)
        if lists_support and tool.task:
            return {**described, "execution": {"taskSupport": describe_task_support(tool)}}
        return described

    return list_page(call, catalog.tools.values(), member="tools", describe=describe)


def describe_tool(
    tool: Tool, principal: Principal | None = None, *, catalog: Catalog | None = None
) -> dict[str, Any]:
    """Return a tool in the format of 2026-07-28; ``protocol.projection`` adapts it to the revision.

    Without a ``principal`` the schema has everything that any caller may send. If ``catalog`` is
    given, the UI resource is left out if this caller may not read it.
    """
    schema = tool.arguments_for(principal).json_schema
    described = {**common_members(tool), "inputSchema": schema}
    if tool.output is not None and not tool.polling_fallback:
        described["outputSchema"] = tool.output.json_schema
    annotations: dict[str, Any] = dict(tool.hints)
    if tool.title:
        # Some hosts read the title only here.
        annotations["title"] = described["title"]
    if annotations:
        described["annotations"] = annotations
    if tool.ui is not None:
        # A tool may link only to a UI resource that the caller may read.
        is_linked = catalog is None or (
            (match := catalog.find_resource(tool.ui.uri)) is not None
            and (principal is None or is_visible(principal, match[0]))
        )
        if meta := tool.ui.tool_meta(is_linked=is_linked):
            described["_meta"] = {**described.get("_meta", {}), **meta}
    return described


def _read_arguments(call: Call) -> None:
    """Read the arguments; if they are invalid, the result explains the errors to the model."""
    # Both are of these types, since the plan is for this method.
    tool: Tool = call.component  # type: ignore[assignment]
    params: CallParams = call.params  # type: ignore[assignment]
    raw = bytes(params.arguments)
    if not raw.startswith(b"{"):
        raw = raw.strip()
        # Absent and null mean an empty object. So does an empty array, which PHP clients of
        # handshake revisions send.
        if raw == b"null" or (not call.revision.stateless and is_empty_array(raw)):
            raw = b"{}"
        elif not raw.startswith(b"{"):
            raise InvalidParams("params.arguments must be an object.")
    call.raw_arguments = raw
    call.record.note_authorized(raw)
    if (
        tool.header_parameters
        and call.revision.stateless
        and (request_headers := call.headers) is not None
    ):
        headers.check_param_headers(
            request_headers, read_params(raw, dict[str, Any]), tool.header_parameters
        )
    differs = hasattr(tool.arguments, "for_caller")
    arguments = tool.arguments_for(call.principal) if differs else tool.arguments
    try:
        call.arguments = arguments.parse(raw)
    except InvalidArguments as exc:
        invalid = exc if call.revision.stateless else _parse_with_objects(call, arguments, exc)
        if invalid is not None:
            call.record.note_invalid_arguments(invalid.problems)
            # A call with invalid arguments counts as a use too.
            consume(call)
            call.result = results.tool_error(str(invalid))
            return
    call.to_result = partial(results.tool_result, tool)
    call.to_error = partial(results.tool_failure, tool, call.envelope.revision)


def _parse_with_objects(
    call: Call, source: ArgumentSource, invalid: InvalidArguments
) -> InvalidArguments | None:
    """Parse the arguments with empty objects for empty arrays; return the error that remains."""
    try:
        meant = with_objects(call.raw_arguments, source.json_schema)
        if meant == call.raw_arguments:
            return invalid
        call.arguments = source.parse(meant)
    except InvalidArguments as exc:
        return exc
    except (msgspec.MsgspecError, RecursionError):
        return invalid
    call.raw_arguments = meant
    return None


CALL = ComponentMethod(
    name="tools/call",
    params=CallParams,
    name_parameter="name",
    find=Catalog.find_tool,
    siblings=lambda catalog: catalog.tools.values(),
    unknown=lambda call: InvalidParams(
        f"No tool named {call.name[:80]!r} on server {call.server.name!r}; see tools/list."
    ),
    read_arguments=_read_arguments,
)
