"""Bytes to messages and back (JSON-RPC 2.0, RFC 8259).

`decode` is a total function: any bytes give a value, and a `Failure` is one of them. Parameters
stay raw JSON until somebody knows their type; `read_params` is that step. Where a member occurs
twice in an object, the last one counts, here as everywhere else in the package.
Which message may be sent when, and at which revision, is decided in `envelope`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import msgspec

from mcp_django.protocol.diagnosis import diagnose
from mcp_django.protocol.errors import (
    InvalidParams,
    InvalidRequest,
    ParseError,
    clip,
)
from mcp_django.protocol.messages import (
    Batch,
    Decoded,
    Failure,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    error_message,
    notification,
    request,
    request_id_of,
    result_message,
)

__all__ = [
    "MAX_BATCH",
    "Batch",
    "Decoded",
    "Failure",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "decode",
    "encode",
    "error_message",
    "notification",
    "read_params",
    "request",
    "request_id_of",
    "result_message",
]

T = TypeVar("T")

MAX_BATCH = 100
"""Members of one batch; beyond that the array is refused unread."""

_BOM = b"\xef\xbb\xbf"
_ABSENT = msgspec.Raw()


class _Typed(msgspec.Struct):
    """A well-formed request or notification: what almost every body is."""

    jsonrpc: Literal["2.0"]
    method: str
    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = _ABSENT
    result: msgspec.UnsetType = msgspec.UNSET
    error: msgspec.UnsetType = msgspec.UNSET


# An array of unknown length would cost an object per element, thirty times the size of the body;
# read as a struct, what is beyond its last field is skipped.
_Members = msgspec.defstruct(
    "_Members",
    [(f"member_{i}", msgspec.Raw, _ABSENT) for i in range(MAX_BATCH + 1)],
    array_like=True,
)

_typed = msgspec.json.Decoder(_Typed)
_syntax = msgspec.json.Decoder(msgspec.Raw)
_members = msgspec.json.Decoder(_Members)


def _plain(value: object) -> str | int | float:
    """Return what a subclass of a scalar holds, such as one of Django's safe strings.

    The encoder takes the classes themselves only. What a subclass says of itself is not asked.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(body: bytes) -> Decoded:
    """Return the message in `body`, or why there is none. Never raises."""
    try:
        # Raw parameters are checked for syntax only; broken UTF-8 in them would surface later.
        if not body.isascii():
            body.decode()
        return _decode_valid_utf8(body)
    except UnicodeDecodeError:
        return Failure(ParseError("The message is not valid UTF-8"))
    except RecursionError:
        return Failure(ParseError("The message is nested too deep"))


def _decode_valid_utf8(body: bytes) -> Decoded:
    message = _decode_typed(body)
    if message is not None:
        return message
    if body.startswith(_BOM):
        return Failure(ParseError("The message begins with a byte order mark"))
    try:
        _syntax.decode(body)
    except msgspec.MsgspecError as exc:
        return Failure(ParseError(f"The message is not JSON: {exc}"))
    if body.lstrip().startswith(b"["):
        return _decode_batch(body)
    return diagnose(body)


def _decode_typed(body: bytes) -> Message | None:
    try:
        typed = _typed.decode(body)
    except msgspec.MsgspecError:
        return None
    params = bytes(typed.params) or b"{}"
    if not params.startswith(b"{"):
        return None
    if typed.id is msgspec.UNSET:
        return Notification(typed.method, params)
    return Request(typed.id, typed.method, params)


def _decode_batch(body: bytes) -> Batch | Failure:
    fields = msgspec.structs.astuple(_members.decode(body))
    raws = [raw for raw in map(bytes, fields) if raw]
    if not raws:
        return Failure(InvalidRequest("A batch has at least one message"))
    if len(raws) > MAX_BATCH:
        return Failure(InvalidRequest(f"A batch has at most {MAX_BATCH} messages"))
    members = tuple(_decode_member(raw) for raw in raws)
    answers = any(isinstance(member, Response) for member in members)
    if answers and any(isinstance(member, Request | Notification) for member in members):
        return Failure(InvalidRequest("A batch holds either responses or requests, not both"))
    return Batch(members)


def _decode_member(member: bytes) -> Message | Failure:
    return _decode_typed(member) or diagnose(member)


def read_params(raw: bytes, type: type[T]) -> T:
    """Return parameters as a `msgspec.Struct`; members that it does not name are ignored.

    Raises:
        InvalidParams: saying which member breaks which rule.
    """
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.json.Decoder(type)
    try:
        params: T = decoder.decode(raw)
    except msgspec.ValidationError as exc:
        raise InvalidParams(_explain(exc)) from exc
    except msgspec.MsgspecError as exc:
        raise InvalidParams("params: not JSON") from exc
    except RecursionError as exc:
        raise InvalidParams("params: nested too deep") from exc
    return params


def _explain(exc: msgspec.ValidationError) -> str:
    """Turn "Expected `str`, got `int` - at `$.name`" into "params.name: expected …"."""
    rule, _, path = str(exc).partition(" - at `$")
    return f"params{path.rstrip('`')}: {clip(rule[0].lower() + rule[1:])}"


def encode(message: Any) -> bytes:
    """Return compact JSON.

    Raises:
        ValueError: NaN, infinity, a lone surrogate, an integer of more digits than Python writes,
            or a structure nested too deep.
        TypeError: something that is not a JSON value.
    """
    try:
        body = _encoder.encode(message)
    except RecursionError as exc:
        raise ValueError("The message is nested too deep") from exc
    if b"null" in body:
        _refuse_non_finite(message)
    return body


def _refuse_non_finite(message: Any) -> None:
    # The encoder writes NaN and infinity as null, so only a message with a null can hide one.
    values = [message]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list | tuple):
            values.extend(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
