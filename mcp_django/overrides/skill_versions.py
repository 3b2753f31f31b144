"""Versions of the skills that are written in the admin.

As with prompts, a version contains the text of a skill, not who may see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import router, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from mcp_django.integrations.yaml_core import SkillError
from mcp_django.models import Skill, SkillVersion
from mcp_django.overrides.prompt_versions import ComparedLine, VersionConflict, compare_lines
from mcp_django.overrides.state import publish_change
from mcp_django.overrides.texts import SKILL_COLUMNS, build_skill, parse_skill_row

CONTENT = ("description", "license", "compatibility", "text", "supporting_files")


def content_of(skill: Skill) -> dict[str, Any]:
    """Return the content of a skill that versions store."""
    return {name: getattr(skill, name) for name in CONTENT}


def validate(skill: Skill) -> None:
    """Check that a skill is valid.

    Raises:
        SkillError: the skill is invalid; the message is for its author, and names the field.
    """
    build_skill(parse_skill_row({name: getattr(skill, name) for name in SKILL_COLUMNS}))


def save_row(skill: Skill, *, author: Any, based_on: int) -> bool:
    """Save a skill and, if its content has changed, a version; return whether it has changed.

    ``based_on`` is the version that the author was editing. The change is published after the
    commit.

    Raises:
        VersionConflict: ``based_on`` is not the newest version; nothing was saved.
    """
    alias = router.db_for_write(Skill)
    with transaction.atomic(using=alias):
        newest = _rows(alias).select_for_update().filter(pk=skill.pk).first()
        if newest is not None and newest.version != based_on:
            raise VersionConflict(newest.version)
        says_more = newest is None or content_of(newest) != content_of(skill)
        skill.version = (newest.version if newest else 0) + int(says_more)
        skill.save(using=alias)
        if says_more:
            SkillVersion._default_manager.using(alias).create(
                skill=skill, number=skill.version, content=content_of(skill), author=author
            )
        publish_change([(skill.server, "resources")])
    return says_more


def newest_version(pk: Any) -> int | None:
    """Return the current version of a skill, and lock its row until the transaction ends."""
    found = _rows(router.db_for_write(Skill)).select_for_update().filter(pk=pk)
    return found.values_list("version", flat=True).first()


def _rows(alias: str) -> QuerySet[Skill]:
    return Skill._default_manager.using(alias)


def versions_of(skill: Skill) -> QuerySet[SkillVersion]:
    """Return the versions of a skill with their authors, the newest first."""
    rows = SkillVersion._default_manager.using(router.db_for_write(SkillVersion))
    return rows.filter(skill=skill).select_related("author")


def restore_version(skill: Skill, version: SkillVersion, *, author: Any, based_on: int) -> bool:
    """Restore the content of a version, as a new version; return whether it differs.

    Raises:
        VersionConflict: another user has saved a newer version.
        SkillError: the content of the version has become invalid.
    """
    said = version.content
    if not isinstance(said, dict) or not all(isinstance(said.get(n, ""), str) for n in CONTENT):
        # The row was not written by the admin.
        raise SkillError(_("The version is invalid."))
    for name in CONTENT:
        if name in said:
            setattr(skill, name, said[name])
    validate(skill)
    return save_row(skill, author=author, based_on=based_on)


def content_lines(content: Any) -> list[str]:
    """Return the content of a skill as lines to compare."""
    if not isinstance(content, dict):
        return [_("The version is invalid.")]
    labels = {
        "description": _("Description"),
        "license": _("License"),
        "compatibility": _("Compatibility"),
    }
    found = [f"{label}: {content.get(name, '')}" for name, label in labels.items()]
    found += ["", *str(content.get("text", "")).splitlines()]
    return [*found, "", *str(content.get("supporting_files", "")).splitlines()]


def compare_versions(before: Any, after: Any) -> Iterator[ComparedLine]:
    """Yield the lines that were removed, added or unchanged."""
    return compare_lines(content_lines(before), content_lines(after))
