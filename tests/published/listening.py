"""Validate the messages of the server by the request and the revision that they belong to.

Violations are kept until the test ends, which then fails (`plugin`); the drivers raise them as soon
as a test reads the next part.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn
from urllib.parse import parse_qs

from mcp_django.protocol import sse
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from tests.published.definitions import (
    ALIASES,
    BATCHES,
    IS_AVAILABLE,
    LATEST,
    REVISIONS,
    problem,
    without_excuse,
)

KNOWN = {**{revision: revision for revision in REVISIONS}, **ALIASES}
LATEST_HANDSHAKE = "2025-11-25"
"""The revision of a connection before it is initialized: of pings, and of errors without an id."""
DEFAULT = "2025-03-26"
"""The revision of an HTTP request if neither session, nor header, nor body names one."""
MAX_DIGITS = 1000
ANSWERS = {"result", "error"}
ENVELOPE = {PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO}


class Violation(AssertionError):
    """A message of the server does not match the published schema."""


class Verdicts:
    """The number of messages that this process has validated, and the violations."""

    def __init__(self) -> None:
        self.judged = 0
        self._wrong: list[str] = []
        self._apart: list[str] | None = None
        self._is_odd_on_purpose = False

    def add(self, problem: str | None) -> list[str]:
        """Count a message; keep its violation, if there is one, and return it in a list."""
        self.judged += 1
        if problem is None or self._is_odd_on_purpose:
            return []
        (self._wrong if self._apart is None else self._apart).append(problem)
        return [problem]

    def take(self) -> list[str]:
        """Return the violations since the last call."""
        problems, self._wrong = self._wrong, []
        return problems

    @contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Yield the violations of the block, which do not fail the test: it is a test of them."""
        self._apart = []
        try:
            yield self._apart
        finally:
            self._apart = None

    @contextmanager
    def odd_on_purpose(self, reason: str) -> Iterator[None]:
        """Ignore violations in the block, for a reason: the test causes them on purpose."""
        assert reason
        self._is_odd_on_purpose = True
        try:
            yield
        finally:
            self._is_odd_on_purpose = False


verdicts = Verdicts()
odd_on_purpose = verdicts.odd_on_purpose


class Asked(NamedTuple):
    """A request; without a `revision`, it has the revision of its session."""

    method: str | None
    revision: str | None


class Peer:
    """The requests of one client: in one session, over one connection, or in one body."""

    def __init__(self, revision: str | None = None) -> None:
        self.revision = revision
        self._asked: dict[str, dict[Asked, None]] = {}
        self._revisions: dict[str | None, None] = {}

    def hear(self, raw: bytes) -> Any:
        """Record a message of the client, and return it decoded; `None` if it is not JSON."""
        document = _read(raw)
        self.note(document)
        return document

    def note(self, document: Any) -> None:
        """Record the requests of a decoded message."""
        for message in document if isinstance(document, list) else [document]:
            if isinstance(message, dict) and "id" in message and message.keys().isdisjoint(ANSWERS):
                request = _asked(message)
                if request.method != "initialize":
                    self._revisions[request.revision] = None
                requests = self._asked.setdefault(_key(message["id"]), {})
                requests.pop(request, None)
                requests[request] = None

    def belongings(self, message: Any) -> list[Asked]:
        """Return the requests that a message may belong to, the latest first."""
        if isinstance(message, dict) and "method" not in message and "id" in message:
            return [*reversed(self._asked.get(_key(message["id"]), {}))]
        return [Asked(None, revision) for revision in reversed(self._revisions)]


def _read(raw: bytes) -> Any:
    try:
        return json.loads(raw, parse_int=_read_int)
    except (ValueError, RecursionError):
        return None


def _read_int(digits: str) -> int | str:
    # Python reads no more than 4300 digits, and no id has that many.
    return int(digits) if len(digits) < MAX_DIGITS else digits


def _key(request_id: Any) -> str:
    # 1 and true are the same key of a dictionary, but different ids; 1 and 1.0 are the same id.
    is_whole = isinstance(request_id, float) and request_id.is_integer()
    return json.dumps(int(request_id) if is_whole else request_id)


def _asked(request: Mapping[str, Any]) -> Asked:
    method = request.get("method")
    params = request.get("params")
    params = params if isinstance(params, dict) else {}
    envelope = params.get("_meta")
    revision = None
    if method == "initialize":
        # The revision of an error; a result names its revision itself.
        revision = _known(params.get("protocolVersion"), LATEST_HANDSHAKE)
    elif isinstance(envelope, dict) and not ENVELOPE.isdisjoint(envelope):
        revision = _known(envelope.get(PROTOCOL_VERSION), LATEST)
    return Asked(method if isinstance(method, str) else None, revision)


def _known(version: Any, otherwise: str) -> str:
    return KNOWN.get(version, otherwise) if isinstance(version, str) else otherwise


def judge(raw: bytes | str, *peers: Peer, default: str) -> list[str]:
    """Validate a message of the server, or a batch, and return the violations.

    The first of the peers is the nearest, the last is the session. `default` is the revision if
    none of them has one.
    """
    if not IS_AVAILABLE:
        return []
    try:
        document = json.loads(raw, parse_constant=_refuse_constant)
    except ValueError as exc:
        return verdicts.add(f"{raw[:400]!r} is no JSON: {exc}")
    agreed = next((peer.revision for peer in peers if peer.revision), default)
    if not isinstance(document, list):
        return _judge_one(document, peers, agreed)
    if agreed not in BATCHES or not document:
        return verdicts.add(f"{document!r:.400} is no batch, or {agreed} has none")
    wrong = []
    for message in document:
        wrong += _judge_one(message, peers, agreed)
    return wrong


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value")


