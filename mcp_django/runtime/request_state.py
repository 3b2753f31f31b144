"""``requestState``: what a question has to come back with, since nothing is kept here (MRT-4…7).

It travels through the client, so it is signed, dated and bound to the request that it belongs to:
caller, server, method, component and arguments. It is not encrypted; it holds nothing but digests
and what the client itself has answered before. Keys rotate with ``SECRET_KEY_FALLBACKS``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
from django.core import signing

from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.core.questions import Question
from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.protocol.jsonrpc import encode
from mcp_django.runtime.incoming import Incoming

SALT = "mcp_django.request_state"
FORMAT = 1
# Answers of earlier rounds are in it. Counted before it is compressed: answers that repeat
# themselves shrink to a thousandth, and every later request would make megabytes of them again.
MAX_BYTES = 1024 * 1024
_AGAIN = "send the same params with it, or call again without it"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was sent to the client and not yet answered."""

    position: int
    digest: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A question that the client has answered, with what it said."""

    digest: str
    answer: Mapping[str, Any]


class _Format(msgspec.Struct):
    """The part of a state that every release can read."""

    format: int


class _Plain:
    """What ``signing`` takes for a serializer: what is signed is bytes already."""

    def dumps(self, obj: bytes) -> bytes:
        return obj

    def loads(self, data: bytes) -> bytes:
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """How far an interaction has come."""

    format: int = FORMAT
    subject: str
    """Digest of what the state is bound to."""
    interaction_id: str
    answered: dict[int, Answered] = field(default_factory=dict)
    """By position: the first question of a run is number 0."""
    asked: dict[str, Asked] = field(default_factory=dict)
    """By key."""
    progress: int = 0
    """Progress reports that the client has got."""
    logs: int = 0
    """Log messages that the client has got."""
    corrections: int = 0
    """Answers that had to be asked again."""

    def beyond(self, first: int) -> RequestState:
        """The state of a run that begins with the question of this number."""
        answered = {n - first: one for n, one in self.answered.items() if n >= first}
        asked = {
            key: Asked(one.position - first, one.digest)
            for key, one in self.asked.items()
            if one.position >= first
        }
        return replace(self, answered=answered, asked=asked)

    def sign(self) -> str:
        """The state as text that only this site can have written.

        Raises:
            ToolError: the answers so far are too large to be sent back and forth.
        """
        plain = encode(self)
        # A client has to send it back together with its arguments, and text grows by a third.
        if len(plain) > min(MAX_BYTES, get_settings().max_body_bytes // 2):
            raise ToolError("The answers so far are too large to ask anything more; ask for less.")
        return signing.dumps(plain, salt=SALT, serializer=_Plain, compress=True)


def key_for(position: int, question: Question) -> str:
    """The author's key, or one that belongs to this question alone."""
    return question.key or f"{question.needs.replace('.', '_')}_{position}_{question.digest[:8]}"


def read_state(signed: str, *, subject: str) -> RequestState:
    """The state that a client has sent back.

    Raises:
        InvalidParams: it was changed, is too old, or belongs to another request.
    """
    seconds = get_settings().question_timeout
    try:
        plain: bytes = signing.loads(
            signed, salt=SALT, serializer=_Plain, max_age=timedelta(seconds=seconds)
        )
    except signing.SignatureExpired:
        raise InvalidParams(
            f"params.requestState is older than {seconds:g} seconds; call again without it."
        ) from None
    except signing.BadSignature:
        raise InvalidParams(
            "params.requestState is not what this server sent; call again without it."
        ) from None
    if msgspec.json.decode(plain, type=_Format).format != FORMAT:
        raise InvalidParams("params.requestState is of another release; call again without it.")
    state = msgspec.json.decode(plain, type=RequestState)
    if state.subject != subject:
        raise InvalidParams(f"params.requestState belongs to another request; {_AGAIN}.")
    return state


def subject_of(incoming: Incoming, component: Component, arguments: bytes) -> str:
    """What a state of this request is bound to."""
    return subject_digest(
        incoming.principal.key,
        incoming.server.name,
        incoming.request.method,
        component.key,
        arguments=arguments,
    )


def subject_digest(*names: str, arguments: bytes) -> str:
    """What a state is bound to, whatever the order in which arguments were written.

    Numbers are taken digit by digit: as floats, two amounts might be one, and some none at all.
    """
    exact = json.loads(arguments, parse_float=Decimal, parse_int=Decimal)
    return hashlib.sha256(repr([*names, _ordered(exact)]).encode()).hexdigest()[:32]


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value
