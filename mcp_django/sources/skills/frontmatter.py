"""What stands at the top of a ``SKILL.md``: found, read, and held to the rules.

The rules are those of the Agent Skills specification (agentskills.io/specification); fields that
it does not know pass through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_django.core.resource import MAX_COMPATIBILITY, MAX_DESCRIPTION, MAX_NAME, RESERVED, is_name
from mcp_django.sources.skills import core_schema
from mcp_django.sources.skills.problems import SkillError

MAX_CHARACTERS = 16 * 1024

_FENCED = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


def read(text: str) -> dict[str, Any]:
    """The frontmatter of a ``SKILL.md`` as JSON, verbatim.

    Raises:
        ImproperlyConfigured: PyYAML is not installed.
        SkillError: there is none, or it does not say what a skill has to say.
    """
    # No further than it may reach, however long the file is.
    fenced = _FENCED.match(text[: MAX_CHARACTERS + 16])
    if fenced is None:
        raise SkillError(
            "it has to begin with a line ---, then name: and description:, then another line --- "
            f"(within {MAX_CHARACTERS} characters)."
        )
    found = core_schema.parse(fenced[1])
    if not isinstance(found, dict):
        raise SkillError("between the lines --- there have to be fields: name: and description:.")
    check(found)
    return found


def check(said: Mapping[str, Any]) -> None:
    """See that a frontmatter is one that hosts take.

    Raises:
        SkillError: naming the field.
    """
    name = said.get("name")
    if not isinstance(name, str) or not is_name(name):
        raise SkillError(
            f"the name {name!r:.80} has to be up to {MAX_NAME} of a-z, 0-9 and single hyphens "
            "between them.",
            field="name",
        )
    description = said.get("description")
    if not isinstance(description, str) or not description.strip():
        raise SkillError("it needs a description: what it does, and when to use it.", field=_DESCR)
    if len(description) > MAX_DESCRIPTION:
        raise SkillError(
            f"the description has {len(description)} characters; {MAX_DESCRIPTION} are allowed.",
            field=_DESCR,
        )
    _check_optional(said)


_DESCR = "description"


def _check_optional(said: Mapping[str, Any]) -> None:
    for name in ("license", "compatibility"):
        if name in said and not (isinstance(said[name], str) and said[name].strip()):
            raise SkillError(f"{name} is {said[name]!r:.40}; write a text.", field=name)
    if len(said.get("compatibility", "")) > MAX_COMPATIBILITY:
        raise SkillError(
            f"compatibility has more than {MAX_COMPATIBILITY} characters.", field="compatibility"
        )
    metadata = said.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise SkillError(f"metadata is {metadata!r:.40}; write keys with values.", field="metadata")
    for key in metadata:
        if str(key).startswith(RESERVED):
            raise SkillError(
                f"metadata has {key!r:.80}; keys that begin with {RESERVED} are the protocol's.",
                field="metadata",
            )
