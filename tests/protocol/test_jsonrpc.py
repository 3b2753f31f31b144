"""Bytes to messages and back."""

from __future__ import annotations

import json
import tracemalloc
from collections import OrderedDict
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.errors import (
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    MCPError,
    ParseError,
)
from mcp_django.protocol.jsonrpc import (
    MAX_BATCH_MESSAGES,
    Batch,
    DecodingFailure,
    Notification,
    Request,
    Response,
    build_error,
    build_notification,
    build_request,
    build_result,
    decode,
    encode,
    read_params,
)
from tests.spec import spec

NOT_JSON = {
    "empty": b"",
    "blank": b" \n\t ",
    "truncated object": b'{"jsonrpc":',
    "truncated string": b'"abc',
    "two values": b'{} {"a":1}',
    "single quotes": b"{'jsonrpc':'2.0'}",
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}',
    "control character in a string": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\n"}}',
    "leading zero": b'{"jsonrpc":"2.0","id":01,"method":"m"}',
    "trailing comma": b'{"jsonrpc":"2.0","id":1,"method":"m",}',
    "comment": b'{"jsonrpc":"2.0",/**/"id":1,"method":"m"}',
    "two byte order marks": b'\xef\xbb\xbf\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16"),
    "UTF-16 without mark": '{"jsonrpc":"2.0","id":1,"method":"m"}'.encode("utf-16-le"),
    "invalid UTF-8 in the method": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "invalid UTF-8 in the params": b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}',
    "invalid UTF-8 in an unknown member": b'{"jsonrpc":"2.0","id":1,"method":"m","x":"\xc3("}',
    "encoded surrogate": b'{"jsonrpc":"2.0","id":1,"method":"\xed\xa0\x80"}',
    "lone high surrogate in the method": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "lone surrogate in the params": (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\udc00 and more text"}}'
    ),
    "broken pair in the params": (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud83d\\ud83d"}}'
    ),
    "deep array": b"[" * 100_000,
    "deep params": b'{"jsonrpc":"2.0","id":1,"method":"m","params":'
    + b'{"a":' * 100_000
    + b"1"
    + b"}" * 100_001,
    "deep unknown member": b'{"jsonrpc":"2.0","id":1,"method":"m","x":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
}


@spec("RPC-1", "RPC-9", "IO-10")
@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json_in_utf_8_is_a_parse_error(body):
    failure = decode(body)
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, ParseError)
    assert (failure.id, failure.silent) == (None, False)


@spec("RPC-9", "ERR-3")
@pytest.mark.parametrize(
    ("body", "request_id"),
    [
        (b'""', None),
        (b'"abc"', None),
        (b"null", None),
        (b"1", None),
        (b"1e999", None),
        (b"true", None),
        (b"{}", None),
        (b'{"id":7}', 7),
        (b'{"jsonrpc":"2.0","id":7}', 7),
        (b'{"id":7,"method":"m"}', 7),
        (b'{"jsonrpc":"1.0","id":7,"method":"m"}', 7),
        (b'{"jsonrpc":2.0,"id":7,"method":"m"}', 7),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', "a"),
        (b'{"jsonrpc":"2.0","id":"a","method":null}', "a"),
        (b'{"jsonrpc":"2.0","id":"a","method":"m","result":{}}', "a"),
        (b'{"jsonrpc":"2.0","id":"a","method":"m","error":{}}', "a"),
        (b'{"jsonrpc":"2.0","method":5}', None),
    ],
)
def test_json_that_is_no_message_is_an_invalid_request_under_its_id(body, request_id):
    failure = decode(body)
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, InvalidRequest)
    assert failure.id == request_id


@spec("RPC-1", "RPC-2", "ERR-3")
@pytest.mark.parametrize(
    "request_id", [0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**4299, "", "0", "1", "ü"]
)
def test_an_id_comes_back_exactly_as_it_came(request_id):
    body = encode({"jsonrpc": "2.0", "id": request_id, "method": "m"})
    message = decode(body)
    assert isinstance(message, Request)
    assert message.id == request_id
    assert type(message.id) is type(request_id)
    assert encode(build_result(message.id, {})) == body.replace(b'"method":"m"', b'"result":{}')


@spec("RPC-2")
@pytest.mark.parametrize(("raw", "value"), [(b"1.0", 1), (b"-0", 0), (b"1e2", 100), (b"-2.0", -2)])
def test_an_integer_written_with_a_fraction_is_that_integer(raw, value):
    message = decode(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % raw)
    assert message == Request(value, "m")
    assert type(message.id) is int


