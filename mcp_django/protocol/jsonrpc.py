"""Decoding and encoding of JSON-RPC messages (JSON-RPC 2.0, RFC 8259).

``decode`` never raises: any bytes give a message or a ``DecodingFailure``. Parameters stay raw JSON
until their type is known; then ``read_params`` decodes them. If a member occurs twice in an object,
the last one counts, as everywhere in the package.

Received messages are structs, sent messages are dictionaries. ``envelope`` checks which messages
are allowed at which revision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec

from mcp_django.protocol.errors import (
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    MCPError,
    ParseError,
)
from mcp_django.protocol.revisions import Revision, error_object
from mcp_django.protocol.text import clip

MAX_ID_LENGTH = 16 * 1024
"""Maximum number of characters of a string id. Ids are repeated in responses and stored."""

RequestId: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_ID_LENGTH)] | int


class Request(msgspec.Struct, frozen=True):
    """A message that expects a response; `params` is the raw JSON of an object."""

    id: RequestId
    method: str
    params: bytes = b"{}"


class Notification(msgspec.Struct, frozen=True):
    """A message that never gets a response."""

    method: str
    params: bytes = b"{}"


class Response(msgspec.Struct, frozen=True):
    """The response to a request from this server: either `result` or `error`.

    Each is the raw JSON of an object. The id is `None` only on an error whose sender could not
    read the id of the request.
    """

    id: RequestId | None
    result: bytes | None = None
    error: bytes | None = None


class DecodingFailure(msgspec.Struct, frozen=True):
    """A message that could not be decoded, with the error to send."""

    error: MCPError
    id: RequestId | None = None
    """The id for the error response, if it could be read."""
    silent: bool = False
    """Send no JSON-RPC response, because the message was a notification or a response."""


class Batch(msgspec.Struct, frozen=True):
    """Several messages in one array: either only responses, or no responses.

    A malformed member is a `DecodingFailure` at its position.
    """

    members: tuple[Request | Notification | Response | DecodingFailure, ...]


Message: TypeAlias = Request | Notification | Response
Decoded: TypeAlias = Message | Batch | DecodingFailure


def request_id_of(message: object) -> RequestId | None:
    """Return the id for an error response to a message: that of a request, even a malformed one.

    A response has the id of a request from this server, and never gets an error response.
    """
    return message.id if isinstance(message, Request | DecodingFailure) else None


def build_request(id: RequestId, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a request from the server to the client."""
    return {"id": id, **build_notification(method, params)}


