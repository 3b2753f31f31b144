"""Return values of tools, resources and prompts: content blocks, messages, contents and results.

Each value, including annotations and icons, serializes itself to the most complete wire format,
that of 2026-07-28; ``projection`` reduces it for older revisions. Invalid values raise an exception
when they are created, not when they are sent. MCP 2026-07-28, "Tools", "Resources", "Prompts",
"Icons".
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

from mcp_django.protocol.envelope import check_author_meta
from mcp_django.protocol.text import clip
from mcp_django.protocol.uritemplate import check_uri

Role: TypeAlias = Literal["user", "assistant"]

_SIZE = re.compile(r"any|[1-9][0-9]*x[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """Hints about the audience and the importance of some content."""

    audience: tuple[Role, ...] = ()
    priority: float | None = None
    """From 0 (optional) to 1 (required)."""
    last_modified: str | datetime | None = None
    """A `datetime`, or text in ISO 8601."""

    def __post_init__(self) -> None:
        _check_tuple("audience", self.audience)
        for role in self.audience:
            _check_role(role)
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(f"priority must be between 0 and 1, not {self.priority}")
        if isinstance(self.last_modified, str):
            try:
                datetime.fromisoformat(self.last_modified)
            except ValueError:
                raise ValueError(
                    f"last_modified must be in ISO 8601, not {clip(repr(self.last_modified))}"
                ) from None

    def to_wire(self) -> dict[str, Any]:
        """Return the members that are set."""
        wire: dict[str, Any] = {}
        if self.audience:
            wire["audience"] = list(self.audience)
        if self.priority is not None:
            wire["priority"] = self.priority
        if isinstance(self.last_modified, datetime):
            wire["lastModified"] = self.last_modified.isoformat().replace("+00:00", "Z")
        elif self.last_modified is not None:
            wire["lastModified"] = self.last_modified
        return wire


def _check_role(role: str) -> None:
    if role not in ("user", "assistant"):
        raise ValueError(f"A role must be 'user' or 'assistant', not {clip(repr(role))}")


@dataclass(frozen=True, slots=True)
class Icon:
    """An icon of a component; hosts show only `https:` and `data:` sources.

    A `src` that starts with a slash is a path on this site; it is made absolute before it is sent.
    """

    src: str
    _: KW_ONLY
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    """Sizes such as `48x48`, or `any` for a scalable icon."""
    theme: Literal["light", "dark"] | None = None

    def __post_init__(self) -> None:
        # A URL that starts with two slashes refers to another host.
        is_path = self.src.startswith("/") and not self.src.startswith("//")
        if not is_path and not self.src.lower().startswith(("https:", "data:")):
            raise ValueError(
                "An icon's src must be an https: or data: URI or a path on this site, "
                f"not {clip(repr(self.src))}"
            )
        _check_tuple("sizes", self.sizes)
        if not all(map(_SIZE.fullmatch, self.sizes)):
            raise ValueError(
                f"sizes must be values such as ('48x48', 'any'), not {clip(repr(self.sizes))}"
            )
        if self.theme not in (None, "light", "dark"):
            raise ValueError(f"theme must be 'light' or 'dark', not {clip(repr(self.theme))}")

    def to_wire(self) -> dict[str, Any]:
        """Return the members that are set."""
        wire: dict[str, Any] = {"src": self.src}
        if self.mime_type is not None:
            wire["mimeType"] = self.mime_type
        if self.sizes:
            wire["sizes"] = list(self.sizes)
        if self.theme is not None:
            wire["theme"] = self.theme
        return wire


def _check_tuple(name: str, values: Sequence[str]) -> None:
    # A string is also a sequence of strings, so a missing comma would go unnoticed.
    if isinstance(values, str):
        raise ValueError(f"{name} must be a tuple of strings, not the string {clip(repr(values))}")


class Unset(Enum):
    """The type of `UNSET`, which distinguishes "no value" from `None`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Text:
    """A text content block."""

    text: str
    _: KW_ONLY
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        return _add_optional_members(
            {"type": "text", "text": self.text}, self.annotations, self.meta
        )


