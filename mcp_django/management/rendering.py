"""The answer to a call as text for a person, and the binary parts of it as files."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Wire = Mapping[str, Any]

# Tab, newline and carriage return aside, these can redraw a terminal or type into it.
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text with control characters spelled out, since it may come from anybody."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def render(result: Wire) -> str:
    """A result of a tool, a resource or a prompt."""
    if "messages" in result:
        return "\n\n".join(_message(message) for message in result["messages"])
    if "contents" in result:
        return _contents(result["contents"])
    return "\n".join(_tool_parts(result))


def binaries(result: Wire) -> Iterator[bytes]:
    """The images, sounds and blobs of a result, in their order."""
    for block in _blocks(result):
        encoded = block.get("data") or block.get("blob")
        if isinstance(encoded, str):
            yield base64.b64decode(encoded)


def _blocks(result: Wire) -> Iterator[Wire]:
    found = [
        *result.get("content", ()),
        *result.get("contents", ()),
        *(message["content"] for message in result.get("messages", ())),
    ]
    for block in found:
        yield block["resource"] if block.get("type") == "resource" else block


def _tool_parts(result: Wire) -> Iterator[str]:
    """The blocks, and the structured content in place of the text that says the same."""
    structured = result.get("structuredContent")
    for block in result["content"]:
        if structured is None or not _says(block, structured):
            yield _block(block)
    if structured is not None:
        yield _pretty(structured)


def _says(block: Wire, structured: Any) -> bool:
    try:
        return bool(block["type"] == "text" and json.loads(block["text"]) == structured)
    except (ValueError, RecursionError):
        return False


def _message(message: Wire) -> str:
    return f"{message['role']}:\n{_block(message['content'])}"


def _contents(contents: Iterable[Wire]) -> str:
    found = list(contents)
    if len(found) == 1 and "text" in found[0]:
        return str(found[0]["text"])
    return "\n\n".join(_resource(one) for one in found)


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
    kind = contents.get("mimeType", "of no stated type")
    if "blob" in contents:
        return f"[{contents['uri']}, {kind}, {_size(contents['blob'])}]"
    return f"[{contents['uri']}, {kind}]\n{contents['text']}"


def _size(encoded: str) -> str:
    return f"{len(base64.b64decode(encoded)):,} bytes"


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
