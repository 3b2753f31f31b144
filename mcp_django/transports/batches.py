"""Batches: several JSON-RPC messages in one request or one line (2025-03-26).

All requests of a batch are admitted before one of them runs: first those that run functions, whose
uses are counted together, then the others. Before a call begins, its permission is checked again
(``execution.invoke``). The transports differ in how they reject and send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from mcp_django.exceptions import (
    AccessRefused,
    InsufficientScope,
    InvalidRequest,
    MCPError,
    TooManyRequests,
)
from mcp_django.execution import call_log, quotas
from mcp_django.execution.call import Call
from mcp_django.execution.handlers.session import authorize_subscription
from mcp_django.execution.pipeline import WORK_METHODS, Opened
from mcp_django.execution.quotas import UsageBatch
from mcp_django.execution.results import encode_response
from mcp_django.protocol.jsonrpc import Request

OpenRequest = Callable[[Request, UsageBatch | None], Opened]
"""Admits a request; its uses are added to the ``UsageBatch`` instead of being counted.

It raises an ``MCPError`` or ``AccessRefused`` if the request is rejected.
"""


class BatchAdmission:
    """Admits the requests of one batch, which are given by their position in it.

    ``call_for`` builds the call of a request without admitting it.
    """

    def __init__(
        self,
        requests: Mapping[int, Request],
        open_request: OpenRequest,
        call_for: Callable[[Request], Call],
    ) -> None:
        self._requests = requests
        self._open_request = open_request
        self._call_for = call_for
        self._usage_batch = UsageBatch()
        self.outcomes: dict[int, Opened | Exception] = {}
        """The outcome of each request so far: its response, its call, or why it was rejected."""

    def admit(self, *, is_whole: bool = False) -> None:
        """Admit all requests, first those that run functions, or none of them.

        If the caller may not send a request, the error is the outcome of the request; with
        ``is_whole``, the whole batch is rejected.

        Raises:
            AccessRefused: the whole batch is rejected; the error names the scopes of every rejected
                member.
            TooManyRequests: the requests exceed a rate, so none may run; the outcomes have the
                error, too.
        """
        for index, request in self._requests.items():
            if request.method in WORK_METHODS:
                self._open(index, request, self._usage_batch)
        refusals = self._refusals() if is_whole else []
        if refusals:
            self._reject(refusals[0])
            # Missing authentication precedes missing scopes.
            refusal = next(
                (exc for exc in refusals if not isinstance(exc, InsufficientScope)), refusals[0]
            )
            refusal.scopes = tuple(dict.fromkeys(scope for exc in refusals for scope in exc.scopes))
            raise refusal
        try:
            self._usage_batch.consume()
        except TooManyRequests as exc:
            self._limit(exc)
            raise
        for index, request in self._requests.items():
            if index not in self.outcomes:
                self._open(index, request, None)

    def _refusals(self) -> list[AccessRefused]:
        """Return the errors of requests that the caller may not send, including subscriptions."""
        refusals = []
        for index, request in self._requests.items():
            outcome = self.outcomes.get(index)
            if isinstance(outcome, AccessRefused):
                refusals.append(outcome)
            elif request.method == "resources/subscribe":
                # The subscription itself is made later, if no member is rejected.
                try:
                    with suppress(MCPError):
                        authorize_subscription(self._call_for(request))
                except AccessRefused as exc:
                    refusals.append(exc)
        return refusals

    def _reject(self, exc: Exception) -> None:
        """Log the admitted calls as rejected: they do not run because of other members."""
        for outcome in self.outcomes.values():
            if isinstance(outcome, Call):
                call_log.end_rejected_with_span(outcome.record, exc)

    def _limit(self, exc: TooManyRequests) -> None:
        """Make the exceeded rate the outcome of all requests that have no error of their own."""
        self._reject(exc)
        for index, request in self._requests.items():
            outcome = self.outcomes.get(index)
            if isinstance(outcome, Exception):
                continue
            result = quotas.limited_tool_result(request, exc)
            if result is None:
                self.outcomes[index] = exc
            else:
                call = outcome if isinstance(outcome, Call) else self._call_for(request)
                self.outcomes[index] = encode_response(call, result)

    def _open(self, index: int, request: Request, usage_batch: UsageBatch | None) -> None:
        try:
            if request.method == "initialize":
                raise InvalidRequest("initialize must not be part of a batch.")
            opened: Opened | Exception = self._open_request(request, usage_batch)
        except (AccessRefused, MCPError) as exc:
            opened = exc
        if isinstance(opened, Call):
            # No revision has both batches and tasks.
            assert opened.result is None
            # Members wait for each other.
            opened.asks_again = True
        self.outcomes[index] = opened
