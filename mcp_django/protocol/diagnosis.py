"""What an unusual message is: read member by member, to find what is wrong with it, if anything.

The slow half of `jsonrpc.decode`, for JSON that is not plainly a request or a notification. Some of
it is legal, such as `"params": null`, `"id": 1.0` and every response.
"""

from __future__ import annotations

import msgspec

from mcp_django.protocol.errors import InvalidEnvelope, InvalidRequest
from mcp_django.protocol.messages import (
    MAX_ID,
    Failure,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
)

# Between these bounds a JSON number with a fraction or exponent is exactly one integer.
_EXACT_FLOAT = 2**53

_ID = f'"id" must be an integer or a string of at most {MAX_ID} characters'

_ABSENT = msgspec.Raw()


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


def diagnose(body: bytes) -> Message | Failure:
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
