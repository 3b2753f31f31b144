"""JSON-RPC messages: bytes to messages and back (JSON-RPC 2.0, RFC 8259).

``decode`` is a total function: any bytes give a value, and a ``Failure`` is one of them.
Parameters stay raw JSON until their type is known; ``read_params`` is that step. Where a member
occurs twice in an object, the last one counts, here as everywhere else in the package.

Received messages are values, sent messages are dictionaries. Which message may be sent when, and
at which revision, is decided in ``envelope``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from mcp_django.protocol.errors import (
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    MCPError,
    ParseError,
    clip,
)

# Messages received and sent -----------------------------------------------------------------------

MAX_ID = 16 * 1024
"""Characters of an id that is a string: what a client calls a request is repeated and kept."""

RequestId: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_ID)] | int


class Request(msgspec.Struct, frozen=True):
    """A message that wants an answer; `params` is the raw JSON of an object."""

    id: RequestId
    method: str
    params: bytes = b"{}"


class Notification(msgspec.Struct, frozen=True):
    """A message that never gets an answer."""

    method: str
    params: bytes = b"{}"


class Response(msgspec.Struct, frozen=True):
    """The answer to a request of ours: either `result` or `error`, each the raw JSON of an object.

    The id is `None` only on an error whose sender could not read ours.
    """

    id: RequestId | None
    result: bytes | None = None
    error: bytes | None = None


class Failure(msgspec.Struct, frozen=True):
    """What should have been a message."""

    error: MCPError
    id: RequestId | None = None
    """The id to answer under, if there was one that could be read."""
    silent: bool = False
    """No JSON-RPC answer may follow: it was meant as a notification or as a response."""


class Batch(msgspec.Struct, frozen=True):
    """Several messages in one array, responses only or none at all; broken ones stay in place."""

    members: tuple[Request | Notification | Response | Failure, ...]


Message: TypeAlias = Request | Notification | Response
Decoded: TypeAlias = Message | Batch | Failure


def request_id_of(message: object) -> RequestId | None:
    """Return the id that a refusal of a message repeats: that of a request, a broken one included.

    The id of a response is one of ours, under which nothing is answered.
    """
    return message.id if isinstance(message, Request | Failure) else None


def request(id: RequestId, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a request of the server's own."""
    return {"id": id, **notification(method, params)}


def result_message(id: RequestId, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a successful response."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_message(id: RequestId | None, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error response; without a known id the member is left out (RPC-11)."""
    if id is None:
        return {"jsonrpc": "2.0", "error": error}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


# Decoding and encoding ----------------------------------------------------------------------------

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
    return _diagnose(body)


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
    members = tuple(_decode_typed(raw) or _diagnose(raw) for raw in raws)
    answers = any(isinstance(member, Response) for member in members)
    if answers and any(isinstance(member, Request | Notification) for member in members):
        return Failure(InvalidRequest("A batch holds either responses or requests, not both"))
    return Batch(members)


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


# Diagnosis of unusual messages --------------------------------------------------------------------

# The slow half of ``decode``, for JSON that is not plainly a request or a notification. It reads
# the message member by member to find what is wrong with it, if anything: some of it is legal,
# such as ``"params": null``, ``"id": 1.0`` and every response.

# Between these bounds a JSON number with a fraction or exponent is exactly one integer.
_EXACT_FLOAT = 2**53

_ID = f'"id" must be an integer or a string of at most {MAX_ID} characters'


class _Loose(msgspec.Struct):
    """Any object, with the members that decide what it is."""

    jsonrpc: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class _Error(msgspec.Struct):
    """What an error object has to hold."""

    code: int
    message: str


_loose = msgspec.json.Decoder(_Loose)
_text = msgspec.json.Decoder(str)
_id = msgspec.json.Decoder(str | int | float)
_error = msgspec.json.Decoder(_Error)


def _diagnose(body: bytes) -> Message | Failure:
    """Return the message in one piece of valid JSON, or why there is none."""
    try:
        loose = _loose.decode(body)
    except msgspec.ValidationError:
        return Failure(InvalidRequest("A message is a JSON object"))
    is_answer = bool(bytes(loose.result) or bytes(loose.error))
    if is_answer and not bytes(loose.method):
        return _read_response(loose)
    request_id = _read_id(loose.id)
    if _read_text(loose.jsonrpc) != "2.0":
        return Failure(InvalidRequest('"jsonrpc" must be "2.0"'), request_id)
    if is_answer:
        return Failure(InvalidRequest('"method" excludes "result" and "error"'), request_id)
    method = _read_text(loose.method)
    if method is None:
        return Failure(InvalidRequest('"method" must be a string'), request_id)
    return _read_call(loose, method, request_id)


def _read_call(loose: _Loose, method: str, request_id: RequestId | None) -> Message | Failure:
    has_id = bool(bytes(loose.id))
    if has_id and request_id is None:
        return Failure(InvalidRequest(_ID))
    params = bytes(loose.params)
    if params in (b"", b"null"):
        params = b"{}"
    if request_id is None:
        if params.startswith(b"{"):
            return Notification(method, params)
        return Failure(InvalidRequest('"params" must be an object'), silent=True)
    if params.startswith(b"{"):
        return Request(request_id, method, params)
    return Failure(InvalidEnvelope('"params" must be an object'), request_id)


def _read_response(loose: _Loose) -> Response | Failure:
    result, error = bytes(loose.result), bytes(loose.error)
    request_id = _read_id(loose.id)
    if _read_text(loose.jsonrpc) != "2.0":
        problem = '"jsonrpc" must be "2.0"'
    elif result and error:
        problem = '"result" and "error" exclude each other'
    elif error and not _is_error(error):
        problem = '"error" must be an object with an integer "code" and a string "message"'
    elif result and not result.startswith(b"{"):
        problem = '"result" must be an object'
    elif request_id is None and (result or bytes(loose.id) not in (b"", b"null")):
        problem = _ID
    else:
        return Response(request_id, result or None, error or None)
    return Failure(InvalidRequest(problem), silent=True)


def _read_text(raw: msgspec.Raw) -> str | None:
    try:
        return _text.decode(raw)
    except msgspec.MsgspecError:
        return None


def _read_id(raw: msgspec.Raw) -> RequestId | None:
    try:
        value: str | int | float = _id.decode(raw)
    except msgspec.MsgspecError:
        return None
    if isinstance(value, float):
        # JSON knows one kind of number: 1.0 is the integer 1, as long as that is exact.
        return int(value) if value.is_integer() and abs(value) <= _EXACT_FLOAT else None
    return None if isinstance(value, str) and len(value) > MAX_ID else value


def _is_error(raw: bytes) -> bool:
    try:
        _error.decode(raw)
    except msgspec.MsgspecError:
        return False
    return True
