"""Lines are the same, wherever the bytes are cut into chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mcp_django.transports.conversation import TOO_LONG, Line, LineSplitter
from tests.spec import spec

LIMIT = 8


def split(*chunks: bytes, limit: int = LIMIT) -> list[Line]:
    splitter = LineSplitter(limit)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*lines, *splitter.end()]


@spec("IO-1", "IO-10")
@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\r\ntwo\r\n", [b"one", b"two"]),
        (b"one\n\r\n \t\n\x0b\ntwo", [b"one", b"two"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r\r\n", [b"a\r"]),
        ("a\u2028\n".encode(), ["a\u2028".encode()]),
        (b"a\x85\x0b\x0c\x1c\n", [b"a\x85\x0b\x0c\x1c"]),
        (b"12345678\n", [b"12345678"]),
        (b"12345678\r\n", [b"12345678"]),
        (b"12345678", [b"12345678"]),
        (b"123456789\n", [TOO_LONG]),
        (b"123456789", [TOO_LONG]),
        (b"123456789\r\n1\n", [TOO_LONG, b"1"]),
        (b"x" * 100 + b"\n1\n" + b"y" * 100, [TOO_LONG, b"1", TOO_LONG]),
    ],
)
def test_lines_are_cut_at_newlines_alone(stream, lines):
    assert split(stream) == lines
    assert split(*(bytes([byte]) for byte in stream)) == lines


@st.composite
def chunks(draw: st.DrawFn) -> list[bytes]:
    """A stream with many line ends, cut anywhere."""
    parts = st.sampled_from([b"\n", b"\r", b"a", b" ", b"12345678", b"\xe2\x80\xa8"])
    stream = b"".join(draw(st.lists(parts, max_size=40)))
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    return [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]


@spec("IO-1", "IO-10")
@given(chunks())
def test_the_cuts_make_no_difference(chunks):
    bare = [line.removesuffix(b"\r") for line in b"".join(chunks).split(b"\n")]
    kept = [TOO_LONG if len(line) > LIMIT else line for line in bare if line.strip(b" \r")]
    blank = [line for line in bare if not line.strip(b" \r")]
    lines = split(*chunks)
    # A blank line over the limit is too long: it is not kept to find out that it is blank.
    assert len(lines) == len(kept) + sum(len(line) > LIMIT for line in blank)
    assert [line for line in lines if line is not TOO_LONG] == [
        line for line in kept if line is not TOO_LONG
    ]


@spec("IO-10")
@given(st.lists(st.binary(max_size=50), max_size=30))
def test_no_more_than_the_limit_is_held(chunks):
    splitter = LineSplitter(LIMIT)
    for chunk in chunks:
        assert all(line is TOO_LONG or len(line) <= LIMIT for line in splitter.feed(chunk))
        assert len(splitter._begun) <= LIMIT + 1
