"""What a preview shows of a skill."""

from __future__ import annotations

import json
from typing import Any

from mcp_django.execution.handlers.resources import entry_of
from mcp_django.managed.skill_texts import COLUMNS, build, written
from mcp_django.models import Skill


def previewed(skill: Skill, _data: Any) -> dict[str, Any]:
    """Its files, as clients read them, and its entry in the list."""
    files = build(written({name: getattr(skill, name) for name in COLUMNS}))
    files.sort(key=lambda one: one.uri)
    entry = entry_of(next(one for one in files if one.frontmatter is not None), files)
    return {
        "entry": json.dumps(entry, indent=2, ensure_ascii=False),
        "files": [{"uri": one.uri, "text": one.callable()} for one in files],
    }
