"""A call that becomes a task, or may: when that happens, and what its client is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import msgspec

from mcp_django.core.context import CurrentTask
from mcp_django.core.tool import Tool
from mcp_django.exceptions import InternalError, InvalidParams, RateLimited, TooManyRequests
from mcp_django.runtime.incoming import Incoming, Invocation
from mcp_django.runtime.interaction import Interaction
from mcp_django.runtime.tasks import describing
from mcp_django.runtime.tasks.choosing import Way, way_of
from mcp_django.runtime.tasks.creating import create_task


class _Wishes(msgspec.Struct):
    """What a client of 2025-11-25 asks of its task; ``ttl`` is in milliseconds."""

    ttl: int | float | None = None


class Beginning(CurrentTask):
    """``ctx.task`` of a call that becomes a task where its function says so."""

    def __init__(self, interaction: Interaction) -> None:
        self._interaction = interaction

    def begin(self) -> None:
        """Leave the function, which goes on as a task.

        Raises:
            InputRequired: always.
        """
        self._interaction.begin()


@dataclass(frozen=True, slots=True, kw_only=True)
class Becoming:
    """How a call becomes a task."""

    incoming: Incoming
    tool: Tool
    way: Way
    ttl: timedelta | None = None

    @property
    def is_promised(self) -> bool:
        """Whether the client asked for a task, and can read nothing else but an error."""
        return self.way == "task" and self.incoming.revision.tasks

    def prepare(
        self, prepared: Callable[[], Invocation | dict[str, Any]], raw: bytes
    ) -> Invocation | dict[str, Any]:
        """The call that becomes one: before its function runs, or where that says so.

        Raises:
            MCPError: it is refused, and its client reads a task or an error.
        """
        if not self.is_promised:
            call = prepared()
            return call if isinstance(call, dict) else self._changed(call, raw)
        try:
            call = prepared()
        except TooManyRequests as exc:
            # As another error it stays one (``THROTTLE_AS``).
            raise RateLimited(exc.message, data=exc.data) from None
        if isinstance(call, dict):
            raise InvalidParams(_text(call))
        call = self._changed(call, raw)
        return replace(call, at_last=True, excuse=partial(_refuse, call.excuse))

    def _changed(self, call: Invocation, raw: bytes) -> Invocation:
        assert call.interaction is not None
        return replace(
            call,
            task=Beginning(call.interaction),
            become=partial(self._become, raw),
            at_once=self.tool.ask == "during",
        )

    def _become(self, raw: bytes, state: bytes) -> dict[str, Any]:
        row = create_task(
            self.incoming,
            self.tool,
            raw,
            state=state,
            ttl=self.ttl,
            by_handle=self.way == "handle",
        )
        if self.way == "handle":
            return describing.handle(row)
        text = f"{self.tool.name} goes on by itself; its result comes later."
        return describing.created(row, text=text if self.is_promised else "")


def _refuse(excuse: Callable[[Exception], dict[str, Any]], exc: Exception) -> NoReturn:
    """The failure of a call before its task began, for a client that reads no result of it."""
    raise InternalError(_text(excuse(exc))) from exc


def _text(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


def becoming_of(incoming: Incoming, tool: Tool, asked_for: msgspec.Raw) -> Becoming | None:
    """How this call becomes a task, ``None`` for one that does not.

    ``asked_for`` is the member ``task`` of its parameters, which means something at 2025-11-25.

    Raises:
        MCPError: the client does not do what the tool declares, or cannot.
    """
    is_asked_for = incoming.revision.tasks and bytes(asked_for) != b"null"
    way = way_of(incoming, tool, is_asked_for=is_asked_for)
    if not way:
        return None
    ttl = _ttl(asked_for) if is_asked_for else None
    return Becoming(incoming=incoming, tool=tool, way=way, ttl=ttl)


def _ttl(asked_for: msgspec.Raw) -> timedelta | None:
    """The lifetime that a client asks for; how long it gets at most is not decided here."""
    try:
        ttl = msgspec.json.decode(asked_for, type=_Wishes).ttl
        if ttl is not None and ttl <= 0:
            raise InvalidParams("params.task.ttl must be more than 0 milliseconds.")
        return None if ttl is None else timedelta(milliseconds=ttl)
    except msgspec.MsgspecError:
        raise InvalidParams("params.task must be an object; its ttl, a number.") from None
    except OverflowError:
        # More than any task gets.
        return timedelta.max
