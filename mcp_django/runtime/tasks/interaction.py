"""The questions of a task: between two runs they wait in its row, and never travel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mcp_django.auth.pages import new_interaction
from mcp_django.core.questions import MalformedAnswer, Question
from mcp_django.core.tool import Tool
from mcp_django.protocol.jsonrpc import encode
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.input_responses import RoundParams, Unanswered
from mcp_django.runtime.interaction import Interaction
from mcp_django.runtime.request_state import RequestState, subject_of


class TaskInteraction(Interaction):
    """What a task has been told in its earlier runs, and what it asks now.

    ``state`` is empty before the first of them, ``answers`` are by the keys of the interaction.
    """

    def __init__(
        self,
        incoming: Incoming,
        tool: Tool,
        arguments: bytes,
        *,
        state: str,
        answers: Mapping[str, Any],
    ) -> None:
        # What is no object is no answer, so its question is asked again.
        responses = {
            key: msgspec.Raw(encode(one)) for key, one in answers.items() if isinstance(one, dict)
        }
        super().__init__(incoming, tool, arguments, RoundParams(input_responses=responses))
        self._is_first = False
        if state:
            self._state = msgspec.json.decode(state, type=RequestState)
        else:
            self._state = RequestState(
                subject=subject_of(incoming, tool, arguments),
                interaction_id=new_interaction(incoming.principal),
            )
        self._answered = dict(self._state.answered)

    @property
    def requests(self) -> Mapping[str, dict[str, Any]]:
        """The questions, by their keys."""
        return self._requests

    def _sign(self) -> str:
        return ""

    def _malformed(self, question: Question, exc: MalformedAnswer) -> Any:
        # Whoever sent it has had his answer long since, and a task does not end of it.
        self._count_correction(str(exc))
        return Unanswered(question.to_params())
