"""``tools/list`` and ``tools/call``."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from mcp_django.components.tool import Tool
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol import headers
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.runtime import failures, results
from mcp_django.runtime.handlers.paging import common, page
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.policy import admit
from mcp_django.schema.arguments import InvalidArguments


class CallParams(msgspec.Struct):
    """Parameters of ``tools/call``; ``arguments`` stay raw until the tool's schema reads them."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def list_tools(incoming: Incoming) -> dict[str, Any]:
    """The tools that the caller may see."""
    return page(incoming, incoming.server.tools.values(), member="tools", describe=describe)


def describe(tool: Tool) -> dict[str, Any]:
    """A tool in its richest shape; the revision's own is cut from it later."""
    described = {**common(tool), "inputSchema": tool.arguments.json_schema}
    if tool.output is not None:
        described["outputSchema"] = tool.output.json_schema
    annotations: dict[str, Any] = dict(tool.hints)
    if tool.title:
        # Some hosts read the title only here.
        annotations["title"] = described["title"]
    if annotations:
        described["annotations"] = annotations
    return described


def call_tool(incoming: Incoming) -> Invocation | dict[str, Any]:
    """Admit a call and read its arguments; the function itself runs later.

    Arguments that do not fit are a result that the model can learn from, not an error (TOOL-9).
    """
    params = read_params(incoming.request.params, CallParams)
    tool = incoming.server.tools.get(params.name)
    if tool is None or not admit(incoming.principal, tool):
        raise InvalidParams(
            f"No tool named {params.name[:80]!r} on server {incoming.server.name!r}; "
            "see tools/list."
        )
    raw = _object(params.arguments)
    if tool.mirrored and incoming.headers is not None and incoming.revision.stateless:
        headers.check_params(incoming.headers, read_params(raw, dict[str, Any]), tool.mirrored)
    try:
        arguments = tool.arguments.parse(raw)
    except InvalidArguments as exc:
        return results.tool_error(str(exc))
    return Invocation(
        incoming=incoming,
        component=tool,
        arguments=arguments,
        conclude=partial(results.tool_result, tool),
        excuse=partial(failures.tool_failure, tool),
    )


def _object(arguments: msgspec.Raw) -> bytes:
    """The arguments as the JSON of an object; absent and null are the empty one (TOOL-17)."""
    raw = bytes(arguments).strip()
    if raw == b"null":
        return b"{}"
    if not raw.startswith(b"{"):
        raise InvalidParams("params.arguments must be an object.")
    return raw
