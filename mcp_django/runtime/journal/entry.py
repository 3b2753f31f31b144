"""``Entry``: one use of a component, from the request to its line in the call log.

It refers to nothing that refers to it, so an entry whose call was given up by whoever was to run it
is told of at once, when it is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.errors import clip
from mcp_django.runtime.journal import outcomes
from mcp_django.runtime.journal.outcomes import Meaning
from mcp_django.schema.arguments import Problem, UnknownName
from mcp_django.schema.secrets import without_secrets

if TYPE_CHECKING:
    from mcp_django.runtime.governor.spending import Spending
    from mcp_django.runtime.incoming import Incoming
    from mcp_django.runtime.telemetry import Operation

KINDS = {"tools/call": "tool", "resources/read": "resource", "prompts/get": "prompt"}
"""The methods that use a component, and the kind of it where it is not known."""

MAX_PROBLEMS = 20
MAX_PATH = 120


class Entry:
    """What becomes known of one use of a component; without ``open`` there is none to keep."""

    # A request makes one whatever its method is, so there is little to set.
    __slots__ = (
        "_clock",
        "_ends",
        "_spent",
        "at",
        "cause",
        "component",
        "envelope",
        "given",
        "kind",
        "mark",
        "name",
        "operation",
        "origin",
        "pk",
        "principal",
        "problems",
        "server",
        "session",
        "size",
        "spending",
        "transport",
        "uri",
        "was_asked",
    )

    kind: str
    at: datetime
    server: Any
    principal: Principal
    envelope: Envelope
    session: str
    origin: tuple[str, str]
    transport: str

    def __init__(self) -> None:
        self._ends: list[None] = []
        self.operation: Operation | None = None

    @property
    def is_open(self) -> bool:
        """Whether a line is to be written, and is not."""
        return bool(self._ends)

    @property
    def is_over(self) -> bool:
        """Whether there was one, which somebody has written."""
        return not self._ends and hasattr(self, "kind")

    # What the request says ----------------------------------------------------------------------

    def open(self, incoming: Incoming) -> None:
        """Begin, if the request is for a component and calls are logged."""
        kind = KINDS.get(incoming.request.method)
        if kind is None or not get_settings().log_calls:
            return
        self.kind = kind
        self.at = timezone.now()
        self._clock: float | None = time.perf_counter()
        self._spent = 0.0
        self.server = incoming.server
        self.principal = incoming.principal
        self.envelope = incoming.envelope
        row = getattr(incoming.session, "row", None)
        self.session = row.digest if row is not None else ""
        self.origin = (incoming.origin, incoming.acting)
        self.transport = incoming.transport
        self.component: Component | None = None
        self.name = self.uri = ""
        self.given: bytes | Mapping[str, Any] = {}
        self.problems: list[str] = []
        self.mark: Meaning | None = None
        self.cause: Meaning | None = None
        self.spending: Spending | None = None
        self.pk: int | None = None
        self.size: int | None = None
        self.was_asked = False
        # Taken by whoever ends it: several threads may want to.
        self._ends.append(None)

    def forget(self) -> None:
        """Keep nothing: the request begins again elsewhere."""
        self._ends.clear()

    # What its handler finds ---------------------------------------------------------------------

    def wants(self, name: str) -> None:
        """Somebody asks for this, which may be nothing."""
        if self._ends:
            self.name = name
            self.mark = Meaning("unknown")

    def found(self, component: Component, *, uri: str = "") -> None:
        """There is such a component, whatever the caller is told."""
        if self.operation is not None:
            self.operation.found(component, uri)
        if self._ends:
            self.component = component
            self.uri = uri

    def hidden_by(self, guard: object) -> None:
        """The caller is told that there is none; its owner may know why."""
        if self._ends:
            self.mark = Meaning("unknown", None, f"hidden by {guard}")

    def admitted(self, given: bytes | Mapping[str, Any]) -> None:
        """The caller may, with these arguments."""
        if self.operation is not None:
            self.operation.admitted(given)
        if self._ends:
            self.mark = None
            self.given = given

    def wrong(self, problems: Iterable[Problem]) -> None:
        """The arguments do not fit."""
        if self._ends:
            self.mark = Meaning("invalid")
            self.problems = [
                clip(without_secrets(_place(one)), limit=MAX_PATH)
                for one in islice(problems, MAX_PROBLEMS)
            ]

    def refuse(self, outcome: str, reason: str = "") -> None:
        """It does not run, for a reason that its answer does not tell by its code.

        ``outcome`` is one of ``Call.Outcome``: ``limited``, ``denied``, ``refused``.
        """
        if self._ends:
            self.mark = Meaning(outcome, None, reason)

    # What comes of it ---------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """Whether it may change something: then a line is written before it does."""
        return isinstance(self.component, Tool) and not self.component.read_only

    def governed_by(self, spending: Spending) -> None:
        """What it reads is counted there."""
        if self._ends:
            self.spending = spending

    def failed(self, exc: Exception) -> None:
        """The component's function raised this; what is made of it is not known yet."""
        if self.operation is not None:
            self.operation.failed(exc)
        if self._ends:
            self.cause = outcomes.failure(exc)

    def resume(self) -> None:
        """It runs, or goes on with the answers of its client."""
        if self._clock is None:
            self._clock = time.perf_counter()

    def pause(self) -> None:
        """It waits for its client, which is no time of ours."""
        self._spent += self._since()
        self._clock = None
        self.was_asked = True

    @property
    def ms(self) -> float:
        """How long it has run."""
        return round((self._spent + self._since()) * 1000, 3)

    def _since(self) -> float:
        return 0.0 if self._clock is None else time.perf_counter() - self._clock

    def take_end(self) -> bool:
        """Whether it is upon this caller to write the line, and nobody else."""
        try:
            self._ends.pop()
        except IndexError:
            return False
        return True

    def __del__(self) -> None:
        if self._ends:
            # Who would do it now cannot be asked what happened.
            from mcp_django.runtime.journal.keeping import given_up

            given_up(self)


def _place(problem: Problem) -> str:
    if not isinstance(problem, UnknownName):
        return problem.path
    return f"{problem.path}.{problem.name}" if problem.path else problem.name