def build_result(id: RequestId, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a successful response."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def build_error(id: RequestId | None, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error response; `id` is omitted if it is not known."""
    if id is None:
        return {"jsonrpc": "2.0", "error": error}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def build_failure(id: RequestId | None, exc: MCPError, revision: Revision | None) -> dict[str, Any]:
    """Return the error response for an exception, with the code that the revision uses for it."""
    return build_error(id, error_object(exc, revision))


def build_notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


T = TypeVar("T")

MAX_BATCH_MESSAGES = 100
"""Maximum number of messages in a batch; a larger array is rejected before they are decoded."""

_BOM = b"\xef\xbb\xbf"
_ABSENT = msgspec.Raw()


class _PlainMessage(msgspec.Struct):
    """A well-formed request or notification, as almost every body is."""

    jsonrpc: Literal["2.0"]
    method: str
    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = _ABSENT
    result: msgspec.UnsetType = msgspec.UNSET
    error: msgspec.UnsetType = msgspec.UNSET


# Decoding an array of unknown length creates an object per element, thirty times the size of the
# body. A struct skips the elements beyond its last field.
_Members = msgspec.defstruct(
    "_Members",
    [(f"member_{i}", msgspec.Raw, _ABSENT) for i in range(MAX_BATCH_MESSAGES + 1)],
    array_like=True,
)

_plain_decoder = msgspec.json.Decoder(_PlainMessage)
_syntax_decoder = msgspec.json.Decoder(msgspec.Raw)
_batch_decoder = msgspec.json.Decoder(_Members)


def _to_plain_scalar(value: object) -> str | int | float:
    """Return the plain value of an instance of a scalar's subclass, such as Django's `SafeString`.

    The encoder accepts only the exact types. Methods that a subclass overrides are not called.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder = msgspec.json.Encoder(enc_hook=_to_plain_scalar)
encode_id = _encoder.encode
"""Encodes the id of a request."""
RESULT = b'{"jsonrpc":"2.0","id":%b,"result":%b}'
"""A successful response, with its encoded id and result."""
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(body: bytes) -> Decoded:
    """Return the message in `body`, or a `DecodingFailure` with the reason. Never raise."""
    try:
        # msgspec checks only the syntax of raw parameters, not their UTF-8.
        if not body.isascii():
            body.decode()
        try:
            typed = _plain_decoder.decode(body)
        except msgspec.MsgspecError:
            return _decode_other(body)
        params = bytes(typed.params) or b"{}"
        if not params.startswith(b"{"):
            return _decode_other(body)
        if typed.id is msgspec.UNSET:
            return Notification(typed.method, params)
        return Request(typed.id, typed.method, params)
    except UnicodeDecodeError:
        return DecodingFailure(ParseError("The message is not valid UTF-8"))
    except RecursionError:
        return DecodingFailure(ParseError("The message is nested too deep"))


def _decode_other(body: bytes) -> Decoded:
    """Return a message that is not a well-formed request or notification."""
    if body.startswith(_BOM):
        # RFC 8259 section 8.1: "MUST NOT add", but a parser "MAY ignore" it. .NET's UTF8 adds it.
        body = body[len(_BOM) :]
        if not body.startswith(_BOM):
            return decode(body)
    try:
        _syntax_decoder.decode(body)
    except msgspec.MsgspecError as exc:
        return DecodingFailure(ParseError(f"The message is not JSON: {exc}"))
    if not body.lstrip().startswith(b"["):
        return _diagnose(body)
    fields = msgspec.structs.astuple(_batch_decoder.decode(body))
    raws = [raw for raw in map(bytes, fields) if raw]
    if not raws:
        return DecodingFailure(InvalidRequest("A batch must have at least one message"))
    if len(raws) > MAX_BATCH_MESSAGES:
        return DecodingFailure(
            InvalidRequest(f"A batch must have at most {MAX_BATCH_MESSAGES} messages")
        )
    members: list[Message | DecodingFailure] = []
    for raw in raws:
        # An array within a batch is not a batch.
        decoded = decode(raw) if raw.startswith(b"{") else _diagnose(raw)
        assert not isinstance(decoded, Batch)
        members.append(decoded)
    answers = any(isinstance(member, Response) for member in members)
    if answers and any(isinstance(member, Request | Notification) for member in members):
        return DecodingFailure(
            InvalidRequest("A batch must contain either responses or requests, not both")
        )
    return Batch(tuple(members))


def read_params(raw: bytes, type: type[T], *, lenient: bool = False) -> T:
    """Return parameters as a `msgspec.Struct`; members without a field are ignored.

    With `lenient`, as at handshake revisions, an empty array is read as the empty object that the
    field expects, because PHP has one type for both and encodes it as `[]`. A member that is null
    is treated as absent, because serializers write null for members without a value.

    Raises:
        InvalidParams: a member breaks a rule; the message names both.
    """
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.json.Decoder(type)
    try:
        params: T = decoder.decode(raw)
    except msgspec.ValidationError as exc:
        if lenient:
            with suppress(msgspec.MsgspecError, RecursionError):
                meant = _with_objects(raw, msgspec.inspect.type_info(type))
                if meant != raw:
                    return read_params(meant, type)
        # "Expected `str`, got `int` - at `$.name`" becomes "params.name: expected …".
        rule, _, path = str(exc).partition(" - at `$")
        problem = clip(rule[0].lower() + rule[1:])
        raise InvalidParams(f"params{path.rstrip('`')}: {problem}") from exc
    except msgspec.MsgspecError as exc:
        raise InvalidParams("params: not JSON") from exc
    except RecursionError as exc:
        raise InvalidParams("params: nested too deep") from exc
    return params


def is_empty_array(raw: bytes) -> bool:
    """Return whether raw JSON is an array without members."""
    return raw[:1] == b"[" and raw[-1:] == b"]" and not raw[1:-1].strip()


def _with_objects(raw: bytes, expected: msgspec.inspect.Type) -> bytes:
    """Return raw JSON of this type with an empty object in place of each empty array, and no null.

    Only the fields of the type are changed: in members of a dictionary an empty array is data.
    """
    either = expected.types if isinstance(expected, msgspec.inspect.UnionType) else (expected,)
    struct = next(
        (option for option in either if isinstance(option, msgspec.inspect.StructType)), None
    )
    is_dictionary = any(isinstance(option, msgspec.inspect.DictType) for option in either)
    if (struct or is_dictionary) and is_empty_array(raw):
        return b"{}"
    if struct is None or not raw.startswith(b"{"):
        return raw
    members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    meant = dict(members)
    for field in struct.fields:
        raw_value = bytes(members.get(field.encode_name, b""))
        if raw_value == b"null" and not field.required:
            del meant[field.encode_name]
        elif raw_value:
            meant[field.encode_name] = msgspec.Raw(_with_objects(raw_value, field.type))
    return raw if meant == members else encode(meant)


def encode(message: Any) -> bytes:
    """Return compact JSON.

    Raises:
        ValueError: the message contains NaN, infinity, a lone surrogate, an integer with more
            digits than Python converts, or too many levels of nesting.
        TypeError: the message contains something that is not a JSON value.
    """
    try:
        body = _encoder.encode(message)
    except RecursionError as exc:
        raise ValueError("The message is nested too deep") from exc
    # The encoder writes NaN and infinity as null, so only a message with a null can contain one.
    values = [message] if b"null" in body else []
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list | tuple):
            values.extend(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
    return body


def encode_failure(id: RequestId | None, exc: MCPError, revision: Revision | None) -> bytes:
    """Return the encoded error response for an exception."""
    return encode(build_failure(id, exc, revision))


# Diagnosis of unusual messages --------------------------------------------------------------------

# The slow path of ``decode``, for JSON that is not a plain request or notification. It reads the
# message member by member to find the error, if there is one: some of these messages are valid,
# such as those with ``"params": null`` or ``"id": 1.0``, and all responses. An empty array is the
# empty object of a PHP client; a stateless request with such ``params`` then lacks its envelope.

# Up to this absolute value, a float represents every integer exactly.
_EXACT_FLOAT = 2**53

_ID_RULE = f'"id" must be an integer or a string of at most {MAX_ID_LENGTH} characters'


class _AnyMessage(msgspec.Struct):
    """Any object, with the members that determine the kind of message."""

    jsonrpc: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class _ErrorObject(msgspec.Struct):
    """The required members of an error object."""

    code: int
    message: str


_any_decoder = msgspec.json.Decoder(_AnyMessage)
_string_decoder = msgspec.json.Decoder(str)
_id_decoder = msgspec.json.Decoder(str | int | float)
_error_decoder = msgspec.json.Decoder(_ErrorObject)


def _diagnose(body: bytes) -> Message | DecodingFailure:
    """Return the message in valid JSON, or a `DecodingFailure` with the reason."""
    try:
        loose = _any_decoder.decode(body)
    except msgspec.ValidationError:
        return DecodingFailure(InvalidRequest("A message must be a JSON object"))
    is_answer = bool(bytes(loose.result) or bytes(loose.error))
    if is_answer and not bytes(loose.method):
        return _read_response(loose)
    request_id = _read_id(loose.id)
    if _read(_string_decoder, loose.jsonrpc) != "2.0":
        return DecodingFailure(InvalidRequest('"jsonrpc" must be "2.0"'), request_id)
    if is_answer:
        return DecodingFailure(
            InvalidRequest('"method" cannot be combined with "result" or "error"'), request_id
        )
    method = _read(_string_decoder, loose.method)
    if method is None:
        return DecodingFailure(InvalidRequest('"method" must be a string'), request_id)
    if request_id is None and bytes(loose.id):
        return DecodingFailure(InvalidRequest(_ID_RULE))
    params = bytes(loose.params)
    if params in (b"", b"null") or is_empty_array(params):
        params = b"{}"
    if request_id is None:
        if params.startswith(b"{"):
            return Notification(method, params)
        return DecodingFailure(InvalidRequest('"params" must be an object'), silent=True)
    if params.startswith(b"{"):
        return Request(request_id, method, params)
    return DecodingFailure(InvalidEnvelope('"params" must be an object'), request_id)


def _read_response(loose: _AnyMessage) -> Response | DecodingFailure:
    result, error = bytes(loose.result), bytes(loose.error)
    if is_empty_array(result):
        result = b"{}"
    request_id = _read_id(loose.id)
    if _read(_string_decoder, loose.jsonrpc) != "2.0":
        problem = '"jsonrpc" must be "2.0"'
    elif result and error:
        problem = '"result" and "error" cannot be combined'
    elif error and _read(_error_decoder, error) is None:
        problem = '"error" must be an object with an integer "code" and a string "message"'
    elif result and not result.startswith(b"{"):
        problem = '"result" must be an object'
    elif request_id is None and (result or bytes(loose.id) not in (b"", b"null")):
        problem = _ID_RULE
    else:
        return Response(request_id, result or None, error or None)
    return DecodingFailure(InvalidRequest(problem), silent=True)


def _read(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes) -> T | None:
    """Return a decoded value, or `None` if it is missing or is not of the decoder's type."""
    try:
        return decoder.decode(raw)
    except msgspec.MsgspecError:
        return None


def _read_id(raw: msgspec.Raw) -> RequestId | None:
    value = _read(_id_decoder, raw)
    if isinstance(value, float):
        # JSON has one number type: 1.0 is the integer 1, as long as the conversion is exact.
        return int(value) if value.is_integer() and abs(value) <= _EXACT_FLOAT else None
    return None if isinstance(value, str) and len(value) > MAX_ID_LENGTH else value
