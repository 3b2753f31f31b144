"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Catalog
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AuthenticationRequired, InvalidParams, MissingCapability
from mcp_django.execution import results
from mcp_django.execution.approval_guard import guard_for
from mcp_django.execution.call import Call, RetryParams
from mcp_django.execution.handlers.listing import common_members, list_page
from mcp_django.execution.interaction import Interaction, may_ask
from mcp_django.execution.policy import authorize, is_visible
from mcp_django.execution.quotas import consume
from mcp_django.execution.task_plan import plan_task, task_support
from mcp_django.protocol import headers
from mcp_django.protocol.jsonrpc import Request, read_params
from mcp_django.schema.arguments import InvalidArguments


class CallParams(RetryParams, kw_only=True):
    """Parameters of ``tools/call``; ``arguments`` stay raw until the tool's schema parses them."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    task: msgspec.Raw = msgspec.Raw(b"null")


def tool_name(request: Request) -> str:
    """Return the name of the tool in a ``tools/call`` request."""
    return read_params(request.params, CallParams).name


def list_tools(call: Call) -> dict[str, Any]:
    """Return the tools that the caller may see."""
    catalog = call.server.catalog
    shown = partial(describe_tool, principal=call.principal, catalog=catalog)
    if call.revision.tasks:
        shown = partial(_with_task_support, describe=shown)
    return list_page(call, catalog.tools.values(), member="tools", describe=shown)


def _with_task_support(tool: Tool, *, describe: Callable[[Tool], dict[str, Any]]) -> dict[str, Any]:
    """Return a tool with its ``taskSupport``, which only 2025-11-25 lists."""
    support = {"execution": {"taskSupport": task_support(tool)}} if tool.task else {}
    return {**describe(tool), **support}


def describe_tool(
    tool: Tool, principal: Principal | None = None, *, catalog: Catalog | None = None
) -> dict[str, Any]:
    """Return a tool in the format of 2026-07-28; ``protocol.projection`` adapts it to the revision.

    Without a ``principal`` the schema has everything that any caller may send. With the catalog in
    ``catalog``, the UI resource is left out if this caller may not read it.
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
        is_linked = catalog is None or _is_readable(tool.ui.uri, principal, catalog)
        if meta := tool.ui.tool_meta(is_linked=is_linked):
            described["_meta"] = {**described.get("_meta", {}), **meta}
    return described


def _is_readable(uri: str, principal: Principal | None, catalog: Catalog) -> bool:
    """Return whether the caller may read a UI resource, so that a tool may link to it."""
    found = catalog.find_resource(uri)
    return found is not None and (principal is None or is_visible(principal, found[0]))


def call_tool(call: Call) -> dict[str, Any] | None:
    """Authorize a call and parse its arguments; the tool's function runs later.

    Invalid arguments are answered with a result that the model can read, not with an error.
    """
    params = read_params(call.request.params, CallParams)
    tool = _authorized_tool(call, params.name)
    try:
        plan = plan_task(call, tool, params.task)
    except MissingCapability as exc:
        return _capability_error(call, tool, exc)
    raw = _arguments_object(params.arguments)
    prepare = partial(_prepare_call, call, tool, raw, params)
    return prepare() if plan is None else plan.prepare(call, prepare, raw)


def _authorized_tool(call: Call, name: str) -> Tool:
    """Return the tool of this name.

    Raises:
        InvalidParams: the tool does not exist, or the caller may not see it.
        AuthenticationRequired: the tool needs approval, and the caller is anonymous.
    """
    call_record = call.record
    call_record.note_name(name)
    catalog = call.server.catalog
    tool = catalog.find_tool(name)
    if tool is not None:
        call_record.note_component(tool)
    is_authorized = authorize(
        call.principal, tool, siblings=catalog.tools.values(), call_record=call_record
    )
    is_anonymous = not call.principal.is_authenticated
    needs_user = tool is not None and tool.approval and is_anonymous
    if is_authorized and needs_user and not call.principal.may_sign_in:
        # The same checks as for an absent tool.
        is_authorized = authorize(call.principal, None, siblings=catalog.tools.values())
    if tool is None or not is_authorized:
        raise InvalidParams(
            f"No tool named {name[:80]!r} on server {call.server.name!r}; see tools/list."
        )
    if needs_user:
        raise AuthenticationRequired("This needs credentials.", scopes=tool.scopes)
    return tool


def _prepare_call(
    call: Call, tool: Tool, raw: bytes, retry_params: RetryParams
) -> dict[str, Any] | None:
    call_record = call.record
    call_record.note_authorized(raw)
    if tool.header_parameters and call.revision.stateless and (given := call.headers) is not None:
        headers.check_param_headers(given, read_params(raw, dict[str, Any]), tool.header_parameters)
    try:
        arguments = tool.arguments_for(call.principal).parse(raw)
    except InvalidArguments as exc:
        call_record.note_invalid_arguments(exc.problems)
        # A call with invalid arguments counts as a use too.
        consume(call, tool)
        return results.tool_error(str(exc))
    if may_ask(tool, retry_params):
        try:
            call.interaction = Interaction(call, tool, raw, retry_params)
        except MissingCapability as exc:
            return _capability_error(call, tool, exc)
    consume(call, tool, call.interaction)
    call.approval_guard = guard_for(tool, raw, arguments)
    call.prepare(
        tool,
        arguments,
        to_result=partial(results.tool_result, tool),
        to_error=partial(results.tool_failure, tool, call.revision),
    )
    return None


def _capability_error(call: Call, tool: Tool, exc: MissingCapability) -> dict[str, Any]:
    """Return the result for a client that lacks a capability that the tool needs."""
    call.record.preset("refused", type(exc).__name__)
    return results.tool_failure(tool, call.revision, exc)


def _arguments_object(arguments: msgspec.Raw) -> bytes:
    """Return the arguments as the JSON of an object; absent and null mean an empty object."""
    raw = bytes(arguments).strip()
    if raw == b"null":
        return b"{}"
    if not raw.startswith(b"{"):
        raise InvalidParams("params.arguments must be an object.")
    return raw
