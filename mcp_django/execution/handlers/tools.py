"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Offered
from mcp_django.core.tool import Tool
from mcp_django.exceptions import AuthenticationRequired, InvalidParams, MissingCapability
from mcp_django.execution import results
from mcp_django.execution.approval_guard import gate_of
from mcp_django.execution.call import Incoming, Invocation, RoundParams
from mcp_django.execution.handlers.listing import common, page
from mcp_django.execution.interaction import Interaction
from mcp_django.execution.policy import admit, visible
from mcp_django.execution.quotas import spend
from mcp_django.execution.task_plan import becoming_of, support_of
from mcp_django.protocol import headers
from mcp_django.protocol.jsonrpc import Request, read_params
from mcp_django.schema.arguments import ArgumentSource, InvalidArguments

ForCaller: TypeAlias = Callable[[Principal], ArgumentSource]
"""The type of ``for_caller`` of an argument source whose schema differs between callers."""


class CallParams(RoundParams, kw_only=True):
    """Parameters of ``tools/call``; ``arguments`` stay raw until the tool's schema parses them."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    task: msgspec.Raw = msgspec.Raw(b"null")


def name_of(request: Request) -> str:
    """Return the name of the tool in a ``tools/call`` request."""
    return read_params(request.params, CallParams).name


def list_tools(incoming: Incoming) -> dict[str, Any]:
    """Return the tools that the caller may see."""
    offered = incoming.server.offered
    shown = partial(describe, principal=incoming.principal, offered=offered)
    if incoming.revision.tasks:
        shown = partial(_with_support, describe=shown)
    return page(incoming, offered.tools.values(), member="tools", describe=shown)


def _with_support(tool: Tool, *, describe: Callable[[Tool], dict[str, Any]]) -> dict[str, Any]:
    """Return a tool with its ``taskSupport``, which only 2025-11-25 lists."""
    support = {"execution": {"taskSupport": support_of(tool)}} if tool.task else {}
    return {**describe(tool), **support}


def describe(
    tool: Tool, principal: Principal | None = None, *, offered: Offered | None = None
) -> dict[str, Any]:
    """Return a tool in its richest wire shape; ``protocol.shapes`` adapts it to the revision.

    Without a ``principal`` the schema has everything that any caller may send. With the catalog in
    ``offered``, the UI resource is left out if this caller may not read it.
    """
    described = {**common(tool), "inputSchema": _arguments(tool, principal).json_schema}
    if tool.output is not None and not tool.handle:
        described["outputSchema"] = tool.output.json_schema
    annotations: dict[str, Any] = dict(tool.hints)
    if tool.title:
        # Some hosts read the title only here.
        annotations["title"] = described["title"]
    if annotations:
        described["annotations"] = annotations
    if tool.ui is not None:
        is_linked = offered is None or _is_readable(tool.ui.uri, principal, offered)
        if meta := tool.ui.of_tool(is_linked=is_linked):
            described["_meta"] = {**described.get("_meta", {}), **meta}
    return described


def _is_readable(uri: str, principal: Principal | None, offered: Offered) -> bool:
    """Return whether the caller may read a UI resource, so that a tool may link to it."""
    found = offered.find_resource(uri)
    return found is not None and (principal is None or visible(principal, found[0]))


def call_tool(incoming: Incoming) -> Invocation | dict[str, Any]:
    """Authorize a call and parse its arguments; the tool's function runs later.

    Invalid arguments are answered with a result that the model can read, not with an error.
    """
    params = read_params(incoming.request.params, CallParams)
    tool = _admitted(incoming, params.name)
    try:
        becoming = becoming_of(incoming, tool, params.task)
    except MissingCapability as exc:
        return _excused(incoming, tool, exc)
    raw = _object(params.arguments)
    prepared = partial(_prepared, incoming, tool, raw, params)
    return prepared() if becoming is None else becoming.prepare(prepared, raw)


def _admitted(incoming: Incoming, name: str) -> Tool:
    """Return the tool of this name.

    Raises:
        InvalidParams: the tool does not exist, or the caller may not see it.
        AuthenticationRequired: the tool needs approval, and the caller is anonymous.
    """
    entry = incoming.entry
    entry.wants(name)
    offered = incoming.server.offered
    tool = offered.find_tool(name)
    if tool is not None:
        entry.found(tool)
    is_admitted = admit(incoming.principal, tool, among=offered.tools.values(), entry=entry)
    is_anonymous = not incoming.principal.is_authenticated
    if tool is not None and tool.approval and is_anonymous and not incoming.principal.may_sign_in:
        is_admitted = False
    if tool is None or not is_admitted:
        raise InvalidParams(
            f"No tool named {name[:80]!r} on server {incoming.server.name!r}; see tools/list."
        )
    if tool.approval and is_anonymous:
        raise AuthenticationRequired("This needs credentials.", scopes=tool.scopes)
    return tool


def _prepared(
    incoming: Incoming, tool: Tool, raw: bytes, given: RoundParams
) -> Invocation | dict[str, Any]:
    entry = incoming.entry
    entry.admitted(raw)
    if tool.mirrored and incoming.headers is not None and incoming.revision.stateless:
        headers.check_params(incoming.headers, read_params(raw, dict[str, Any]), tool.mirrored)
    try:
        arguments = _arguments(tool, incoming.principal).parse(raw)
    except InvalidArguments as exc:
        entry.wrong(exc.problems)
        # A call with invalid arguments counts as a use too.
        spend(incoming, tool)
        return results.tool_error(str(exc))
    try:
        interaction = Interaction(incoming, tool, raw, given)
    except MissingCapability as exc:
        return _excused(incoming, tool, exc)
    spend(incoming, tool, interaction)
    return Invocation(
        incoming=incoming,
        component=tool,
        arguments=arguments,
        interaction=interaction,
        gate=gate_of(incoming, tool, raw, arguments),
        conclude=partial(results.tool_result, tool),
        excuse=partial(results.tool_failure, tool, incoming.revision),
        entry=entry,
    )


def _excused(incoming: Incoming, tool: Tool, exc: MissingCapability) -> dict[str, Any]:
    """Return the result for a client that lacks a capability that the tool needs."""
    incoming.entry.refuse("refused", type(exc).__name__)
    return results.tool_failure(tool, incoming.revision, exc)


def _arguments(tool: Tool, principal: Principal | None) -> ArgumentSource:
    """Return the argument source for this caller, where it differs between callers."""
    for_caller: ForCaller | None = getattr(tool.arguments, "for_caller", None)
    return tool.arguments if for_caller is None or principal is None else for_caller(principal)


def _object(arguments: msgspec.Raw) -> bytes:
    """Return the arguments as the JSON of an object; absent and null mean an empty object."""
    raw = bytes(arguments).strip()
    if raw == b"null":
        return b"{}"
    if not raw.startswith(b"{"):
        raise InvalidParams("params.arguments must be an object.")
    return raw
