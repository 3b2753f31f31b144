"""Folders of skills, and a server that has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny

FILES = {
    "fold-maps/SKILL.md": (
        "---\nname: fold-maps\ndescription: Folds maps. Use it on paper.\nlicense: MIT\n"
        'metadata:\n  version: "1.0"\n  since: 2026-01-31\n  tested: yes\n---\n\n# Fold\n'
    ),
    "fold-maps/references/papers.md": "Thin ones first.\r\n",
    "fold-maps/references/deep/er.txt": "Deeper.",
    "fold-maps/crease.png": b"\x89PNG\r\n\x00\xff",
}


def skill(name: str, description: str = "Does it.") -> str:
    """Return the text of the smallest SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n---\nDo it.\n"


def fill(folder: Path, files: Mapping[str, str | bytes] = FILES) -> Path:
    """Write these files to a folder, and return it."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def serving(folder: Path, **options: Any) -> MCPServer:
    """Return a server with the skills of a folder that everybody may use."""
    server = MCPServer("shelf", permission=AllowAny)
    server.register_skills(folder, **options)
    return server
