"""Whether a call becomes a task: who asks for it, who can have one, and who has to (TKD-3, TKE-1).

At 2026-07-28 the server alone decides, for clients that declare the extension in the very request;
at 2025-11-25 the client asks for each call; before that there are none.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mcp_django.core.catalog import Offered
from mcp_django.core.tool import Tool
from mcp_django.exceptions import MethodNotFound, MissingCapability
from mcp_django.protocol.errors import TASKS, declares_extension, required_extension
from mcp_django.runtime.incoming import Incoming

Way: TypeAlias = Literal["", "task", "handle"]
"""A call is answered with its result, with a task, or with a handle for ``get_result``."""


def offers_tasks(offered: Offered) -> bool:
    """Whether any tool runs as a task, so that the methods of tasks exist."""
    return any(tool.task for tool in offered.tools.values())


def knows_tasks(incoming: Incoming) -> bool:
    """Whether the client of an extension's revision declared it in this request."""
    return incoming.revision.extensions and declares_extension(
        incoming.envelope.client_capabilities, TASKS
    )


def way_of(incoming: Incoming, tool: Tool, *, is_asked_for: bool) -> Way:
    """How a call is answered.

    Raises:
        MethodNotFound: 2025-11-25, and the client does not do what the tool declares.
        MissingCapability: the tool is nothing but a task, and the client knows none.
    """
    if not tool.task:
        if is_asked_for and offers_tasks(incoming.server.offered):
            raise MethodNotFound(f"The tool {tool.name!r} does not run as a task; leave task out.")
        return ""
    if is_asked_for or knows_tasks(incoming):
        return "task"
    if tool.handle:
        return "handle"
    if tool.task == "optional":
        return ""
    if incoming.revision.tasks:
        raise MethodNotFound(f"The tool {tool.name!r} runs as a task alone; send params.task.")
    raise MissingCapability(
        f"The tool {tool.name!r} runs as a task alone, and needs a client with {TASKS}.",
        data={"requiredCapabilities": required_extension(TASKS)},
    )


def support_of(tool: Tool) -> str:
    """What 2025-11-25 lists: a tool that gives handles can be called without a task too."""
    return "optional" if tool.handle else tool.task
