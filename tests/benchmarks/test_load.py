"""The load generator finds the end of a response, and reports what is not a response."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

import pytest

from benchmarks.load import HOST, UnexpectedResponse, get, is_complete, send_load, send_once
from benchmarks.process import free_port

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
REQUEST = get("/")


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        b"HTTP/1.1 200 OK\r\ncontent-type: x\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ],
)
def test_an_answer_ends_where_its_headers_say(answer):
    assert is_complete(answer)
    assert not any(is_complete(answer[:size]) for size in range(len(answer)))


def answering(*parts: bytes) -> AbstractContextManager[int]:
    """Return a context manager with the port of a server that answers requests with these parts."""
    return answering_in_turn(parts)


@contextmanager
def answering_in_turn(*answers: Sequence[bytes]) -> Iterator[int]:
    """Yield the port of a server that sends these answers in turn, each in its parts."""
    port = free_port()

    def converse(peer: socket.socket) -> None:
        # A client that does not want the answer closes the connection before it has read all of it.
        with peer, suppress(OSError):
            for answer in itertools.cycle(answers):
                if not peer.recv(65536):
                    return
                for part in answer:
                    peer.sendall(part)

    def serve() -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=converse, args=(peer,), daemon=True).start()

    with socket.create_server((HOST, port)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield port
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_every_connection_is_kept_busy_and_every_answer_awaited():
    with answering(GOOD[:20], GOOD[20:]) as port:
        burst = send_load(port, [[REQUEST]], seconds=0, connections=5)
    # With no time left, each connection gets one response.
    assert len(burst.latencies) == 5
    assert burst.latencies == sorted(burst.latencies)


def test_a_request_that_follows_is_made_of_the_answer_and_has_a_status_of_its_own():
    seen: list[bytes] = []

    def follow(answer: bytes) -> bytes:
        seen.append(answer)
        return REQUEST

    accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    with answering_in_turn([GOOD], [accepted]) as port:
        burst = send_load(port, [[REQUEST]], seconds=0, connections=3, follow=follow)
    assert len(burst.latencies) == 3
    assert seen == [GOOD] * 3
    with answering(GOOD) as port, pytest.raises(UnexpectedResponse, match="200"):
        send_load(port, [[REQUEST]], seconds=0, follow=follow)


def test_another_status_ends_the_run():
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    with answering(busy) as port, pytest.raises(UnexpectedResponse, match="503"):
        send_load(port, [[REQUEST]], seconds=0)


def test_an_answer_without_the_expected_text_is_none():
    with answering(GOOD) as port:
        assert send_once(port, REQUEST, expects=b"hi") == GOOD
        with pytest.raises(UnexpectedResponse, match="ho"):
            send_once(port, REQUEST, expects=b"ho")