@spec("RPC-2", "RPC-8", "RPC-12")
@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"true",
        b"false",
        b"1.5",
        b"[]",
        b"{}",
        b'["a"]',
        b"1e300",
        b"1e999",
        b"9007199254740994.0",
        b"9" * 5000,
    ],
)
def test_a_malformed_id_makes_a_broken_request_and_no_notification(raw):
    failure = decode(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % raw)
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, InvalidRequest)
    assert (failure.id, failure.silent) == (None, False)


def test_a_request_keeps_its_params_as_raw_json():
    body = b' {"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": [1, 2.50]}, "x": 1} '
    assert decode(body) == Request(1, "m", b'{"a": [1, 2.50]}')


def test_absent_and_null_params_are_the_empty_object():
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}') == Request(1, "m", b"{}")
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}') == Request(1, "m", b"{}")
    assert decode(b'{"jsonrpc":"2.0","method":"n","params":null}') == Notification("n", b"{}")


@spec("RPC-12")
@pytest.mark.parametrize("raw", [b"[[]]", b"[1]", b"[null]", b"1", b'"x"', b"true"])
def test_params_that_are_no_object_are_invalid_params(raw):
    failure = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % raw)
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, InvalidEnvelope)
    assert (failure.error.code, failure.id, failure.silent) == (-32602, 1, False)


@spec("RPC-12")
@pytest.mark.parametrize("raw", [b"[]", b"[ \n]"])
def test_an_empty_array_is_the_empty_object_of_a_php_client(raw):
    request = decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % raw)
    assert request == Request(1, "m", b"{}")
    assert decode(b'{"jsonrpc":"2.0","method":"n","params":%b}' % raw) == Notification("n", b"{}")
    assert decode(b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw) == Response(1, b"{}")


@spec("RPC-1")
def test_a_byte_order_mark_is_ignored():
    for raw in (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xc3\xbc"}}', b"[1]", b"{}"):
        assert repr(decode(b"\xef\xbb\xbf" + raw)) == repr(decode(raw))


class Person(msgspec.Struct):
    """An object within parameters."""

    name: str
    traits: dict[str, Any] = {}


class Parameters(msgspec.Struct):
    """Parameters with members of every kind that an empty array may stand for."""

    person: Person | None = None
    options: dict[str, str] = {}
    tags: list[str] = []
    limit: int = 5


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"options":[]}', Parameters()),
        (b'{"options":null,"limit":null,"tags":null}', Parameters()),
        (b'{"options":{"a":"1.50"},"limit":null}', Parameters(options={"a": "1.50"})),
        (b'{"person":{"name":"ada","traits":[ ]}}', Parameters(person=Person("ada"))),
        (b'{"options":[],"tags":[],"other":[]}', Parameters()),
        (b"[]", Parameters()),
    ],
)
def test_lenient_parameters_have_empty_objects_and_no_null(raw, expected):
    assert read_params(raw, Parameters, lenient=True) == expected
    with pytest.raises(InvalidParams):
        read_params(raw, Parameters)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b'{"options":[1]}', "params.options: expected `object`, got `array`"),
        (b'{"options":[[]]}', "params.options: expected `object`, got `array`"),
        (b'{"options":[],"limit":[]}', "params.limit: expected `int`, got `array`"),
        (b'{"options":[],"tags":{}}', "params.tags: expected `array`, got `object`"),
        (b'{"options":{"a":[]}}', "params.options[...]: expected `str`, got `array`"),
        (b'{"person":[]}', "params.person: object missing required field `name`"),
        (b'{"person":{"name":null}}', "params.person.name: expected `str`, got `null`"),
    ],
)
def test_lenient_parameters_that_are_wrong_are_still_named(raw, place):
    with pytest.raises(InvalidParams) as caught:
        read_params(raw, Parameters, lenient=True)
    assert caught.value.message.startswith(place)


@spec("RPC-8")
def test_a_notification_is_a_message_without_an_id():
    assert decode(b'{"jsonrpc":"2.0","method":"n"}') == Notification("n", b"{}")
    assert decode(b'{"jsonrpc":"2.0","method":"n","params":{"a":1}}') == Notification(
        "n", b'{"a":1}'
    )


@spec("RPC-8")
def test_a_malformed_notification_gets_no_answer_either():
    failure = decode(b'{"jsonrpc":"2.0","method":"n","params":[1]}')
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, InvalidRequest)
    assert failure.silent


def test_the_last_of_duplicate_keys_counts():
    assert decode(
        b'{"jsonrpc":"1.0","jsonrpc":"2.0","id":1,"id":2,"method":5,"method":"m",'
        b'"params":[],"params":{"a":1}}'
    ) == Request(2, "m", b'{"a":1}')
    assert read_params(b'{"name":"w","name":"x"}', _Named) == _Named("x")


def test_escapes_in_keys_and_values_are_read():
    body = b'{"json\\u0072pc":"2\\u002e0","id":1,"method":"tools\\/list"}'
    assert decode(body) == Request(1, "tools/list", b"{}")


