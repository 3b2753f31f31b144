"""Questions for the folders that the user works in (MCP 2025-11-25, "Roots").

Deprecated since 2026-07-28, and still asked as long as clients declare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from mcp_django.questions.question import MalformedAnswer, Question


@dataclass(frozen=True, slots=True)
class Root:
    """A folder or file on the user's machine: guidance for the tool, not a permission."""

    uri: str
    name: str = ""

    @property
    def path(self) -> Path:
        """Where it is, on a machine that may not be this one."""
        return Path(url2pathname(urlsplit(self.uri).path))


class ListRoots(Question):
    """Ask for the folders that the user works in; the answer is a list of ``Root``."""

    method = "roots/list"
    needs = "roots"

    def to_params(self) -> dict[str, Any]:
        """There is nothing to say."""
        return {}

    def read(self, answer: Mapping[str, Any]) -> list[Root]:
        """The roots in the client's order."""
        roots = answer.get("roots")
        if not isinstance(roots, list):
            raise MalformedAnswer("roots must be an array")
        return [_root(one) for one in roots]


def _root(described: Any) -> Root:
    uri = described.get("uri") if isinstance(described, Mapping) else None
    if not isinstance(uri, str) or not uri.startswith("file://"):
        raise MalformedAnswer("each root has a uri that begins with file://")
    try:
        urlsplit(uri)
    except ValueError:
        raise MalformedAnswer("a root has a uri that cannot be read") from None
    name = described.get("name")
    return Root(uri, name if isinstance(name, str) else "")