@dataclass(frozen=True, slots=True)
class Image:
    """An image content block."""

    data: bytes
    _: KW_ONLY
    mime_type: str = "image/png"
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        block = {"type": "image", "data": _base64(self.data), "mimeType": self.mime_type}
        return _add_optional_members(block, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class Audio:
    """An audio content block."""

    data: bytes
    _: KW_ONLY
    mime_type: str = "audio/wav"
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_bytes(self.data)
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        block = {"type": "audio", "data": _base64(self.data), "mimeType": self.mime_type}
        return _add_optional_members(block, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """The contents of a resource in a result or a message: either `text` or `data`."""

    uri: str
    _: KW_ONLY
    text: str | None = None
    data: bytes | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_uri(self.uri)
        if (self.text is None) == (self.data is None):
            raise ValueError("An embedded resource must have either text or data")
        if self.data is not None:
            _check_bytes(self.data)
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        value = self.text if self.data is None else self.data
        resource = {"uri": self.uri, **_contents(value, self.mime_type)}
        return _add_optional_members(
            {"type": "resource", "resource": resource}, self.annotations, self.meta
        )


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A link to a resource that the client may read."""

    uri: str
    name: str
    _: KW_ONLY
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """In bytes."""
    icons: tuple[Icon, ...] = ()
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_uri(self.uri)
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        block: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        optional = {
            "title": self.title,
            "description": self.description,
            "mimeType": self.mime_type,
            "size": self.size,
        }
        block.update({key: value for key, value in optional.items() if value is not None})
        if self.icons:
            block["icons"] = [icon.to_wire() for icon in self.icons]
        return _add_optional_members(block, self.annotations, self.meta)


Block: TypeAlias = Text | Image | Audio | EmbeddedResource | ResourceLink


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; a string becomes a text block."""

    content: str | Block
    _: KW_ONLY
    role: Role = "user"

    def __post_init__(self) -> None:
        _check_role(self.role)

    def to_wire(self) -> dict[str, Any]:
        """Return the prompt message."""
        return {"role": self.role, "content": _to_block(self.content).to_wire()}


@dataclass(frozen=True, slots=True)
class ResourceContents:
    """One entry of the result of reading a resource; a string is text, bytes are a blob."""

    content: str | bytes
    _: KW_ONLY
    uri: str | None = None
    """The URI of the entry, if it is not the URI that was read."""
    mime_type: str | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.content, str):
            _check_bytes(self.content)
        if self.uri is not None:
            check_uri(self.uri)
        _check_meta(self.meta)

    def to_wire(self, default_uri: str, default_mime: str | None = None) -> dict[str, Any]:
        """Return the entry; the defaults are the URI and MIME type of the resource."""
        mime_type = default_mime if self.mime_type is None else self.mime_type
        uri = default_uri if self.uri is None else self.uri
        return _add_optional_members(
            {"uri": uri, **_contents(self.content, mime_type)}, None, self.meta
        )


@dataclass(frozen=True, slots=True, init=False)
class ToolResult:
    """A complete tool result: content blocks, structured content, error flag and `_meta`."""

    content: tuple[str | Block, ...]
    structured: Any
    """Any JSON value, including `None`; `UNSET` omits the member."""
    is_error: bool
    meta: Mapping[str, Any] | None

    def __init__(
        self,
        *content: str | Block,
        structured: Any = UNSET,
        is_error: bool = False,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        _check_meta(meta)
        object.__setattr__(self, "content", content)
        object.__setattr__(self, "structured", structured)
        object.__setattr__(self, "is_error", is_error)
        object.__setattr__(self, "meta", meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the result; `content` is always present, even if it is empty."""
        wire: dict[str, Any] = {"content": [_to_block(part).to_wire() for part in self.content]}
        if self.structured is not UNSET:
            wire["structuredContent"] = self.structured
        if self.is_error:
            wire["isError"] = True
        return _add_optional_members(wire, None, self.meta)


def _to_block(content: str | Block) -> Block:
    return Text(content) if isinstance(content, str) else content


def _contents(content: str | bytes | None, mime_type: str | None) -> dict[str, Any]:
    value = {"text": content} if isinstance(content, str) else {"blob": _base64(content or b"")}
    return value if mime_type is None else {"mimeType": mime_type, **value}


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _add_optional_members(
    wire: dict[str, Any], annotations: Annotations | None, meta: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Add the optional members `annotations` and `_meta`."""
    if annotations is not None and (members := annotations.to_wire()):
        wire["annotations"] = members
    if meta:
        wire["_meta"] = dict(meta)
    return wire


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"Binary content must be bytes, not {type(data).__name__}")


def _check_meta(meta: Mapping[str, Any] | None) -> None:
    if meta is not None:
        check_author_meta(meta)