def test_a_long_method_name_is_a_method_name():
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % (b"x" * 10_000))
    assert isinstance(message, Request)
    assert len(message.method) == 10_000


@spec("RPC-5")
def test_a_response_has_a_result_or_an_error():
    assert decode(b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}') == Response(1, b'{"a":1}', None)
    error = b'{"code":-1,"message":"no"}'
    assert decode(b'{"jsonrpc":"2.0","id":"a","error":%b}' % error) == Response("a", None, error)
    assert decode(b'{"jsonrpc":"2.0","id":null,"error":%b}' % error) == Response(None, None, error)
    assert decode(b'{"jsonrpc":"2.0","error":%b}' % error) == Response(None, None, error)


@spec("RPC-5", "ASK-5")
@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[1]}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}',
        b'{"jsonrpc":"2.0","id":1,"error":"no"}',
        b'{"jsonrpc":"2.0","id":true,"error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"id":1,"result":{}}',
    ],
)
def test_a_malformed_response_is_never_answered(body):
    failure = decode(body)
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, InvalidRequest)
    # The id is one of the server's; an answer with it would hit an unrelated request of the client.
    assert (failure.id, failure.silent) == (None, True)


@spec("BAT-1", "BAT-2")
def test_an_array_is_a_batch_of_its_members_in_order():
    body = b"""[
        {"jsonrpc":"2.0","id":1,"method":"a"},
        {"jsonrpc":"2.0","method":"b","params":{"x":1}},
        {"jsonrpc":"2.0","id":1,"method":"c"}
    ]"""
    assert decode(body) == Batch(
        (Request(1, "a"), Notification("b", b'{"x":1}'), Request(1, "c")),
    )


@spec("BAT-2")
def test_a_batch_may_hold_responses_only():
    body = b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]'
    assert decode(body) == Batch((Response(1, b"{}"), Response(2, b"{}")))


@spec("BAT-2", "BAT-7")
@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b" [ ] ",
        b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"method":"m"}]',
        b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"n"}]',
        b"[" + b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * (MAX_BATCH_MESSAGES + 1)) + b"]",
        b"[" + b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * 10_000) + b"]",
    ],
    ids=["empty", "blank", "mixed with request", "mixed with notification", "one too many", "huge"],
)
def test_a_batch_that_cannot_be_is_one_invalid_request(body):
    failure = decode(body)
    assert isinstance(failure, DecodingFailure)
    assert isinstance(failure.error, InvalidRequest)
    assert failure.id is None


def test_refusing_a_huge_array_costs_little_memory():
    body = b"[" + b"0," * 1_000_000 + b"0]"
    tracemalloc.start()
    try:
        decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < len(body)


def test_a_batch_of_the_greatest_size_is_read_whole():
    batch = decode(
        b"[" + b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * MAX_BATCH_MESSAGES) + b"]"
    )
    assert isinstance(batch, Batch)
    assert len(batch.members) == MAX_BATCH_MESSAGES


@spec("BAT-7")
def test_a_broken_member_does_not_break_its_batch():
    batch = decode(
        b'[1, [{"jsonrpc":"2.0","id":1,"method":"m"}], {}, {"jsonrpc":"2.0","id":4,"method":5},'
        b' {"jsonrpc":"2.0","id":5,"method":"m","params":[1]},'
        b' {"jsonrpc":"2.0","id":6,"method":"m"}]'
    )
    assert isinstance(batch, Batch)
    *broken, last = batch.members
    assert last == Request(6, "m")
    assert all(isinstance(member, DecodingFailure) for member in broken)
    assert [(m.error.code, m.id) for m in broken if isinstance(m, DecodingFailure)] == [
        (-32600, None),
        (-32600, None),
        (-32600, None),
        (-32600, 4),
        (-32602, 5),
    ]


LONG = "x" * 100_000
ECHOES = [
    encode({"jsonrpc": LONG, "id": 1, "method": "m"}),
    encode({"jsonrpc": "2.0", "id": [LONG], "method": "m"}),
    encode({"jsonrpc": "2.0", "id": 1, "method": [LONG]}),
    encode({"jsonrpc": "2.0", "id": 1, "method": "m", "params": LONG}),
    encode({LONG: LONG}),
    encode(LONG),
    LONG.encode(),
    b'{"%b' % LONG.encode(),
]


@pytest.mark.parametrize("body", ECHOES)
def test_an_error_does_not_repeat_what_was_sent(body):
    failure = decode(body)
    assert isinstance(failure, DecodingFailure)
    assert len(failure.error.message) < 160
    assert "xxx" not in failure.error.message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), children, max_size=5)
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON, max_size=5)
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": JSON,
        "method": st.just("tools/call") | JSON,
        "params": OBJECTS | JSON,
        "result": JSON,
        "error": JSON,
        "other": JSON,
    },
)
VALID = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.text(st.characters(exclude_categories=["Cs"]))},
    optional={
        "id": st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
        "params": OBJECTS,
    },
)
KNOWN = Request | Notification | Response | Batch | DecodingFailure


