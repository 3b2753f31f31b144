"""Tools: functions that a model may call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.component import Component
from mcp_django.components.ui import UI
from mcp_django.protocol.headers import HeaderParameter, header_parameters
from mcp_django.schema.arguments import ArgumentSource
from mcp_django.schema.output import OutputAdapter

# TOOL-12: the specification's own alphabet and length.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
Approval = Literal["", "caller", "staff"]
TaskSupport = Literal["", "optional", "required"]
TaskAsking = Literal["before", "during"]


class DryRun(Protocol):
    """How a tool is called so that it changes nothing, in terms of its read arguments."""

    def is_one(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these changes nothing."""

    def of(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of the same call that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Component):
    """A tool. The four hints are published only when the author set them (TOOL-16).

    With ``approval`` each call waits for a person: the ``"caller"``, or one of the ``"staff"``. A
    ``dry_run`` needs none, and shows that person what the call would do. Its ``ui`` is what a host
    with MCP Apps shows its results in.

    With ``task`` a call may (``"optional"``) or has to (``"required"``) go on after its request,
    for ``task_ttl`` seconds at most. It asks its questions ``"before"`` the task begins, which is
    at ``ctx.task.begin()``, or ``"during"`` it. With ``handle`` clients without tasks get a handle
    at once, for the tool ``get_result``; so what it returns has no published schema.
    """

    kind: ClassVar[str] = "tool"

    arguments: ArgumentSource
    output: OutputAdapter | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    mirrored: tuple[HeaderParameter, ...] = ()
    approval: Approval = ""
    dry_run: DryRun | None = None
    task: TaskSupport = ""
    ask: TaskAsking = "during"
    handle: bool = False
    task_ttl: float | None = None
    ui: UI | None = None

    def __post_init__(self) -> None:
        super(Tool, self).__post_init__()
        if not NAME.fullmatch(self.name):
            raise ImproperlyConfigured(
                f"{self.name!r} is no tool name: use 1 to 128 of A-Z a-z 0-9 _ - . "
                "(pass name=… to the decorator)."
            )
        for alias in self.aliases:
            self.require(
                bool(NAME.fullmatch(alias)),
                f"aliases has {alias!r}, which is no tool name: use 1 to 128 of A-Z a-z 0-9 _ - .",
            )
        for hint, value in self.hints.items():
            self.require(isinstance(value, bool), f"{hint} is {value!r}; write True or False.")
        self.require(
            not (self.read_only and self.destructive),
            "read_only and destructive exclude each other; keep one.",
        )
        self.require(
            self.approval in get_args(Approval),
            f"approval is {self.approval!r}; write 'caller' or 'staff'.",
        )
        self._check_task()
        try:
            mirrored = header_parameters(self.arguments.json_schema)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{self}: {exc}") from None
        object.__setattr__(self, "mirrored", mirrored)

    def _check_task(self) -> None:
        for option, value, kinds in (
            ("task", self.task, TaskSupport),
            ("ask", self.ask, TaskAsking),
        ):
            words = [repr(one) for one in get_args(kinds) if one]
            self.require(
                value in get_args(kinds), f"{option} is {value!r}; write {' or '.join(words)}."
            )
        self.require(
            isinstance(self.handle, bool), f"handle is {self.handle!r}; write True or False."
        )
        self.require(
            bool(self.task) or (self.ask == "during" and not self.handle and self.task_ttl is None),
            "ask, handle and task_ttl are for tools that run as tasks; add task='optional'.",
        )
        self.require(
            self.task_ttl is None or self.task_ttl > 0,
            f"task_ttl={self.task_ttl} leaves no time; give seconds, or leave it out.",
        )
        self.require(
            self.ask != "before" or self.function.context_parameter is not None,
            "ask='before' needs a parameter ctx: Context, for ctx.task.begin().",
        )

    @property
    def hints(self) -> dict[str, bool]:
        """The annotations of the specification that the author set."""
        hints = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }
        return {name: value for name, value in hints.items() if value is not None}
