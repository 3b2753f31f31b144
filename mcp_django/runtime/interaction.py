"""``Interaction``: the questions of one call, over as many rounds as they take.

In each round the component runs from its beginning. Its questions are numbered in the order in
which it asks them; an answer is used for the question of the same number and the same digest.
Where a question has changed since, what was answered after it was answered to something else, so
those are asked again too. MCP 2026-07-28, "Multi round-trip requests".
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import msgspec

from mcp_django.auth.pages import new_interaction
from mcp_django.core.component import Component
from mcp_django.core.context import ClientPort
from mcp_django.core.questions import MalformedAnswer, Question, Unfinished, UnfitAnswer
from mcp_django.exceptions import (
    ElicitationDeclined,
    InputRequired,
    InvalidParams,
    ToolError,
)
from mcp_django.protocol.jsonrpc import encode
from mcp_django.runtime.askable import Askable
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.input_responses import (
    RoundParams,
    Unanswered,
    check_refusal,
    read_response,
)
from mcp_django.runtime.page_errors import pages_to_visit
from mcp_django.runtime.replay import ReplayPort
from mcp_django.runtime.request_state import (
    Answered,
    Asked,
    RequestState,
    key_for,
    read_state,
    subject_of,
)

# A user corrects a form a few times; clients give up after ten rounds and say less about it.
MAX_CORRECTIONS = 5
# Of one round. Hosts show them one after the other.
MAX_QUESTIONS = 32


class Interaction:
    """What a call has been told so far, and what it asks now."""

    def __init__(
        self, incoming: Incoming, component: Component, arguments: bytes, given: RoundParams
    ) -> None:
        self._incoming = incoming
        self._component = component
        self._client = Askable(incoming, component)
        if not incoming.revision.stateless:
            # Members of these names mean nothing there: answers come as messages of their own.
            given = RoundParams()
        self._arguments = arguments
        self._responses = given.input_responses or {}
        self._lock = threading.Lock()
        self._position = self._before = 0
        self._requests: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, Asked] = {}
        self._state: RequestState | None = None
        self._is_first, self._begins = given.request_state is None, False
        if given.request_state is not None:
            self._state = read_state(given.request_state, subject=self._subject)
        self._answered = dict(self._state.answered) if self._state else {}
        self._port: ReplayPort | None = None
        self._client.require(component.needs)

    # What a component sees --------------------------------------------------------------------

    @property
    def interaction_id(self) -> str:
        """The same in every round."""
        return self._known.interaction_id

    @property
    def is_continued(self) -> bool:
        """Whether the request goes on with an earlier one, whose signed state it brought."""
        return not self._is_first

    def supports(self, name: str) -> bool:
        """Whether the client declared that it can be asked for this, and there is a way to."""
        return self._client.supports(name)

    def ask(self, questions: Sequence[Question]) -> tuple[Any, ...]:
        """The answers, in order.

        Raises:
            InputRequired: one of them is still to be answered.
            MissingCapability: the client did not declare what they need.
            ElicitationDeclined: the user does not want to answer.
            InvalidParams: an answer is none.
        """
        with self._lock:
            first, self._position = self._position, self._position + len(questions)
        numbered = list(enumerate(questions, start=first))
        given = {n: self._recorded(n, one) for n, one in numbered}
        settled = {n for n, one in numbered if given[n] is None and one.is_settled}
        left = [one for n, one in numbered if n not in settled]
        self._client.require([one.needs for one in left])
        self._client.check_words(left)
        # A refusal of one of them ends it here, before any of them is put.
        answers = [None if n in settled else self._answer(n, one, given[n]) for n, one in numbered]
        for n, answer in enumerate(answers):
            if isinstance(answer, Unanswered):
                self._put(first + n, questions[n], answer.params)
        if self._requests:
            if self._incoming.revision.stateless:
                # Signed now, so that what cannot be sent fails where it was asked.
                self._sign()
            raise InputRequired
        return tuple(answers)

    def pass_gate(self) -> None:
        """Take what was asked so far for the gate's questions, which no run of a task asks."""
        self._before = self._position

    def begin(self) -> NoReturn:
        """Leave the function; it goes on as a task.

        Raises:
            InputRequired: always.
        """
        self._begins = True
        raise InputRequired

    # Answers ----------------------------------------------------------------------------------

    def _answer(self, position: int, question: Question, answer: Mapping[str, Any] | None) -> Any:
        if answer is None:
            return Unanswered(question.to_params())
        try:
            check_refusal(question.method, answer)
            value = question.read(answer)
        except (ElicitationDeclined, ToolError):
            # A component that goes on without it is not to hear the question again.
            self._answered[position] = Answered(question.digest, answer)
            raise
        except MalformedAnswer as exc:
            return self._malformed(question, exc)
        except UnfitAnswer as exc:
            # It may have been fit in an earlier round.
            self._answered.pop(position, None)
            if not isinstance(exc, Unfinished):
                self._count_correction(str(exc))
            return Unanswered(question.corrected(str(exc)))
        self._answered[position] = Answered(question.digest, answer)
        return value

    def _malformed(self, question: Question, exc: MalformedAnswer) -> Any:
        place = "params.inputResponses" if self._incoming.revision.stateless else "result"
        problem = f"{place}: what came is no answer to {question.method}: {exc}."
        raise InvalidParams(problem) from exc

    def _recorded(self, position: int, question: Question) -> Mapping[str, Any] | None:
        recorded = self._answered.get(position)
        if recorded is not None and recorded.digest == question.digest:
            return recorded.answer
        if self._was_another(position, question):
            self._forget_from(position)
        for key in self._keys(position, question):
            if key in self._responses:
                return read_response(key, self._responses[key])
        return None

    def _was_another(self, position: int, question: Question) -> bool:
        """Whether another question had this number before, answered or still open."""
        open_ones = self._known.asked.values()
        digests = {one.digest for one in open_ones if one.position == position}
        if position in self._answered:
            digests.add(self._answered[position].digest)
        return not digests <= {question.digest}

    def _keys(self, position: int, question: Question) -> list[str]:
        """The keys under which an answer to this question may have come."""
        if self._is_first:
            # A client that was asked nothing here may know the question all the same.
            return [key_for(position, question)]
        asked = Asked(position, question.digest)
        return [key for key, one in self._known.asked.items() if one == asked]

    def _forget_from(self, position: int) -> None:
        self._answered = {n: one for n, one in self._answered.items() if n < position}
        if self._state is not None:
            still = {k: one for k, one in self._state.asked.items() if one.position < position}
            self._state = replace(self._state, asked=still)

    # Questions --------------------------------------------------------------------------------

    def _count_correction(self, problem: str) -> None:
        corrections = self._known.corrections + 1
        if corrections > MAX_CORRECTIONS:
            raise ToolError(f"The answers did not fit, {MAX_CORRECTIONS} times: {problem}")
        self._state = replace(self._known, corrections=corrections)

    def _put(self, position: int, question: Question, params: dict[str, Any]) -> None:
        key = key_for(position, question)
        if key in self._requests:
            raise ValueError(f"Two questions have the key {key!r}; give each its own.")
        if len(self._requests) >= MAX_QUESTIONS:
            raise ValueError(f"More than {MAX_QUESTIONS} questions in one round; ask fewer.")
        self._requests[key] = {"method": question.method, "params": params}
        self._asked[key] = Asked(position, question.digest)

    @property
    def is_asking(self) -> bool:
        """Whether there is something to leave the component for, whatever it made of that."""
        return bool(self._requests) or self._begins

    @property
    def begins(self) -> bool:
        """Whether the component is to go on as a task, and nothing is left to ask before."""
        return self._begins and not self._requests

    def state(self) -> bytes:
        """How far it has come, for a row of ours."""
        return encode(self._next_state().beyond(self._before))

    def result(self) -> dict[str, Any]:
        """The questions as the result of the request.

        Raises:
            URLElicitationRequired: the client can be told of pages in this way alone.
        """
        if not self._client.has_channel:
            raise pages_to_visit(self._requests, self._incoming.revision, self.elicitation_id)
        asking = {"resultType": "input_required", "inputRequests": self._requests}
        if self._incoming.revision.stateless:
            asking["requestState"] = self._sign()
        return asking

    def elicitation_id(self, key: str) -> str:
        """The id of one question that sends the user to a page (ASK-13)."""
        return f"{self.interaction_id}.{key}"

    def resume(self, answers: Mapping[str, Any]) -> None:
        """Begin another round in this same process, with what the client answered by key."""
        self._state = self._next_state()
        self._is_first = self._begins = False
        self._responses = {key: msgspec.Raw(encode(answer)) for key, answer in answers.items()}
        self._position = 0
        self._requests, self._asked = {}, {}

    def _sign(self) -> str:
        return self._next_state().sign()

    def _next_state(self) -> RequestState:
        known = self._known
        port = self._port
        return replace(
            known,
            answered=self._answered,
            asked=self._asked,
            progress=port.progress_count if port else known.progress,
            logs=port.log_count if port else known.logs,
        )

    # State ------------------------------------------------------------------------------------

    @property
    def _known(self) -> RequestState:
        """The state that came, or that of a beginning."""
        with self._lock:
            # Two threads that want to know the id get the same one.
            if self._state is None:
                self._state = RequestState(
                    subject=self._subject, interaction_id=new_interaction(self._incoming.principal)
                )
            return self._state

    @property
    def _subject(self) -> str:
        """What a state is bound to (MRT-5)."""
        return subject_of(self._incoming, self._component, self._arguments)

    def listen_through(self, port: ClientPort | None) -> ClientPort | None:
        """The client's port, without what earlier rounds have sent already."""
        if port is None:
            return None
        envelope = self._incoming.envelope
        self._port = ReplayPort(
            port,
            progress=self._state.progress if self._state else 0,
            logs=self._state.logs if self._state else 0,
            hears_progress=envelope.progress_token is not None,
            hears_logs=envelope.log_level is not None,
        )
        return self._port
