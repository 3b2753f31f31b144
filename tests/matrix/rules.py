"""The parts of an answer that are replaced before it is recorded, each with the reason.

A value is replaced only if it is different in each run, or if it follows from the caller, the mount
and the revision, so that equal answers are recorded once. All other bytes are recorded unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mcp_django.models import Call
from mcp_django.protocol.revisions import REVISIONS
from tests.matrix.callers import CALLERS, Caller
from tests.matrix.cases import LOCAL, SSE

DEFAULTS = {field.name: field.get_default() for field in Call._meta.concrete_fields}


@dataclass(frozen=True)
class Rule:
    """A pattern in a text, its replacement, and the reason.

    A text without `sign` is not searched for the pattern.
    """

    sign: str
    pattern: str
    replacement: str
    reason: str

    def apply(self, text: str) -> str:
        """Return the text with all matches replaced."""
        return re.sub(self.pattern, self.replacement, text) if self.sign in text else text


TEXTS = (
    Rule(
        "requestState",
        r'("requestState":\s?)"[^"]+"',
        r'\1"<request state>"',
        "signed, with the time and a random id of the interaction",
    ),
    Rule("taskId", r'("taskId":\s?)"[^"]+"', r'\1"<task id>"', "random"),
    Rule("handle", r'("handle":\s?)"[^"]+"', r'\1"<task id>"', "the id of a task"),
    Rule("handle", r"(handle \W{0,2})[\w-]{43}", r"\1<task id>", "the id of a task, in a text"),
    Rule("ask-", r"\bask-[0-9a-f]+-", "ask-<random>-", "the id of a request to the client"),
    Rule("/approvals/", r"/approvals/[\w-]+", "/approvals/<code>", "random"),
    Rule(
        "T",
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)",
        "<time>",
        "the current time, such as that of a task",
    ),
    Rule(
        "id: ", r"(?m)^id: .+$", "id: <event id>", "the random number of a stream, and a position"
    ),
    Rule("traceparent", r'("traceparent":\s?)"[^"]+"', r'\1"<trace>"', "the random ids of a span"),
    Rule("session_id=", r"(session_id=)[\w-]+", r"\1<session id>", "random"),
)

# Headers that most answers have: those of JSON, of a stream, and those of Django's middleware.
# If all lines of one of these are there, its name is written instead.
HEADERS = {
    "those of a document": (
        "cache-control: no-store",
        "content-length: <length of the body>",
        "content-type: application/json",
        "x-content-type-options: nosniff",
    ),
    "those of a stream": (
        "cache-control: no-cache, no-transform",
        "content-type: text/event-stream",
        "x-accel-buffering: no",
        "x-content-type-options: nosniff",
    ),
    "those of Django": (
        "cross-origin-opener-policy: same-origin",
        "referrer-policy: same-origin",
        "x-frame-options: DENY",
    ),
}

# Columns of a call that are different in each run: whether they have a value is recorded.
COLUMNS = {
    "id": "counts all calls of the database",
    "at": "the current time",
    "ms": "a duration",
    "trace_id": "random",
    "session": "the digest of a random id",
}


@dataclass(frozen=True)
class Context:
    """The mount, the revision and the caller of a request."""

    mount: str
    version: str
    caller: str

    @property
    def known(self) -> Caller:
        return CALLERS[self.caller]

    @property
    def transport(self) -> str:
        return self.mount if self.mount in LOCAL else "http"


def replace_in_text(text: str, **context: str) -> str:
    """Return a text in which everything that is different in each run is replaced."""
    for rule in TEXTS:
        text = rule.apply(text)
    # The servers have the same components, and the name of the server follows from the caller.
    name = f"matrix-{Context(**context).known.server}"
    if name not in text:
        return text
    identity = {"name": name, "version": "1.0", "title": "Gallery"}
    for separators in ((",", ":"), (", ", ": ")):
        text = text.replace(json.dumps(identity, separators=separators), "<server info>")
    return text.replace(name, "<the caller's server>")


def sort_batch(body: str) -> str:
    """Return the sorted answer to a batch, whose responses come in the order in which calls end."""
    if body.startswith((": ", "event:", "id:")):
        events = (f"{event}\n\n" for event in body.split("\n\n") if event)
        # Not sorted by their ids, which are random.
        return "".join(sorted(events, key=lambda event: event.partition("data:")[2]))
    return "\n".join(map(_sort_array, body.split("\n")))


def _sort_array(line: str) -> str:
    if not line.startswith("["):
        return line
    members = [_compact(member) for member in json.loads(line)]
    # The members must be written exactly as the server wrote them.
    assert f"[{','.join(members)}]" == line
    return f"[{','.join(sorted(members))}]"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def replace_headers(lines: list[tuple[str, str]], body: str, **context: str) -> list[str]:
    """Return the sorted lines of headers; lines that most answers have are abbreviated."""
    length = str(len(body.encode()))
    headers = set()
    for name, value in lines:
        if name == "mcp-session-id":
            headers.add(f"{name}: <session id>")
        elif name == "content-length" and value == length:
            headers.add(f"{name}: <length of the body>")
        else:
            headers.add(f"{name}: {replace_in_text(value, **context)}")
    assert len(headers) == len(lines), lines
    abbreviations = []
    for name, usual in HEADERS.items():
        if headers.issuperset(usual):
            headers.difference_update(usual)
            abbreviations.append(f"<{name}>")
    return [*abbreviations, *sorted(headers)]


def result_sizes(body: str) -> set[int]:
    """Return the sizes of the results in an answer: JSON, lines of JSON, or events with JSON."""
    sizes = set()
    for line in body.split("\n"):
        text = line.removeprefix("data: ")
        document = json.loads(text) if text.startswith(("{", "[")) else []
        for message in document if isinstance(document, list) else [document]:
            if isinstance(message, dict) and "result" in message:
                sizes.add(len(_compact(message["result"]).encode()))
    return sizes


def replace_columns(
    row: Mapping[str, Any], sizes: Collection[int] = (), **context: str
) -> dict[str, Any]:
    """Return the columns of a call that do not follow from the caller, the revision and the mount.

    Columns that have their default, or the value that follows from these, are left out. Any other
    value is recorded, even if it is empty.
    """
    where = Context(**context)
    row = dict(row)
    for name in COLUMNS:
        row[name] = f"<{name}>" if row[name] else row[name]
    if "handle" in (row["argument_names"] or ()):
        row["arguments_digest"] = "<that of a task id>"
    if row["bytes"] in sizes:
        # ``sizes`` are those of the results in the answer.
        row["bytes"] = "<of the result>"
    elif row["outcome"] == "asked" and row["bytes"]:
        # The state of the request is random and has no fixed length.
        row["bytes"] = "<bytes>"
    expected = {**DEFAULTS, **_usual_columns(where)}
    return {name: value for name, value in row.items() if value != expected[name]}


def _usual_columns(where: Context) -> dict[str, Any]:
    known = where.known
    is_session = not REVISIONS[where.version].stateless and where.transport == "http"
    return {
        "id": "<id>",
        "at": "<at>",
        "ms": "<ms>",
        "trace_id": "<trace_id>",
        "session": "<session>" if is_session else "",
        "server": f"matrix-{known.server}",
        "user_key": f"user:{known.user_id}" if known.user_id else "anonymous",
        "user_name": known.username,
        "client_id": known.client_id if where.transport in ("http", SSE) else "",
        "client": "mcp_django.test 1" if where.transport == "memory" else "tester 1",
        "revision": where.version,
        "transport": where.transport,
    }


def replace_attributes(
    name: str, span_attributes: Mapping[str, Any], **context: str
) -> dict[str, Any]:
    """Return the attributes of a span that do not follow from its name and its context.

    Attributes that have the value that follows from the name of the span, the caller, the revision
    and the mount are left out. If such an attribute is missing, it is recorded as missing.
    """
    where = Context(**context)
    attributes = {
        key: replace_in_text(value, **context) if isinstance(value, str) else value
        for key, value in span_attributes.items()
    }
    if where.transport == "memory" and "jsonrpc.request.id" in attributes:
        # The test client counts its requests.
        attributes["jsonrpc.request.id"] = "1"
    if "mcp.session.id" in attributes:
        # The digest of a random id.
        attributes["mcp.session.id"] = "<session>"
    method, _, component = name.partition(" ")
    usual = _usual_attributes(where, method, component)
    if re.fullmatch(r"[\w-]{43}", str(attributes.get("jsonrpc.request.id"))):
        # A task runs apart from its request.
        attributes["jsonrpc.request.id"] = "<task id>"
        usual = {key: usual[key] for key in usual if key in attributes}
    for key, value in usual.items():
        if attributes.get(key) == value:
            del attributes[key]
        else:
            attributes.setdefault(key, "<missing>")
    return {key: attributes[key] for key in sorted(attributes)}


def _usual_attributes(where: Context, method: str, component: str) -> dict[str, Any]:
    attributes = {"mcp.method.name": method, "mcp.protocol.version": where.version}
    if not method.startswith("notifications/"):
        attributes["jsonrpc.request.id"] = "1"
    if where.transport == "http":
        attributes["client.address"] = "127.0.0.1"
    if where.transport == "http" and not REVISIONS[where.version].stateless:
        attributes["mcp.session.id"] = "<session>"
    if where.transport == "stdio":
        attributes["network.transport"] = "pipe"
    elif where.transport != "memory":
        attributes |= {"network.transport": "tcp", "network.protocol.name": "http"}
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    kinds = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
    if component:
        attributes[kinds[method]] = component
    return attributes
