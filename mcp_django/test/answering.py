"""What the user of a test answers, as a client would send it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from mcp_django.schema.elicitation import FIELD
from mcp_django.schema.values import jsonable

EVERYTHING: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}
"""The capabilities of a client that can be asked for anything."""


class Reaction(Enum):
    """An answer without content."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


ACCEPT: Final = Reaction.ACCEPT
DECLINE: Final = Reaction.DECLINE
CANCEL: Final = Reaction.CANCEL


def to_answer(request: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """What a client sends for one question, given what the test says about it."""
    method = request["method"]
    if method == "elicitation/create":
        return _elicited(request["params"], given)
    if isinstance(given, Reaction):
        raise AssertionError(f"{given} answers a question to the user, and this is {method}.")
    if isinstance(given, Mapping):
        return dict(given)
    if method == "sampling/createMessage":
        content = {"type": "text", "text": str(given)}
        return {"role": "assistant", "content": content, "model": "test", "stopReason": "endTurn"}
    return {"roots": [{"uri": one} if isinstance(one, str) else one for one in given]}


def _elicited(params: Mapping[str, Any], given: Any) -> dict[str, Any]:
    if isinstance(given, Reaction):
        return {"action": given.value}
    content = jsonable(given)
    fields = params.get("requestedSchema", {}).get("properties", {})
    if not isinstance(content, dict) and list(fields) == [FIELD]:
        content = {FIELD: content}
    return {"action": "accept", "content": content}


def next_round(result: Mapping[str, Any], answers: Sequence[Any]) -> dict[str, Any]:
    """The parameters that the retry has in addition; one answer for each question, in order."""
    requests = result.get("inputRequests", {})
    if len(answers) < len(requests):
        asked = "; ".join(map(_shown, requests.values()))
        raise AssertionError(
            f"It asks {len(requests)} in one round ({asked}) and {len(answers)} answers are left; "
            "give one for each in answers=[…]."
        )
    given = {
        key: to_answer(request, answer)
        for (key, request), answer in zip(requests.items(), answers, strict=False)
    }
    return {"inputResponses": given, "requestState": result.get("requestState")}


def _shown(request: Mapping[str, Any]) -> str:
    return str(request["params"].get("message", request["method"]))
