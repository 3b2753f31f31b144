"""What is decided of a skill holds for each of its files: they are one thing to its reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mcp_django.core.component import Component
from mcp_django.core.resource import SKILL_MD, Resource, SkillFile, parents
from mcp_django.managed.narrowing import Override, narrowed


def with_their_skills(
    resources: dict[str, Resource], overrides: Mapping[tuple[str, str], Override]
) -> dict[str, Resource]:
    """Resources, the files of skills among them as narrow as the skills that they belong to."""
    if not overrides or not any(isinstance(one, SkillFile) for one in resources.values()):
        return resources
    guarded = {key: _as_its_skills(one, overrides) for key, one in resources.items()}
    return {key: one for key, one in guarded.items() if one is not None}


def _as_its_skills(
    resource: Resource, overrides: Mapping[tuple[str, str], Override]
) -> Resource | None:
    found: Resource | None = resource
    if not isinstance(resource, SkillFile):
        return found
    for parent in parents(resource.uri):
        skill = f"{parent}/{SKILL_MD}"
        said = overrides.get((resource.kind, skill))
        if found is not None and said is not None and skill != resource.uri:
            # Its words are those of its SKILL.md alone.
            found = narrowed(found, replace(said, title="", description=""))
    return found


def is_decided_with_another(component: Component) -> bool:
    """Whether nothing is decided of it alone: a file of a skill that is not its ``SKILL.md``."""
    return isinstance(component, SkillFile) and component.frontmatter is None
