"""Versions of the prompts and skills that are written in the admin: saving and comparison.

A version contains the content of a text, but neither its name nor who may see it: restoring an old
version must not restore access that has been revoked since. ``TextType`` describes how prompts and
skills differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.utils.translation import gettext as _

from mcp_django.integrations.yaml_core import SkillError
from mcp_django.models import PromptText, Skill
from mcp_django.overrides.prompt_language import PromptError
from mcp_django.overrides.state import publish_change
from mcp_django.overrides.texts import (
    PROMPT_COLUMNS,
    SKILL_COLUMNS,
    build_prompt,
    build_skill,
    parse_arguments,
    parse_prompt_row,
    parse_skill_row,
)
from mcp_django.tenants import of_tenant

# The time of a comparison is at worst quadratic in the number of lines.
MAX_COMPARED_LINES = 2000


class VersionConflict(Exception):
    """Another user has saved a newer version in the meantime; ``version`` is its number."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """A line of a comparison: in both versions, or only in the old or the new one."""

    kind: Literal["same", "removed", "added"]
    text: str


@dataclass(frozen=True, kw_only=True)
class TextType:
    """Prompts or skills: how their rows are built, and what their versions contain."""

    model: type[Model]
    list_name: Literal["prompts", "resources"]
    """The list that contains the components."""
    columns: tuple[str, ...]
    """The columns from which ``build_row`` makes the components."""
    build_row: Callable[[Mapping[str, Any]], Any]
    error: type[ValueError]
    """The exception for a row that is invalid; its ``field``, if any, names the form field."""
    content: tuple[str, ...]
    """The columns that versions store."""
    describe: Callable[[Mapping[str, Any]], list[str]]
    """Returns the content of a version as lines to compare."""

    def build(self, row: Any) -> Any:
        """Return the result of ``build_row`` for a row.

        Raises:
            PromptError or SkillError: the row is invalid; the message is for its author.
        """
        return self.build_row({name: getattr(row, name) for name in self.columns})

    def save(self, row: Any, *, author: Any, based_on: int) -> bool:
        """Save a row and, if its content has changed, a version; return whether it has changed.

        ``based_on`` is the version that the author was editing. The change is published after the
        commit.

        Raises:
            VersionConflict: ``based_on`` is not the newest version; nothing was saved.
        """
        alias = router.db_for_write(self.model)
        with transaction.atomic(using=alias):
            # A row that was never saved has no primary key, so no row matches.
            newest = self._locked(row.pk).first()
            if newest is not None and newest.version != based_on:
                raise VersionConflict(newest.version)
            has_changed = newest is None or self._content_of(newest) != self._content_of(row)
            row.version = (newest.version if newest else 0) + int(has_changed)
            row.save(using=alias)
            if has_changed:
                content = self._content_of(row)
                row.versions.create(number=row.version, content=content, author=author)
            publish_change([(row.server, self.list_name)])
        return has_changed

    def newest_version(self, pk: Any) -> int | None:
        """Return the current version of a row, and lock the row until the transaction ends."""
        return self._locked(pk).values_list("version", flat=True).first()

    def _locked(self, pk: Any) -> QuerySet[Any]:
        rows = of_tenant(self.model, router.db_for_write(self.model))
        return rows.select_for_update().filter(pk=pk)

    def _content_of(self, row: Any) -> dict[str, Any]:
        return {name: getattr(row, name) for name in self.content}

    def versions_of(self, row: Any) -> QuerySet[Any]:
        """Return the versions of a row with their authors, the newest first."""
        rows: QuerySet[Any] = row.versions.using(router.db_for_write(row.versions.model))
        return rows.select_related("author")

    def restore(self, row: Any, version: Any, *, author: Any, based_on: int) -> bool:
        """Restore the content of a version, as a new version; return whether it differs.

        Raises:
            VersionConflict: another user has saved a newer version.
            PromptError or SkillError: the content of the version has become invalid.
        """
        content = version.content
        texts = [name for name in self.content if name != "arguments"]
        if not isinstance(content, dict) or not all(
            isinstance(content.get(n, ""), str) for n in texts
        ):
            # The row was not written by the admin.
            raise self.error(_("The version is invalid."))
        for name in self.content:
            if name in content:
                setattr(row, name, content[name])
        self.build(row)
        return self.save(row, author=author, based_on=based_on)

    def content_lines(self, content: Any) -> list[str]:
        """Return the content of a version as lines to compare."""
        if not isinstance(content, dict):
            return [_("The version is invalid.")]
        return self.describe(content)

    def differences(self, before: Any, after: Any) -> Iterator[ComparedLine]:
        """Yield the lines that were removed, added or unchanged between two contents."""
        old, new = self.content_lines(before), self.content_lines(after)
        if max(len(old), len(new)) > MAX_COMPARED_LINES:
            yield from (ComparedLine("removed", text) for text in old)
            yield from (ComparedLine("added", text) for text in new)
            return
        for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag == "equal":
                yield from (ComparedLine("same", text) for text in old[a:b])
                continue
            yield from (ComparedLine("removed", text) for text in old[a:b])
            yield from (ComparedLine("added", text) for text in new[c:d])


def _prompt_lines(content: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{_('Title')}: {content.get('title', '')}",
        *f"{_('Description')}: {content.get('description', '')}".splitlines(),
    ]
    try:
        arguments = parse_arguments(content.get("arguments", []))
    except PromptError as exc:
        lines.append(str(exc))
    else:
        for argument in arguments:
            required = f", {_('required')}" if argument.required else ""
            choices = f" ({', '.join(argument.choices)})" if argument.choices else ""
            line = f"{_('Argument')}: {argument.name}{required}{choices} {argument.description}"
            lines.append(" ".join(line.split()))
    return [*lines, "", *str(content.get("text", "")).splitlines()]


def _skill_lines(content: Mapping[str, Any]) -> list[str]:
    labels = {
        "description": _("Description"),
        "license": _("License"),
        "compatibility": _("Compatibility"),
    }
    lines = [f"{label}: {content.get(name, '')}" for name, label in labels.items()]
    for name in ("text", "supporting_files"):
        lines += ["", *str(content.get(name, "")).splitlines()]
    return lines


PROMPTS = TextType(
    model=PromptText,
    list_name="prompts",
    columns=PROMPT_COLUMNS,
    build_row=lambda row: build_prompt(parse_prompt_row(row)),
    error=PromptError,
    content=("title", "description", "arguments", "text"),
    describe=_prompt_lines,
)
SKILLS = TextType(
    model=Skill,
    list_name="resources",
    columns=SKILL_COLUMNS,
    build_row=lambda row: build_skill(parse_skill_row(row)),
    error=SkillError,
    content=("description", "license", "compatibility", "text", "supporting_files"),
    describe=_skill_lines,
)