def _judge_one(message: Any, peers: Sequence[Peer], agreed: str) -> list[str]:
    """Validate a message by each request that it may belong to, until it is valid for one."""
    nearest = next((candidates for peer in peers if (candidates := peer.belongings(message))), [])
    wrong = []
    for method, asked_in in nearest or [Asked(None, None)]:
        revision = asked_in or agreed
        is_begun = method == "initialize" and "result" in message
        if is_begun and isinstance(message["result"], dict):
            revision = _known(message["result"].get("protocolVersion"), LATEST)
        excused = without_excuse(message, revision)
        complaint = problem(excused, revision, method)
        if complaint is None:
            if is_begun:
                peers[-1].revision = revision
            return verdicts.add(None)
        wrong.append(complaint)
    return verdicts.add(wrong[0])


# HTTP -------------------------------------------------------------------------------------------

_sessions: dict[str, Peer] = {}


def session(plaintext: str, revision: str | None = None) -> Peer:
    """Return the requests of a session, by its id."""
    return _sessions.setdefault(plaintext, Peer(revision))


class Exchange:
    """One HTTP request, and the messages of the server in its answer.

    Answers to requests that do not belong to the protocol are not validated.
    """

    def __init__(self, target: str, headers: Mapping[str, str]) -> None:
        self.wrong: list[str] = []
        self._headers = headers
        self._own = Peer()
        query = parse_qs(target.partition("?")[2])
        named = headers.get("mcp-session-id") or query.get("session_id", [""])[0]
        self._session = session(named) if named else Peer()
        self._default = _known(headers.get("mcp-protocol-version"), DEFAULT)
        self._is_asked = False
        self._status = 0
        self._type = ""
        self._is_packed = False
        self._body = b""
        self._decoder = sse.EventDecoder()

    def ask(self, body: bytes) -> None:
        """Record the whole body of the request."""
        document = self._own.hear(body)
        self._session.note(document)
        first = document[0] if isinstance(document, list) and document else document
        self._is_asked = isinstance(first, dict) and "jsonrpc" in first

    def ask_elsewhere(self, body: bytes) -> None:
        """Record a request of the session that reaches the server in another way."""
        self._session.hear(body)

    def take(self, part: Mapping[str, Any]) -> None:
        """Process an ASGI message of the application."""
        if part["type"] == "http.response.start":
            headers = {
                name.decode().lower(): value.decode("latin-1") for name, value in part["headers"]
            }
            self.start(part["status"], headers)
        elif part["type"] == "http.response.body":
            self.hear(part.get("body", b""))
            if not part.get("more_body"):
                self.end()

    def take_response(self, response: Any) -> None:
        """Process the response of a view; over WSGI there are no events."""
        if not response.streaming:
            named = {name.lower(): str(value) for name, value in response.items()}
            self.start(response.status_code, named)
            self.hear(response.content)
            self.end()

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Process the status and the headers of the answer."""
        self._status = status
        self._type = headers.get("content-type", "").partition(";")[0]
        self._is_packed = headers.get("content-encoding", "") == "gzip"
        if "mcp-session-id" in headers:
            self._session = session(headers["mcp-session-id"])

    def hear(self, part: bytes) -> None:
        """Process a part of the body."""
        if self._type == "text/event-stream" and not self._is_packed:
            for event in self._decoder.feed(part):
                self._take(event)
        elif self._type == "application/json":
            self._body += part

    def _take(self, event: sse.ServerSentEvent) -> None:
        if event.event == "endpoint":
            named = parse_qs(event.data.partition("?")[2]).get("session_id", [""])[0]
            self._session = session(named, "2024-11-05")
        elif event.data:
            # The event that opens a stream of 2025-11-25 has an id and no message.
            self._judge(event.data)

    def end(self) -> None:
        """Validate the body, if it is a document and a message."""
        if not self._body:
            return
        body = gzip.decompress(self._body) if self._is_packed else self._body
        if self._is_message(body):
            self._judge(body)

    def _is_message(self, body: bytes) -> bool:
        """Return whether a document is a message; a rejection need not be a message."""
        if self._is_asked and self._status == 200:
            return True
        try:
            document = json.loads(body)
        except ValueError:
            return self._is_asked
        error = document.get("error") if isinstance(document, dict) else None
        return isinstance(error, dict) or (isinstance(document, dict) and "jsonrpc" in document)

    def _judge(self, raw: bytes | str) -> None:
        self.wrong += judge(raw, self._own, self._session, default=self._default)

    def complain(self) -> None:
        """Raise what was wrong so far."""
        complain(self.wrong)


# stdio ------------------------------------------------------------------------------------------


class Lines:
    """One conversation over stdio: a message per line, in both directions."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._peer = Peer()
        self._begun = b""

    def ask(self, raw: bytes) -> None:
        """Record what the client writes; a line may be in several pieces."""
        *lines, self._begun = (self._begun + raw).split(b"\n")
        for line in lines:
            self._peer.hear(line)

    def hear(self, piece: bytes) -> None:
        """Validate the lines that the server writes; `piece` consists of whole lines."""
        for line in filter(None, piece.split(b"\n")):
            self.wrong += judge(line, self._peer, default=LATEST_HANDSHAKE)

    def complain(self) -> None:
        """Raise what was wrong so far."""
        complain(self.wrong)


def complain(wrong: Sequence[str]) -> None:
    """Raise an error if there are violations.

    Raises:
        Violation: there are violations.
    """
    if wrong:
        raise Violation("\n".join(wrong))
