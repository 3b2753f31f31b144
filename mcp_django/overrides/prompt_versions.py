"""Versions of the prompts that are written in the admin: validation, saving, comparison.

A version contains the text of a prompt, but neither its name nor who may see it: restoring an old
version must not restore access that has been revoked since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from django.db import router, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from mcp_django.models import PromptText, PromptVersion
from mcp_django.overrides.prompt_language import PromptError
from mcp_django.overrides.state import publish_change
from mcp_django.overrides.texts import (
    PROMPT_COLUMNS,
    build_prompt,
    parse_arguments,
    parse_prompt_row,
)

CONTENT = ("title", "description", "arguments", "text")
TEXTS = ("title", "description", "text")
# The time of a comparison is quadratic in this, at worst.
MAX_COMPARED_LINES = 2000


class VersionConflict(Exception):
    """Another user has saved a newer version in the meantime; ``version`` is its number."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def content_of(prompt: PromptText) -> dict[str, Any]:
    """Return the content of a prompt that versions store."""
    return {name: getattr(prompt, name) for name in CONTENT}


def validate(prompt: PromptText) -> None:
    """Check that a prompt is valid.

    Raises:
        PromptError: the prompt is invalid; the message is for its author.
    """
    build_prompt(parse_prompt_row({name: getattr(prompt, name) for name in PROMPT_COLUMNS}))


def save_row(prompt: PromptText, *, author: Any, based_on: int) -> bool:
    """Save a prompt and, if its content has changed, a version; return whether it has changed.

    ``based_on`` is the version that the author was editing. The change is published after the
    commit.

    Raises:
        VersionConflict: ``based_on`` is not the newest version; nothing was saved.
    """
    alias = router.db_for_write(PromptText)
    with transaction.atomic(using=alias):
        newest = _locked(prompt, alias)
        if newest is not None and newest.version != based_on:
            raise VersionConflict(newest.version)
        says_more = newest is None or content_of(newest) != content_of(prompt)
        prompt.version = (newest.version if newest else 0) + int(says_more)
        prompt.save(using=alias)
        if says_more:
            PromptVersion._default_manager.using(alias).create(
                prompt=prompt,
                number=prompt.version,
                content=content_of(prompt),
                author=author,
            )
        publish_change([(prompt.server, "prompts")])
    return says_more


def _locked(prompt: PromptText, alias: str) -> PromptText | None:
    found = PromptText._default_manager.using(alias).select_for_update()
    # A prompt that was never saved has no primary key, so this finds no row.
    return found.filter(pk=prompt.pk).first()


def newest_version(pk: Any) -> int | None:
    """Return the current version of a prompt, and lock its row until the transaction ends."""
    alias = router.db_for_write(PromptText)
    found = PromptText._default_manager.using(alias).select_for_update().filter(pk=pk)
    return found.values_list("version", flat=True).first()


def versions_of(prompt: PromptText) -> QuerySet[PromptVersion]:
    """Return the versions of a prompt with their authors, the newest first."""
    rows = PromptVersion._default_manager.using(router.db_for_write(PromptVersion))
    return rows.filter(prompt=prompt).select_related("author")


def restore_version(
    prompt: PromptText, version: PromptVersion, *, author: Any, based_on: int
) -> bool:
    """Restore the content of a version, as a new version; return whether it differs.

    Raises:
        VersionConflict: another user has saved a newer version.
        PromptError: the content of the version has become invalid.
    """
    said = _check_content(version.content)
    for name in CONTENT:
        if name in said:
            setattr(prompt, name, said[name])
    validate(prompt)
    return save_row(prompt, author=author, based_on=based_on)


def _check_content(content: Any) -> dict[str, Any]:
    """Return the content of a version; check it, since it may not be written by the admin."""
    said: dict[str, Any] = content if isinstance(content, dict) else {"text": None}
    if not all(isinstance(said.get(name, ""), str) for name in TEXTS):
        raise PromptError(_("The version is invalid."))
    return said


# Differences ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """A line of a comparison: in both versions, or only in the old or the new one."""

    kind: Literal["same", "removed", "added"]
    text: str


def content_lines(content: Any) -> list[str]:
    """Return the content of a prompt as lines to compare."""
    if not isinstance(content, dict):
        return [_("The version is invalid.")]
    found = [
        f"{_('Title')}: {content.get('title', '')}",
        *f"{_('Description')}: {content.get('description', '')}".splitlines(),
    ]
    try:
        arguments = parse_arguments(content.get("arguments", []))
    except PromptError as exc:
        found.append(str(exc))
    else:
        for one in arguments:
            required = f", {_('required')}" if one.required else ""
            choices = f" ({', '.join(one.choices)})" if one.choices else ""
            line = f"{_('Argument')}: {one.name}{required}{choices} {one.description}"
            found.append(" ".join(line.split()))
    return [*found, "", *str(content.get("text", "")).splitlines()]


def compare_versions(before: Any, after: Any) -> Iterator[ComparedLine]:
    """Yield the lines that were removed, added or unchanged."""
    return compare_lines(content_lines(before), content_lines(after))


def compare_lines(old: list[str], new: list[str]) -> Iterator[ComparedLine]:
    """Yield the lines of both lists, each with its kind."""
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
