"""The options of ``@mcp.tool``, ``@mcp.resource`` and ``@mcp.prompt``, each written here once.

Type checkers read them with ``Unpack`` (PEP 692), ``declare`` checks their names, and the table of
the reference is made from them (``python -m docs.options``). Their defaults are those of the fields
of ``Component`` and its classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypedDict

from mcp_django.components.tool import UI, ApprovalMode, TaskAsking, TaskSupport
from mcp_django.protocol.content import Annotations, Icon


class ComponentOptions(TypedDict, total=False):
    """The options of every component."""

    name: str | None
    """Instead of the function's name; also positional in ``tool`` and ``prompt``."""
    aliases: Sequence[str]
    """Former names, or URIs of a resource, that can still be called but are not listed."""
    title: str
    """The display name."""
    description: str
    """Instead of the docstring."""
    icons: Sequence[Icon]
    """``Icon`` objects."""
    meta: Mapping[str, Any] | None
    """Sent as ``_meta``; keys that the protocol reserves are rejected."""
    permission: Any
    """A permission or a list of them; the component is hidden from callers who lack one."""
    scopes: Sequence[str]
    """Scopes that a credential needs."""
    needs: Sequence[str]
    """Client capabilities that are required before the function runs: ``elicitation``,
    ``elicitation.url``, ``sampling``, ``sampling.tools``, ``roots``."""
    atomic: bool | None
    """``True`` runs the function in a transaction, ``False`` does not; default:
    ``ATOMIC_REQUESTS``, and a transaction for a synchronous function that sends client requests."""
    timeout: float | None
    """The timeout of a call in seconds; default: ``CALL_TIMEOUT``."""
    rate: str | Sequence[str]
    """One or several rate limits, such as ``"100/h"``."""
    log_arguments: bool | None
    """Whether the call log records the values of its arguments; default: as for its server."""
    sensitive: Sequence[str]
    """The arguments whose values the call log never records."""
    slow: bool
    """``True`` answers with a stream, whose comments keep connections through proxies open."""
    read_only: bool | None
    """The function changes nothing: enforced, and for a tool also sent as a hint."""
    enforce: bool
    """``False`` disables the enforcement of ``read_only`` and its query limits."""


class ToolOptions(ComponentOptions, total=False):
    """The options of a tool."""

    approval: ApprovalMode
    """Who approves each call: ``"caller"`` or ``"staff"``."""
    task: TaskSupport
    """Whether a call continues as a task: ``"optional"`` or ``"required"``."""
    ask: TaskAsking
    """When a task sends client requests: ``"during"`` the task (the default), or ``"before"``, up
    to ``ctx.task.begin()``."""
    polling_fallback: bool
    """``True`` gives clients without tasks a handle, which the tool ``get_result`` accepts."""
    task_ttl: float | None
    """How long a task may run and is kept, in seconds; default: ``TASK_TTL``."""
    ui: UI | str | None
    """The Django template of an MCP App that shows the result, or ``UI(…)``."""
    destructive: bool | None
    """Hint: it can delete or overwrite data."""
    idempotent: bool | None
    """Hint: a second call with the same arguments has no further effect."""
    open_world: bool | None
    """Hint: it accesses systems outside the site."""
    input_schema: Mapping[str, Any] | None
    """A hand-written JSON Schema of the arguments."""
    form: type[Any] | None
    """A Django form class that describes and validates the arguments."""
    serializer: type[Any] | None
    """A REST framework serializer class that describes and validates the arguments."""
    output_schema: Mapping[str, Any] | None
    """A JSON Schema of the structured content."""
    strict_schema: bool
    """Publishes the strict dialect of schemas."""


class ResourceOptions(ComponentOptions, total=False):
    """The options of a resource or a resource template, whose URI is positional."""

    mime_type: str | None
    """The MIME type of the contents."""
    size: int | None
    """The size of a fixed resource in bytes."""
    annotations: Annotations | None
    """``Annotations``: the audience and the priority."""
    subscribe: bool
    """``False`` excludes it from subscriptions."""
    cache_ttl: timedelta
    """How long clients may cache it, a ``timedelta``."""
    cache_public: bool
    """``True`` allows shared caches to store it, unless it has access restrictions."""


class PromptOptions(ComponentOptions, total=False):
    """The options of a prompt."""

    template: str | None
    """A Django template that renders the message."""
