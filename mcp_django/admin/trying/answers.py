"""An answer as the template shows it: part by part, cut where it is long, never as markup."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from mcp_django.admin.trying.attachments import IMAGES, PLAIN, SOUNDS, Keeper
from mcp_django.admin.trying.running import Round
from mcp_django.admin.trying.trials import Trial, url_for

Wire = Mapping[str, Any]

# More than a person reads; the rest is in the download.
MAX_SHOWN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: text, an image, a sound, a file or a link.

    ``source`` is where its content is and ``trial`` leads to the form for what it names.
    """

    kind: str
    role: str = ""
    text: str = ""
    is_cut: bool = False
    source: str = ""
    size: int = 0
    name: str = ""
    uri: str = ""
    media_type: str = ""
    trial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Progress, or a log message."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a round."""

    refusal: str = ""
    error: Wire = field(default_factory=dict)
    error_data: str = ""
    is_error: bool = False
    parts: Sequence[Part] = ()
    structured: Part | None = None
    notes: Sequence[Note] = ()
    dropped: int = 0


def answer_of(trial: Trial, came: Round, keeper: Keeper) -> Answer:
    """The answer in a round that asks nothing more."""
    error, result = came.response.get("error") or {}, came.result
    structured = result.get("structuredContent")
    return Answer(
        refusal=came.refusal,
        error=error,
        error_data=indented(error["data"]) if error.get("data") is not None else "",
        is_error=bool(result.get("isError")),
        parts=[_part(trial, block, role, keeper) for block, role in _blocks(result)],
        structured=None if structured is None else _text(indented(structured), keeper),
        notes=[note_of(one) for one in came.notes.kept],
        dropped=came.notes.dropped,
    )


def note_of(message: Wire) -> Note:
    """A notification in words."""
    params = message.get("params") or {}
    if message.get("method") == "notifications/progress":
        total = f" / {params['total']:g}" if "total" in params else ""
        said = f" {params['message']}" if params.get("message") else ""
        return Note(kind="progress", text=f"{params.get('progress', 0):g}{total}{said}")
    data = params.get("data")
    logger = f"{params['logger']}: " if params.get("logger") else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return Note(kind=str(params.get("level", "")), text=f"{logger}{text}"[:MAX_SHOWN])


def indented(value: Any) -> str:
    """A JSON value to be read."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _blocks(result: Wire) -> Iterator[tuple[Wire, str]]:
    for block in result.get("content", ()):
        yield block, ""
    for contents in result.get("contents", ()):
        yield {"type": "resource", "resource": contents}, ""
    for message in result.get("messages", ()):
        yield message["content"], str(message["role"])


def _part(trial: Trial, block: Wire, role: str, keeper: Keeper) -> Part:
    kind = block.get("type")
    if kind == "text":
        return _text(str(block.get("text", "")), keeper, role=role)
    if kind in ("image", "audio"):
        return _media(str(block.get("mimeType", "")), block.get("data"), keeper, role=role)
    if kind == "resource":
        inner = block.get("resource") or {}
        uri, media_type = str(inner.get("uri", "")), str(inner.get("mimeType", ""))
        details = {"role": role, "uri": uri, "trial": _trial(trial, uri)}
        if "blob" in inner:
            return _media(media_type, inner["blob"], keeper, **details)
        text = _readable(str(inner.get("text", "")), media_type)
        return _text(text, keeper, media_type=media_type, **details)
    if kind == "resource_link":
        uri = str(block.get("uri", ""))
        return Part(
            kind="link",
            role=role,
            uri=uri,
            name=str(block.get("title") or block.get("name") or uri),
            text=str(block.get("description", "")),
            media_type=str(block.get("mimeType", "")),
            trial=_trial(trial, uri),
        )
    return _text(indented(block), keeper, role=role)


def _text(text: str, keeper: Keeper, **details: Any) -> Part:
    if len(text) <= MAX_SHOWN:
        return Part(kind="text", text=text, size=len(text), **details)
    content = text.encode(errors="replace")
    return Part(
        kind="text",
        text=text[:MAX_SHOWN],
        is_cut=True,
        size=len(text),
        source=keeper.keep(content, PLAIN),
        **details,
    )


def _media(media_type: str, encoded: Any, keeper: Keeper, **details: Any) -> Part:
    source, size = keeper.keep_encoded(encoded, media_type)
    base = media_type.partition(";")[0].strip().lower()
    kind = "image" if base in IMAGES else "audio" if base in SOUNDS else "file"
    return Part(kind=kind, source=source, size=size, media_type=media_type, **details)


def _readable(text: str, media_type: str) -> str:
    """JSON indented; anything else as it is."""
    if not media_type.partition(";")[0].strip().endswith("json"):
        return text
    try:
        return indented(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _trial(trial: Trial, uri: str) -> str:
    """A link to the form for a resource of this server, empty for what no server here has."""
    try:
        scheme = urlsplit(uri).scheme
    except ValueError:
        return ""
    if not scheme or trial.visit.server.offered.find_resource(uri) is None:
        return ""
    return url_for(trial.visit, trial.caller, trial.revision, kind="resource", key=uri)
