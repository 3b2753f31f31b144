"""What a preview shows of a skill."""

from __future__ import annotations

import json
from typing import Any

from mcp_django.execution.handlers.resources import entry_of
from mcp_django.models import Skill
from mcp_django.overrides.texts import SKILL_COLUMNS, build_skill, written_skill


def previewed(skill: Skill, _data: Any) -> dict[str, Any]:
    """Its files, as clients read them, and its entry in the list."""
    files = build_skill(written_skill({name: getattr(skill, name) for name in SKILL_COLUMNS}))
    files.sort(key=lambda one: one.uri)
    entry = entry_of(next(one for one in files if one.frontmatter is not None), files)
    return {
        "entry": json.dumps(entry, indent=2, ensure_ascii=False),
        "files": [{"uri": one.uri, "text": one.callable()} for one in files],
    }
