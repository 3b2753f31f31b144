"""``Operation``: one request while it is served, as a span and a measurement.

It refers to nothing that refers to it, so one that everybody let go of ends itself, as an ``Entry``
of the call log does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from mcp_django.exceptions import MCPError
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import code_in
from mcp_django.protocol.revisions import REVISIONS
from mcp_django.runtime.journal import outcomes
from mcp_django.runtime.telemetry import attributes

if TYPE_CHECKING:
    from mcp_django.core.component import Component
    from mcp_django.runtime.telemetry.otel import Instruments, Span

TOOL_ERROR = "tool_error"
CANCELLED = "cancelled"


class Operation:
    """A request or a notification of a client; ``own`` is said of its span alone."""

    __slots__ = (
        "_began",
        "_component",
        "_ends",
        "_instruments",
        "_measured",
        "_method",
        "cause",
        "logs_arguments",
        "span",
    )

    def __init__(
        self,
        instruments: Instruments,
        method: str,
        common: Mapping[str, str],
        own: Mapping[str, str],
        *,
        trace: Mapping[str, str],
        logs_arguments: bool = False,
    ) -> None:
        self._began = time.perf_counter()
        self._instruments = instruments
        self._method = method
        self._measured = common
        self._component: Component | None = None
        self.logs_arguments = logs_arguments
        self.cause = ""
        self.span: Span = instruments.begin(method, {**common, **own}, received=trace)
        # Taken by whoever ends it: several threads may want to.
        self._ends: list[None] = [None]

    def active(self) -> AbstractContextManager[None]:
        """Make its span the parent of what is begun here."""
        return self.span.active()

    @property
    def trace_id(self) -> str:
        """The trace that it belongs to, or nothing."""
        return self.span.trace_id

    # What becomes known -------------------------------------------------------------------------

    def agreed(self, version: str, session: str = "") -> None:
        """A session has begun with this revision."""
        more = {"mcp.protocol.version": version}
        self._measured = {**self._measured, **more}
        self.span.set({**more, **attributes.identity(None, session)})

    def found(self, component: Component, uri: str) -> None:
        """The request is for this component."""
        self._component = component
        named = attributes.of_component(component)
        if named:
            self._measured = {**self._measured, **named}
        if not self.span.is_recording:
            return
        if named:
            self.span.rename(f"{self._method} {component.key}")
        else:
            logged = self._logs(component)
            named = {"mcp.resource.uri": attributes.uri_of(component, uri, is_logged=logged)}
        self.span.set(named)

    def admitted(self, given: bytes | Mapping[str, Any]) -> None:
        """The caller may, with these arguments."""
        component = self._component
        if component is None or component.kind != "tool" or not self._logs(component):
            return
        if self.span.is_recording:
            shown = attributes.shown_arguments(component, given)
            self.span.set({"gen_ai.tool.call.arguments": jsonrpc.encode(shown).decode()})

    def _logs(self, component: Component) -> bool:
        wanted = component.log_arguments
        return self.logs_arguments if wanted is None else wanted

    # How it ends --------------------------------------------------------------------------------

    def failed(self, exc: Exception) -> None:
        """The component's function raised this; what is made of it is not known yet."""
        self.cause = outcomes.failure(exc).reason

    def returned(self, result: Mapping[str, Any], *, is_stateless: bool = True) -> None:
        """It came to a result; questions of a session are none, the same request goes on."""
        if result.get("resultType") == "input_required" and not is_stateless:
            return
        if result.get("isError"):
            self._end(TOOL_ERROR, self.cause)
        else:
            self._end()

    def raised(self, exc: BaseException) -> None:
        """It came to an error; what that says may have an argument in it, so it is named alone."""
        if isinstance(exc, asyncio.CancelledError):
            self._end(CANCELLED)
            return
        meaning = outcomes.before(exc)
        revision = REVISIONS.get(self._measured.get("mcp.protocol.version", ""))
        known = None if meaning.code is None else str(code_in(revision, meaning.code))
        # Whoever is refused over HTTP gets a status, and no error of JSON-RPC.
        code = known if isinstance(exc, MCPError) else None
        self._end(known or type(exc).__name__, self.cause or meaning.reason, code=code or "")

    def forget(self) -> None:
        """Say nothing of it: the request begins again elsewhere."""
        self._ends.clear()

    def _end(self, error: str = "", description: str = "", *, code: str = "") -> None:
        try:
            self._ends.pop()
        except IndexError:
            return
        found: dict[str, str] = {}
        if error:
            found["error.type"] = error
        if code:
            found["rpc.response.status_code"] = code
        if found:
            self.span.set(found)
        self.span.end(error=error, description=description)
        seconds = time.perf_counter() - self._began
        self._instruments.measure(seconds, {**self._measured, **found}, self.span)

    def __del__(self) -> None:
        # One whose span could not be begun has none.
        if getattr(self, "_ends", None):
            self._end(CANCELLED)

    # What it asks -------------------------------------------------------------------------------

    def ask(self, method: str, request_id: str) -> Question:
        """A question to the client has been sent in its course."""
        kept = ("network.transport", "network.protocol.name", "mcp.protocol.version")
        common = {key: self._measured[key] for key in kept if key in self._measured}
        return Question(self._instruments, self.span, method, request_id, common)


class Question:
    """One request of ours to the client, from when it is sent to its answer."""

    def __init__(
        self,
        instruments: Instruments,
        parent: Span,
        method: str,
        request_id: str,
        common: Mapping[str, str],
    ) -> None:
        self._began = time.perf_counter()
        self._instruments = instruments
        self._measured = {**common, "mcp.method.name": attributes.known(method)}
        own = {**self._measured, **attributes.identity(request_id, "")}
        name = self._measured["mcp.method.name"]
        self._span = instruments.begin(name, own, kind="client", within=parent)

    def carried(self) -> dict[str, str]:
        """What goes into its ``_meta``."""
        return self._span.carried()

    def end(self, error: str = "") -> None:
        """It was answered, or will not be."""
        found = {"error.type": error} if error else {}
        if found:
            self._span.set(found)
        self._span.end(error=error)
        seconds = time.perf_counter() - self._began
        self._instruments.measure(seconds, {**self._measured, **found}, self._span, kind="client")
