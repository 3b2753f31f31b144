"""Keys of `_meta`, and trace context."""

import string

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.envelope import (
    MAX_BAGGAGE_MEMBER_LENGTH,
    MAX_BAGGAGE_MEMBERS,
    MAX_PARENT_LENGTH,
    MAX_STATE_MEMBERS,
    check_author_meta,
    read_trace,
)
from tests.spec import spec


@spec("MET-1", "MET-2")
@pytest.mark.parametrize(
    "key",
    [
        "",
        "a",
        "name",
        "my-key_1.x",
        "0",
        "com.example/name",
        "com.example/",
        "com.example.mcp/name",
        "example/name",
        "mcp/name",
        "a.b-c.d1/x",
    ],
)
def test_an_author_may_use_keys_of_the_grammar(key):
    check_author_meta({key: 1})


@spec("MET-1")
@pytest.mark.parametrize(
    "key",
    [
        "-a",
        "a-",
        "_a",
        "a.",
        "a b",
        "ä",
        "a\n",
        "/name",
        "1a.b/name",
        "-a/name",
        "a-/name",
        "a..b/name",
        ".a/name",
        "a_b/name",
        "a/b/name",
        "com.example/-name",
        "com.example/na me",
        "com.exämple/name",
        "x" * 10_000 + "-",
    ],
)
def test_a_key_outside_the_grammar_is_refused_by_name(key):
    with pytest.raises(ValueError, match="_meta key") as caught:
        check_author_meta({"fine": 1, key: 1})
    assert len(str(caught.value)) < 300


@spec("MET-2", "MET-3", "MET-6")
@pytest.mark.parametrize(
    "key",
    [
        "io.modelcontextprotocol/serverInfo",
        "io.modelcontextprotocol/",
        "com.mcp.tools/x",
        "com.mcp/x",
        "dev.mcp/x",
        "IO.ModelContextProtocol/x",
        # reserved at 2025-06-18
        "mcp.dev/x",
        "api.modelcontextprotocol.org/x",
        "a.b.mcp.c/x",
        "progressToken",
        "traceparent",
        "tracestate",
        "baggage",
    ],
)
def test_a_reserved_key_is_refused(key):
    with pytest.raises(ValueError, match="reserved"):
        check_author_meta({key: 1})


PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@spec("MET-4")
@pytest.mark.parametrize(
    "value",
    [
        PARENT,
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-adds",
    ],
)
def test_a_valid_parent_continues_its_trace(value):
    assert read_trace({"traceparent": value}) == {"traceparent": value}


@spec("MET-4")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT + "-x",
        PARENT + "\n",
        PARENT[:-1],
        "ff" + PARENT[2:],
        "cc" + PARENT[2:] + "x",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "cc" + PARENT[2:] + "-" + "x" * MAX_PARENT_LENGTH,
        None,
        5,
        ["x"],
    ],
)
def test_an_invalid_parent_is_ignored_with_its_state(value):
    assert read_trace({"traceparent": value, "tracestate": "a=1"}) == {}


@spec("MET-4")
@pytest.mark.parametrize(
    "value",
    [
        "a=1",
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "a=1, b=2 ,c=3",
        "a=1,,b=2",
        "fw529a3039@dt=FfJ2",
        "0t@sys=x",
        "a*/_-=x y",
        ",".join(f"k{i}=1" for i in range(MAX_STATE_MEMBERS)),
    ],
)
def test_a_valid_state_goes_with_its_parent(value):
    meta = {"traceparent": PARENT, "tracestate": value}
    assert read_trace(meta) == meta
    assert read_trace({"tracestate": value}) == {}


@spec("MET-4")
@pytest.mark.parametrize(
    "value",
    [
        "",
        ",",
        "a",
        "a=",
        "A=1",
        "0=1",
        "a=1=2",
        "a=ü",
        "a=1,a=2",
        "a@b@c=1",
        "a=" + "x" * 257,
        ",".join(f"k{i}=1" for i in range(MAX_STATE_MEMBERS + 1)),
        5,
    ],
)
def test_an_invalid_state_is_ignored_and_the_parent_kept(value):
    assert read_trace({"traceparent": PARENT, "tracestate": value}) == {"traceparent": PARENT}


@spec("MET-4")
@pytest.mark.parametrize(
    "value",
    [
        "a=1",
        "userId=alice,serverNode=DF%2028,isProduction=false",
        "a = 1 ; p ; q=2 , b=",
        "a=1;p",
        ",".join(f"k{i}=1" for i in range(MAX_BAGGAGE_MEMBERS)),
    ],
)
def test_valid_baggage_is_carried_without_a_trace(value):
    assert read_trace({"baggage": value}) == {"baggage": value}


@spec("MET-4")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "a",
        "=1",
        "a=1,",
        "a b=1",
        "a=x y",
        'a="x"',
        "a=1;",
        "a=1;p q",
        "a=ü",
        ",".join(f"k{i}=1" for i in range(MAX_BAGGAGE_MEMBERS + 1)),
        "a=" + "x" * MAX_BAGGAGE_MEMBER_LENGTH,
        "a=1" + ";p" * 2048,
        ",".join(f"k{i}=" + "x" * 1000 for i in range(9)),
        {},
    ],
)
def test_invalid_baggage_is_ignored(value):
    assert read_trace({"baggage": value}) == {}


def test_other_members_are_no_trace():
    assert read_trace({"progressToken": 1}) == {}


NEAR = st.text(string.hexdigits[:16] + "-=,;@ \tA\n", max_size=80)


@given(NEAR | st.text(max_size=40), NEAR | st.text(max_size=40), NEAR | st.text(max_size=40))
def test_no_text_makes_reading_a_trace_fail(parent, state, baggage):
    trace = read_trace({"traceparent": parent, "tracestate": state, "baggage": baggage})
    assert trace.items() <= {"traceparent": parent, "tracestate": state, "baggage": baggage}.items()
