"""``inputResponses``: what a client answers, read no sooner and no further than it is needed.

Answers under other keys are never looked at, so they cost what their bytes cost and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.protocol.errors import clip
from mcp_django.schema.values import MAX_DEPTH, is_too_deep


class RoundParams(msgspec.Struct, rename="camel", kw_only=True):
    """The parameters that a retry has in addition; answers stay raw until a question needs them."""

    input_responses: dict[str, msgspec.Raw] | None = None
    request_state: str | None = None

    @property
    def is_retry(self) -> bool:
        """Whether the request goes on with an earlier one."""
        return bool(self.input_responses) or self.request_state is not None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Stands where an answer is still to come; ``params`` are those of the request for it."""

    params: dict[str, Any]


def check_refusal(method: str, answer: Mapping[str, Any]) -> None:
    """A client of a handshake revision may answer a question with an error.

    Raises:
        ToolError: it did.
    """
    error = answer.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        raise ToolError(f"{method} was refused: {str(error.get('message'))[:200]}")


def read_response(key: str, raw: msgspec.Raw) -> dict[str, Any]:
    """One answer, as plain JSON values.

    Raises:
        InvalidParams: it is no object, or one that would cost more than it says.
    """
    place, text = f"params.inputResponses[{clip(key)!r}]", bytes(raw)
    try:
        answer = msgspec.json.decode(text)
    except msgspec.MsgspecError as exc:
        raise InvalidParams(f"{place} cannot be read: {clip(exc)}.") from None
    except RecursionError:
        raise InvalidParams(f"{place} is nested too deep.") from None
    if is_too_deep(text, answer):
        raise InvalidParams(f"{place} is nested deeper than {MAX_DEPTH} levels.")
    if not isinstance(answer, dict):
        raise InvalidParams(f"{place} must be an object.")
    return answer
