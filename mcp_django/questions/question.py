"""What all questions have in common."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from mcp_django.protocol.jsonrpc import encode


class UnfitAnswer(Exception):
    """The answer came from the user and has to be corrected by the user; the text says how."""


class Unfinished(UnfitAnswer):
    """The user agreed and is not done; nobody is at fault, so it is asked as often as it takes."""


class MalformedAnswer(Exception):
    """The answer is no answer to such a question: the client's fault, not the user's."""


class Question(ABC):
    """One question to the client or its user.

    ``key`` is the question's name on the wire; without one it gets a name of its own. Equal
    questions have equal digests, which is how an answer is matched to its question again.
    """

    method: ClassVar[str]
    needs: str
    """The capability that the client has to declare, as ``ctx.supports`` names it."""
    uses_database: bool = False
    """Whether reading an answer may query."""

    def __init__(self, *, key: str | None = None) -> None:
        if key is not None and not 0 < len(key) <= 128:
            raise ValueError(f"key={key!r}; a question's key has 1 to 128 characters.")
        self.key = key

    @abstractmethod
    def to_params(self) -> dict[str, Any]:
        """The parameters of the request, in the richest wire shape."""

    def corrected(self, problem: str) -> dict[str, Any]:
        """The parameters when it is asked again, because of this problem with the answer."""
        return self.to_params()

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to ask, although nobody has answered."""
        return False

    @abstractmethod
    def read(self, answer: Mapping[str, Any]) -> Any:
        """The value that the client's answer stands for.

        Raises:
            UnfitAnswer: the user has to be asked again.
            MalformedAnswer: it is no answer at all.
            ElicitationDeclined: the user does not want to answer.
        """

    @cached_property
    def digest(self) -> str:
        """What tells this question from every other: 128 bits of its method and parameters."""
        asked = encode([self.method, self.to_params()])
        return hashlib.sha256(asked).hexdigest()[:32]
