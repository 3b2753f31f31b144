"""Server-sent events, written and read."""

import pytest
from hypothesis import given, strategies as st

from mcp_django.protocol.sse import KEEPALIVE_COMMENT, EventDecoder, ServerSentEvent, encode_event
from tests.spec import spec


@spec("HTTP-33", "SSE-2", "SSE-10")
def test_a_message_is_one_event_with_one_data_line():
    assert encode_event(b'{"a":"\xe2\x80\xa8"}') == (
        b'event: message\ndata: {"a":"\xe2\x80\xa8"}\n\n'
    )
    assert encode_event(b"/messages?x=1", event="endpoint") == (
        b"event: endpoint\ndata: /messages?x=1\n\n"
    )
    assert encode_event(b"x", event=None) == b"data: x\n\n"


@spec("RSM-5", "RSM-6")
def test_an_event_may_have_an_id_and_a_delay():
    assert encode_event(b"", id="a-1", event=None) == b"id: a-1\ndata: \n\n"
    assert encode_event(b"x", id="a-1", retry=500) == (
        b"event: message\nid: a-1\nretry: 500\ndata: x\n\n"
    )
    assert encode_event(None, retry=500) == b"retry: 500\n\n"


@pytest.mark.parametrize("wrong", ["a\nb", "a\rb", "a\0b"])
def test_an_id_or_name_that_would_break_its_line_is_refused(wrong):
    with pytest.raises(ValueError, match="line break"):
        encode_event(b"x", id=wrong)
    with pytest.raises(ValueError, match="line break"):
        encode_event(b"x", event=wrong)


def test_line_breaks_in_data_cannot_forge_another_event():
    stream = encode_event(b"a\n\nevent: evil\rdata: b\r\nc")
    assert EventDecoder().feed(stream) == [ServerSentEvent(data="a\n\nevent: evil\ndata: b\nc")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_in_any_of_three_ways(end):
    stream = end.join([b"event: x", b"data: a", b"data:b", b"", b"data", b"", b""])
    assert EventDecoder().feed(stream) == [
        ServerSentEvent(data="a\nb", event="x"),
        ServerSentEvent(data=""),
    ]


@spec("HTTP-7")
def test_comments_and_unknown_fields_are_skipped():
    decoder = EventDecoder()
    assert decoder.feed(KEEPALIVE_COMMENT) == []
    assert decoder.feed(b"other: 1\ndata: a\n:x\n\n") == [ServerSentEvent(data="a")]


def test_a_byte_order_mark_may_open_the_stream():
    assert EventDecoder().feed(b"\xef\xbb\xbfdata: a\n\n") == [ServerSentEvent(data="a")]


def test_an_id_stays_until_the_next_one():
    decoder = EventDecoder()
    assert decoder.feed(b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n") == [
        ServerSentEvent(data="a", id="1"),
        ServerSentEvent(data="b", id="1"),
        ServerSentEvent(data="c", id=""),
    ]
    assert decoder.feed(b"id: 2\n\nid: 3\0\ndata: d\n\n") == [ServerSentEvent(data="d", id="2")]
    assert decoder.last_event_id == "2"


def test_the_delay_is_remembered_if_it_is_a_number():
    decoder = EventDecoder()
    assert decoder.feed(b"retry: 500\n\n") == []
    assert decoder.retry == 500
    decoder.feed(b"retry: soon\nretry: -1\nretry: \xd9\xa2\nretry: " + b"9" * 5000 + b"\n\n")
    assert decoder.retry == 500


def test_an_event_name_without_data_is_forgotten():
    assert EventDecoder().feed(b"event: x\n\ndata: a\n\n") == [ServerSentEvent(data="a")]


def test_an_unfinished_event_is_not_delivered():
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [ServerSentEvent(data="a")]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(st.tuples(TEXT, st.none() | TEXT.filter(lambda t: not {*t} & {*"\r\n\0"}))),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.data(),
)
def test_events_survive_however_the_stream_is_cut(events, end, data):
    stream = b"".join(encode_event(text.encode(), id=id_) for text, id_ in events)
    stream = stream.replace(b"\n", end.encode())
    decoder, decoded = EventDecoder(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        decoded += decoder.feed(stream[:size])
        decoded += decoder.feed(b"")
        stream = stream[size:]
    normalized = [text.replace("\r\n", "\n").replace("\r", "\n") for text, _ in events]
    assert [event.data for event in decoded] == normalized
    named = [id_ for _, id_ in events if id_ is not None]
    assert decoder.last_event_id == (named[-1] if named else None)


@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_are_read(chunks):
    decoder = EventDecoder()
    for chunk in chunks:
        assert all(isinstance(event, ServerSentEvent) for event in decoder.feed(chunk))
