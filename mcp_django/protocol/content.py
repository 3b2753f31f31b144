"""What tools, resources and prompts return: content blocks, messages, contents, results.

Each value, annotations and icons included, writes itself in the richest wire shape, that of
2026-07-28; ``shapes`` cuts it down for older revisions. A wrong value raises where it is made, not
when it is sent. MCP 2026-07-28, "Tools", "Resources", "Prompts", "Icons".
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
from mcp_django.protocol.errors import clip
from mcp_django.protocol.uritemplate import check_uri

# Annotations and icons ----------------------------------------------------------------------------

Role: TypeAlias = Literal["user", "assistant"]

_SIZE = re.compile(r"any|[1-9][0-9]*x[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """Hints about whom some content is for and how much it matters."""

    audience: tuple[Role, ...] = ()
    priority: float | None = None
    """From 0, optional, to 1, required."""
    last_modified: str | datetime | None = None
    """A date and time, as text in ISO 8601."""

    def __post_init__(self) -> None:
        _check_tuple("audience", self.audience)
        for role in self.audience:
            _check_role(role)
        if self.priority is not None and not 0 <= self.priority <= 1:
            raise ValueError(f"priority is from 0 to 1, not {self.priority}")
        if isinstance(self.last_modified, str):
            _check_iso_8601(self.last_modified)

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
        raise ValueError(f"A role is 'user' or 'assistant', not {clip(repr(role))}")


def _check_iso_8601(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"last_modified is ISO 8601, not {clip(repr(text))}") from None


@dataclass(frozen=True, slots=True)
class Icon:
    """An image for a component; hosts show only `https:` and `data:` sources.

    A `src` that begins with a slash is a path on this site, to be made absolute before it leaves.
    """

    src: str
    _: KW_ONLY
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    """Such as `48x48`, or `any` for a scalable one."""
    theme: Literal["light", "dark"] | None = None

    def __post_init__(self) -> None:
        # Two slashes would name another host.
        is_path = self.src.startswith("/") and not self.src.startswith("//")
        if not is_path and not self.src.lower().startswith(("https:", "data:")):
            raise ValueError(
                "An icon's src is an https: or data: URI or a path on this site, "
                f"not {clip(repr(self.src))}"
            )
        _check_tuple("sizes", self.sizes)
        if not all(map(_SIZE.fullmatch, self.sizes)):
            raise ValueError(f"sizes are like ('48x48', 'any'), not {clip(repr(self.sizes))}")
        if self.theme not in (None, "light", "dark"):
            raise ValueError(f"theme is 'light' or 'dark', not {clip(repr(self.theme))}")

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
    # A string is a sequence of its characters, and the mistake easily made.
    if isinstance(values, str):
        raise ValueError(f"{name} is a tuple of strings, not the string {clip(repr(values))}")


# Content ------------------------------------------------------------------------------------------


class Unset(Enum):
    """The type of `UNSET`, which tells "no value" from `None`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the model."""

    text: str
    _: KW_ONLY
    annotations: Annotations | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        return _extend({"type": "text", "text": self.text}, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class Image:
    """A picture for the model."""

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
        return _extend(block, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class Audio:
    """Sound for the model."""

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
        return _extend(block, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """The contents of a resource, within a result or a message: either `text` or `data`."""

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
            raise ValueError("An embedded resource has either text or data")
        if self.data is not None:
            _check_bytes(self.data)
        _check_meta(self.meta)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block."""
        value = self.text if self.data is None else self.data
        resource = {"uri": self.uri, **_contents(value, self.mime_type)}
        return _extend({"type": "resource", "resource": resource}, self.annotations, self.meta)


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """A resource that the client may read if it wants to."""

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
        return _extend(block, self.annotations, self.meta)


Block: TypeAlias = Text | Image | Audio | EmbeddedResource | ResourceLink


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; a string is text."""

    content: str | Block
    _: KW_ONLY
    role: Role = "user"

    def __post_init__(self) -> None:
        _check_role(self.role)

    def to_wire(self) -> dict[str, Any]:
        """Return the prompt message."""
        return {"role": self.role, "content": _block(self.content).to_wire()}


@dataclass(frozen=True, slots=True)
class ResourceContents:
    """One entry of what reading a resource gives; a string is text, bytes are a blob."""

    content: str | bytes
    _: KW_ONLY
    uri: str | None = None
    """Where it differs from the URI that was read."""
    mime_type: str | None = None
    meta: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.content, str):
            _check_bytes(self.content)
        if self.uri is not None:
            check_uri(self.uri)
        _check_meta(self.meta)

    def to_wire(self, default_uri: str, default_mime: str | None = None) -> dict[str, Any]:
        """Return the entry; the defaults are those of the resource."""
        mime_type = default_mime if self.mime_type is None else self.mime_type
        uri = default_uri if self.uri is None else self.uri
        return _extend({"uri": uri, **_contents(self.content, mime_type)}, None, self.meta)


@dataclass(frozen=True, slots=True, init=False)
class ToolResult:
    """The whole result of a tool, for those who need to say all of it."""

    content: tuple[str | Block, ...]
    structured: Any
    """Any JSON value, `None` among them; `UNSET` leaves the member out."""
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
        """Return the result; `content` is there even if there is none."""
        wire: dict[str, Any] = {"content": [_block(item).to_wire() for item in self.content]}
        if self.structured is not UNSET:
            wire["structuredContent"] = self.structured
        if self.is_error:
            wire["isError"] = True
        return _extend(wire, None, self.meta)


def _block(content: str | Block) -> Block:
    return Text(content) if isinstance(content, str) else content


def _contents(content: str | bytes | None, mime_type: str | None) -> dict[str, Any]:
    value = {"text": content} if isinstance(content, str) else {"blob": _base64(content or b"")}
    return value if mime_type is None else {"mimeType": mime_type, **value}


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _extend(
    wire: dict[str, Any], annotations: Annotations | None, meta: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Add what is optional everywhere."""
    if annotations is not None and (members := annotations.to_wire()):
        wire["annotations"] = members
    if meta:
        wire["_meta"] = dict(meta)
    return wire


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"Binary content is bytes, not {type(data).__name__}")


def _check_meta(meta: Mapping[str, Any] | None) -> None:
    if meta is not None:
        check_author_meta(meta)