@spec("RPC-9")
@given(st.binary(max_size=400))
def test_any_bytes_give_a_value(body):
    assert isinstance(decode(body), KNOWN)


@given(JSON | MEMBERS | st.lists(MEMBERS | JSON, max_size=5))
def test_any_json_gives_a_value(value):
    decoded = decode(encode(value))
    assert isinstance(decoded, KNOWN)
    if isinstance(decoded, DecodingFailure):
        assert isinstance(decoded.error, MCPError)
        assert not isinstance(decoded.error, ParseError)


@given(VALID)
def test_a_valid_message_is_read_in_full(value):
    decoded = decode(json.dumps(value).encode())
    params = value.get("params", {})
    assert isinstance(decoded, Request | Notification)
    assert decoded.method == value["method"]
    assert msgspec.json.decode(decoded.params) == params
    if "id" in value:
        assert isinstance(decoded, Request)
        assert decoded.id == value["id"]
    else:
        assert isinstance(decoded, Notification)


@given(VALID, st.data())
def test_a_mutated_message_gives_a_value(value, data):
    body = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    assert isinstance(decode(bytes(body)), KNOWN)
    assert isinstance(decode(bytes(body[:cut])), KNOWN)


class _Named(msgspec.Struct):
    name: str


class _Nested(msgspec.Struct):
    ref: _Named
    level: str | None = None


@spec("RPC-10")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{}", "params: object missing required field `name`"),
        (b'{"name":5}', "params.name: expected `str`, got `int`"),
        (b"[]", "params: expected `object`, got `array`"),
        (b"nonsense", "params: not JSON"),
    ],
)
def test_bad_params_name_the_member_and_the_rule(raw, message):
    with pytest.raises(InvalidParams) as caught:
        read_params(raw, _Named)
    assert caught.value.message == message


def test_bad_nested_params_name_the_path():
    with pytest.raises(InvalidParams, match=r"^params\.ref\.name: expected"):
        read_params(b'{"ref":{"name":null}}', _Nested)


def test_params_ignore_members_that_nobody_asked_for():
    assert read_params(b'{"name":"x","_meta":{"a":1},"task":{}}', _Named) == _Named("x")


def test_params_that_are_nested_too_deep_are_invalid():
    raw = b'{"name":"x","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(InvalidParams, match="too deep"):
        read_params(raw, _Named)


def test_messages_are_built_in_their_json_rpc_shape():
    assert build_result("a", {"x": 1}) == {"jsonrpc": "2.0", "id": "a", "result": {"x": 1}}
    assert build_notification("n", {"x": 1}) == {
        "jsonrpc": "2.0",
        "method": "n",
        "params": {"x": 1},
    }
    assert build_notification("n", None) == {"jsonrpc": "2.0", "method": "n"}
    assert build_request(1, "m", None) == {"jsonrpc": "2.0", "id": 1, "method": "m"}


@spec("RPC-11")
def test_an_error_without_a_known_id_has_no_id_member():
    error = {"code": -32700, "message": "m"}
    assert build_error(None, error) == {"jsonrpc": "2.0", "error": error}
    assert build_error(0, error) == {"jsonrpc": "2.0", "id": 0, "error": error}


def test_encoding_is_compact_and_one_line():
    body = encode({"a": [1, 2.5, True, None], "b": ("x\n\u2028ü",)})
    assert body == '{"a":[1,2.5,true,null],"b":["x\\n\u2028ü"]}'.encode()


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), [{"a": float("nan")}], ({"a": [float("inf")]},)],
)
def test_numbers_that_json_does_not_have_are_refused(value):
    with pytest.raises(ValueError, match="not a JSON number"):
        encode({"result": value, "other": None})


def test_text_and_structure_that_json_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="surrogates"):
        encode({"a": "\ud800"})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="too deep"):
        encode(deep)
    with pytest.raises(TypeError, match="object is not a JSON value"):
        encode({"a": object()})


class _Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


class _Whole(int):
    __slots__ = ()


class _Fraction(float):
    __slots__ = ()


def test_subclasses_of_json_s_types_are_written_as_those():
    value = {_Text("k"): [_Text("x"), _Whole(2**70), _Fraction(0.5), OrderedDict(a=1)]}
    assert encode(value) == b'{"k":["x",1180591620717411303424,0.5,{"a":1}]}'
    with pytest.raises(ValueError, match="not a JSON number"):
        encode([_Fraction("nan")])


@given(JSON)
def test_encoding_and_decoding_json_round_trips(value):
    assert json.loads(encode(value)) == value
