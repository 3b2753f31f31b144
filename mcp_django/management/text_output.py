"""Text output of the commands: readable results, tables, and safe output streams.

Control characters are escaped, since they can redraw a terminal or type into it.
"""

from __future__ import annotations

import base64
import codecs
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError, OutputWrapper

from mcp_django.protocol.text import clip

Wire = Mapping[str, Any]


def print_result(command: BaseCommand, options: Mapping[str, Any], value: Any, text: str) -> None:
    """Print the result of a command: a value as JSON with ``--json``, else a text."""
    command.stdout.write(json.dumps(value, ensure_ascii=False) if options["json"] else text)


# All control characters except tab, newline and carriage return.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def escape_control_characters(text: str) -> str:
    """Return untrusted text with its control characters escaped."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def result_text(result: Wire) -> str:
    """Return the result of a tool, a resource or a prompt as readable text."""
    if "messages" in result:
        return "\n\n".join(
            f"{message['role']}:\n{_block(message['content'])}" for message in result["messages"]
        )
    if "contents" in result:
        contents = list(result["contents"])
        if len(contents) == 1 and "text" in contents[0]:
            return str(contents[0]["text"])
        return "\n\n".join(map(_resource, contents))
    structured = result.get("structuredContent")
    parts = []
    for block in result["content"]:
        # Structured content replaces a text block with the same JSON.
        is_same = False
        with suppress(ValueError, RecursionError):
            is_text = structured is not None and block["type"] == "text"
            is_same = is_text and json.loads(block["text"]) == structured
        if not is_same:
            parts.append(_block(block))
    if structured is not None:
        parts.append(indented_json(structured))
    return "\n".join(parts)


def binaries(result: Wire) -> Iterator[bytes]:
    """Yield the decoded images, audio and blobs of a result, in order."""
    blocks = [
        *result.get("content", ()),
        *result.get("contents", ()),
        *(message["content"] for message in result.get("messages", ())),
    ]
    for block in blocks:
        contents = block["resource"] if block.get("type") == "resource" else block
        encoded = contents.get("data") or contents.get("blob")
        if isinstance(encoded, str):
            yield base64.b64decode(encoded)


def _block(block: Wire) -> str:
    kind = block["type"]
    if kind == "text":
        return str(block["text"])
    if kind == "resource":
        return _resource(block["resource"])
    if kind == "resource_link":
        title = block.get("title") or block["name"]
        return f"[link to {block['uri']}: {title}]"
    return f"[{kind}, {block['mimeType']}, {_size(block['data'])}]"


def _resource(contents: Wire) -> str:
    kind = contents.get("mimeType", "unknown type")
    if "blob" in contents:
        return f"[{contents['uri']}, {kind}, {_size(contents['blob'])}]"
    return f"[{contents['uri']}, {kind}]\n{contents['text']}"


def _size(encoded: str) -> str:
    return f"{len(base64.b64decode(encoded)):,} bytes"


def indented_json(value: Any) -> str:
    """Return JSON for people, with a member per line."""
    return json.dumps(value, indent=2, ensure_ascii=False)


WIDTH = 80
GAP = "  "
# The minimum width of a squeezed column, so that its texts can still be distinguished.
MIN_COLUMN_WIDTH = 8


def output_width(stream: OutputWrapper) -> int:
    """Return the width of the terminal, or ``WIDTH`` if the stream is not a terminal."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if stream.isatty() else WIDTH


def format_table(
    rows: Sequence[Sequence[str]],
    *,
    width: int = WIDTH,
    indent: int = 0,
    squeeze: Sequence[int] = (),
) -> str:
    """Return the rows as lines with aligned columns.

    The columns with an index in ``squeeze`` are truncated to fit the width, in this order. The
    others are never truncated, so that names can be copied.
    """
    table = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    # A column that is empty in every row is not printed.
    room = width - indent - len(GAP) * (sum(map(bool, widths)) - 1)
    for index in squeeze:
        excess = sum(widths) - room
        if excess > 0:
            widths[index] = max(widths[index] - excess, min(widths[index], MIN_COLUMN_WIDTH))
    lines = []
    for row in table:
        columns = [(cell, limit) for cell, limit in zip(row, widths, strict=True) if limit]
        line = GAP.join(clip(cell, limit=limit).ljust(limit) for cell, limit in columns)
        lines.append(" " * indent + line.rstrip())
    return "\n".join(lines)


ESCAPES = "mcp_django.escapes"


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace unencodable characters with JSON escapes, so that JSON output stays valid."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[place : place + 2].hex() for place in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end


codecs.register_error(ESCAPES, _escape_unencodable)


class OutputStream:
    """A text stream that escapes unencodable characters and raises ``CommandError`` if it fails.

    An ``optional`` stream fails silently: a failing error stream must not raise another error.
    """

    def __init__(self, stream: Any, *, optional: bool = False) -> None:
        self._stream = stream
        self._optional = optional

    @property
    def is_closed(self) -> bool:
        """Whether the stream is closed or ``None``, Python's value for a closed descriptor."""
        return self._stream is None or getattr(self._stream, "closed", False)

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return not self.is_closed and hasattr(self._stream, "isatty") and self._stream.isatty()

    def write(self, text: str) -> None:
        """Write text, with escapes for characters that the encoding lacks.

        Raises:
            CommandError: the stream cannot be written to.
        """
        if self.is_closed:
            self._fail("it is closed")
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._attempt(self._stream.write, text.encode(encoding, ESCAPES).decode(encoding))

    def flush(self) -> None:
        """Write buffered text now, since a failure at process exit would print a traceback.

        Raises:
            CommandError: the stream cannot be written to.
        """
        if not self.is_closed and hasattr(self._stream, "flush"):
            self._attempt(self._stream.flush)

    def _attempt(self, act: Any, *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as exc:
            # Redirect the descriptor to the null device, so that Python's flush at exit succeeds.
            if self._stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    nowhere = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(nowhere, self._stream.fileno())
                    os.close(nowhere)
            gone = isinstance(exc, BrokenPipeError)
            self._fail("its reader has closed the pipe" if gone else f"{exc.strerror}")

    def _fail(self, reason: str) -> None:
        if not self._optional:
            raise CommandError(f"The standard output cannot be written to: {reason}.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
