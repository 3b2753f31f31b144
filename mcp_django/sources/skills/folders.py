"""Skills in folders of the site: read once, when the process starts, as its code is.

What is served is what was read then, so digests and contents agree whatever happens to the folder
meanwhile. ``runserver`` starts anew when a file of it changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.autoreload import autoreload_started

from mcp_django.core.resource import MAX_BYTES, MAX_FILES, SKILL_MD, SkillFile, is_name
from mcp_django.sources.skills import frontmatter
from mcp_django.sources.skills.building import build
from mcp_django.sources.skills.problems import SkillError

# Left behind by Python when a script of a skill is imported.
NOT_FILES = frozenset({"__pycache__"})
# The latter is of a link to itself, before Python 3.13.
UNRESOLVED = (OSError, RuntimeError)
MAX_PREFIX = 5


class Folder:
    """Where the skills of a folder come from, in place of a class that code declares."""

    def __init__(self, module: str, path: Path) -> None:
        self.module = module
        self.path = path

    def __str__(self) -> str:
        return f"{self.module} ({self.path.name}/)"


def skills_in(
    folder: Path, *, prefix: str, module: str, options: Mapping[str, Any]
) -> list[SkillFile]:
    """The files of all skills below a folder, or of the one skill that it is.

    Raises:
        ImproperlyConfigured: there is none, or one of them cannot be offered; names the file.
    """
    try:
        folder = folder.resolve(strict=True)
    except UNRESOLVED:
        raise ImproperlyConfigured(
            f"register_skills: there is no folder {str(folder)!r}; a relative one is beside the "
            "module that registers it."
        ) from None
    segments = _segments(prefix)
    roots = list(_roots(folder, segments))
    if not roots:
        raise ImproperlyConfigured(
            f"register_skills: no folder below {str(folder)!r} has a {SKILL_MD}."
        )
    origin = Folder(module, folder)
    found: list[SkillFile] = []
    for path, root in roots:
        try:
            files = _files(path)
            own = _frontmatter(path, files)
            found += build(root, files, own, origin=origin, module=module, options=options)
        except SkillError as exc:
            raise ImproperlyConfigured(f"The skill {str(path)!r}: {exc}") from None
    _watch(folder)
    return found


def _segments(prefix: str) -> list[str]:
    segments = prefix.split("/") if prefix else []
    if len(segments) > MAX_PREFIX or not all(map(is_name, segments)):
        raise ImproperlyConfigured(
            f"register_skills: prefix={prefix!r}; write up to {MAX_PREFIX} names with slashes in "
            "between, each of a-z, 0-9 and single hyphens: 'acme/billing'."
        )
    return segments


def _roots(folder: Path, segments: list[str]) -> Iterator[tuple[Path, str]]:
    """The folders with a ``SKILL.md`` that is in no other skill, each with its path in URIs."""
    if (folder / SKILL_MD).is_file():
        yield folder, "/".join([*segments, folder.name])
        return
    for child in sorted(folder.iterdir()):
        if _is_hidden(child.name) or child.is_symlink() or not child.is_dir():
            continue
        if (child / SKILL_MD).is_file():
            yield child, "/".join([*segments, child.name])
        elif is_name(child.name) and len(segments) < MAX_PREFIX:
            # A folder of skills: its name stands before theirs.
            yield from _roots(child, [*segments, child.name])
        elif any(child.rglob(SKILL_MD)):
            raise ImproperlyConfigured(
                f"register_skills: there are skills below {child.name!r}, and its name cannot "
                "stand before theirs: use a-z, 0-9 and single hyphens, at most "
                f"{MAX_PREFIX} folders deep."
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in NOT_FILES


def _files(root: Path) -> dict[str, bytes]:
    """The content of every file below a folder by its path there, but for hidden ones."""
    found: dict[str, bytes] = {}
    size = 0
    for path in _walk(root):
        relative = path.relative_to(root).as_posix()
        _check_link(path, root)
        # Looked at before anything is read that no host would take.
        size += path.stat().st_size
        if len(found) >= MAX_FILES or size > MAX_BYTES:
            raise SkillError(
                f"it has more than {MAX_FILES} files, or more than {MAX_BYTES} bytes (16 MiB), "
                "and no host has to load that."
            )
        try:
            relative.encode()
            found[relative] = path.read_bytes()
        except (OSError, UnicodeError) as exc:
            raise SkillError(f"{relative!r} cannot be read: {exc}.") from None
    return found


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in folders:
            if Path(folder, name).is_symlink():
                raise SkillError(f"{name!r} is a link to a folder; put the folder itself there.")
        yield from (Path(folder, name) for name in sorted(names) if not _is_hidden(name))


def _refuse(exc: OSError) -> None:
    raise SkillError(f"the folder {Path(exc.filename).name!r} cannot be read: {exc.strerror}.")


def _check_link(path: Path, root: Path) -> None:
    """See that a file is one, and not a way out of the skill."""
    try:
        target = path.resolve(strict=True)
    except UNRESOLVED:
        raise SkillError(f"{path.name!r} is a link to nothing.") from None
    if not target.is_relative_to(root):
        raise SkillError(f"{path.name!r} is a link out of the skill; copy the file.")
    if any(map(_is_hidden, target.relative_to(root).parts)):
        raise SkillError(f"{path.name!r} is a link to a hidden file; copy the file.")
    if not target.is_file():
        raise SkillError(f"{path.name!r} is no file.")


def _frontmatter(root: Path, files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """That of the skill, and of each skill that is nested in it."""
    found = {}
    for path, content in files.items():
        folder, _, name = path.rpartition("/")
        if name != SKILL_MD:
            continue
        try:
            said = frontmatter.read(content.decode())
        except UnicodeDecodeError:
            raise SkillError(f"{path} is no UTF-8.") from None
        except SkillError as exc:
            raise SkillError(f"{path}: {exc}", field=exc.field) from None
        home = folder.rpartition("/")[2] or root.name
        if said["name"] != home:
            raise SkillError(
                f"{path}: it is named {said['name']!r} and lies in {home!r}; give both one name."
            )
        found[path] = said
    return found


def _watch(folder: Path) -> None:
    """Have ``runserver`` start anew when one of the files changes."""

    def watch(sender: Any, **_: Any) -> None:
        sender.watch_dir(folder, "**/*")

    autoreload_started.connect(watch, weak=False, dispatch_uid=f"mcp_django.skills:{folder}")
