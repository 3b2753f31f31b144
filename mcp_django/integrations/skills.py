"""Skills (SEP-2640): folders with a ``SKILL.md``, whose files become resources.

Folders are read once, when the process starts. The files are served from memory, so digests and
contents agree even if the folder changes later. ``runserver`` restarts when a file of a skill
changes. Skills that are written in the admin become resources by the same code.
"""

from __future__ import annotations

import mimetypes
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured
from django.utils.autoreload import autoreload_started

from mcp_django.components.component import ComponentFunction
from mcp_django.components.resource import (
    MAX_BYTES,
    MAX_COMPATIBILITY,
    MAX_DESCRIPTION,
    MAX_FILES,
    MAX_NAME,
    RESERVED_PREFIX,
    SKILL_MD,
    SKILL_SCHEME,
    SkillFile,
    file_digest,
    is_skill_name,
)
from mcp_django.integrations import yaml_core
from mcp_django.integrations.yaml_core import SkillError

# Without the MIME type files of the operating system, so that every process has the same types.
_TYPES = mimetypes.MimeTypes()
_OWN_TYPES = {
    ".md": "text/markdown",
    ".py": "text/x-python",
    ".sh": "text/x-shellscript",
    ".sql": "application/sql",
    ".toml": "application/toml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_PATH_SAFE = "/!$&'()*+,;=:@"


def build_skill_files(
    root: str,
    files: Mapping[str, bytes],
    frontmatter: Mapping[str, Mapping[str, Any]],
    *,
    origin: Any,
    module: str,
    options: Mapping[str, Any],
) -> list[SkillFile]:
    """Return the resources of one skill, given its files by their relative paths.

    ``root`` is the path of the skill on its server, without the scheme. ``frontmatter`` has the
    frontmatter of each ``SKILL.md``, including those of nested skills, by path.

    Raises:
        SkillError: there are too many files, or they are too large.
        ImproperlyConfigured: an option is not valid.
    """
    if len(files) > MAX_FILES:
        raise SkillError(f"it has {len(files)} files; hosts load at most {MAX_FILES}.")
    total = sum(map(len, files.values()))
    if total > MAX_BYTES:
        raise SkillError(f"it has {total} bytes; hosts load at most {MAX_BYTES} (16 MiB).")
    return [
        _file(root, path, content, frontmatter.get(path), origin, module, options)
        for path, content in files.items()
    ]


def skill_file_uri(root: str, path: str) -> str:
    """Return the URI of a file of a skill."""
    return f"{SKILL_SCHEME}{quote(root)}/{quote(path, safe=_PATH_SAFE)}"


def _file(
    root: str,
    path: str,
    content: bytes,
    frontmatter: Mapping[str, Any] | None,
    origin: Any,
    module: str,
    options: Mapping[str, Any],
) -> SkillFile:
    value: str | bytes = content
    with suppress(UnicodeDecodeError):
        # Hosts compare digests, so only text that encodes to the same bytes is sent as text.
        value = content.decode()
    fields = frontmatter or {}
    return SkillFile(
        uri=skill_file_uri(root, path),
        name=str(fields.get("name") or path.rpartition("/")[2]),
        description=str(fields.get("description", "")),
        mime_type=_mime_type(path, is_text=isinstance(value, str)),
        size=len(content),
        digest=file_digest(content),
        frontmatter=frontmatter,
        function=_function(value, origin, module),
        # Serving a file does not use the database.
        **{"read_only": True, "enforce": False, "atomic": False, "subscribe": False, **options},
    )


def _function(value: str | bytes, origin: Any, module: str) -> ComponentFunction:
    def skill_file() -> str | bytes:
        return value

    skill_file.__module__ = module
    skill_file.declared_by = origin  # type: ignore[attr-defined]
    return ComponentFunction(function=skill_file, is_async=False, context_parameter=None)


def _mime_type(path: str, *, is_text: bool) -> str:
    suffix = path[path.rfind(".") :].lower() if "." in path.rpartition("/")[2] else ""
    mime_type = _OWN_TYPES.get(suffix) or _TYPES.guess_type(f"file{suffix}")[0]
    return mime_type or ("text/plain" if is_text else "application/octet-stream")


# Created by Python when a script of a skill is imported.
IGNORED_FOLDERS = frozenset({"__pycache__"})
# Before Python 3.13, Path.resolve() raises RuntimeError for a symbolic link to itself.
RESOLVE_ERRORS = (OSError, RuntimeError)
MAX_PREFIX = 5


class SkillFolder:
    """The origin of the skills of a folder, in place of a class that declares components."""

    def __init__(self, module: str, path: Path) -> None:
        self.module = module
        self.path = path

    def __str__(self) -> str:
        return f"{self.module} ({self.path.name}/)"


def load_skills(
    folder: Path, *, prefix: str, module: str, options: Mapping[str, Any]
) -> list[SkillFile]:
    """Return the files of all skills below a folder, or of the skill in the folder itself.

    Raises:
        ImproperlyConfigured: no skill is found, or one is not valid; the message names the file.
    """
    try:
        folder = folder.resolve(strict=True)
    except RESOLVE_ERRORS:
        raise ImproperlyConfigured(
            f"register_skills: no folder named {str(folder)!r}; a relative path starts at the "
            "folder of the calling module."
        ) from None
    segments = prefix.split("/") if prefix else []
    if len(segments) > MAX_PREFIX or not all(map(is_skill_name, segments)):
        raise ImproperlyConfigured(
            f"register_skills: prefix={prefix!r} is not valid; write up to {MAX_PREFIX} names that "
            "are separated by slashes, each of a-z, 0-9 and single hyphens, as in 'acme/billing'."
        )
    roots = list(_find_roots(folder, segments))
    if not roots:
        raise ImproperlyConfigured(
            f"register_skills: no folder below {str(folder)!r} contains a {SKILL_MD}."
        )
    origin = SkillFolder(module, folder)
    skill_files: list[SkillFile] = []
    for path, root in roots:
        try:
            files = _read_files(path)
            own = _read_frontmatter(path, files)
            skill_files += build_skill_files(
                root, files, own, origin=origin, module=module, options=options
            )
        except SkillError as exc:
            raise ImproperlyConfigured(f"The skill {str(path)!r}: {exc}") from None
    # Restart ``runserver`` when a file in the folder changes.
    autoreload_started.connect(
        lambda sender, **_: sender.watch_dir(folder, "**/*"),
        weak=False,
        dispatch_uid=f"mcp_django.skills:{folder}",
    )
    return skill_files


def _find_roots(folder: Path, segments: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield the folders of skills that are not nested in another skill, with their URI paths."""
    if (folder / SKILL_MD).is_file():
        yield folder, "/".join([*segments, folder.name])
        return
    for child in sorted(folder.iterdir()):
        if _is_hidden(child.name) or child.is_symlink() or not child.is_dir():
            continue
        if (child / SKILL_MD).is_file():
            yield child, "/".join([*segments, child.name])
        elif is_skill_name(child.name) and len(segments) < MAX_PREFIX:
            # A folder of skills; its name is put before their names in URIs.
            yield from _find_roots(child, [*segments, child.name])
        elif any(child.rglob(SKILL_MD)):
            raise ImproperlyConfigured(
                f"register_skills: there are skills below {child.name!r}, but its name cannot be "
                "part of their URIs; use a-z, 0-9 and single hyphens, at most "
                f"{MAX_PREFIX} folders deep."
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in IGNORED_FOLDERS


def _read_files(root: Path) -> dict[str, bytes]:
    """Return the content of every file in a folder, except hidden files, by relative path."""
    files: dict[str, bytes] = {}
    size = 0
    for path in _walk(root):
        relative = path.relative_to(root).as_posix()
        # Check that the path is a regular file inside the skill.
        try:
            target = path.resolve(strict=True)
        except RESOLVE_ERRORS:
            raise SkillError(f"{path.name!r} is a broken symbolic link.") from None
        if not target.is_relative_to(root):
            raise SkillError(f"{path.name!r} is a symbolic link out of the skill; copy the file.")
        if any(map(_is_hidden, target.relative_to(root).parts)):
            raise SkillError(f"{path.name!r} is a symbolic link to a hidden file; copy the file.")
        if not target.is_file():
            raise SkillError(f"{path.name!r} is not a regular file.")
        # Check the limits before the file is read.
        size += path.stat().st_size
        if len(files) >= MAX_FILES or size > MAX_BYTES:
            raise SkillError(
                f"it has more than {MAX_FILES} files or more than {MAX_BYTES} bytes (16 MiB), "
                "which hosts do not have to load."
            )
        try:
            relative.encode()
            files[relative] = path.read_bytes()
        except (OSError, UnicodeError) as exc:
            raise SkillError(f"{relative!r} cannot be read: {exc}.") from None
    return files


def _walk(root: Path) -> Iterator[Path]:
    def refuse(exc: OSError) -> None:
        raise SkillError(f"the folder {Path(exc.filename).name!r} cannot be read: {exc.strerror}.")

    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        for name in folders:
            if Path(folder, name).is_symlink():
                raise SkillError(f"{name!r} is a symbolic link to a folder; copy the folder.")
        yield from (Path(folder, name) for name in sorted(names) if not _is_hidden(name))


def _read_frontmatter(root: Path, files: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Return the frontmatter of the skill and of each skill that is nested in it, by path."""
    frontmatter_by_path = {}
    for path, content in files.items():
        folder, _, name = path.rpartition("/")
        if name != SKILL_MD:
            continue
        try:
            frontmatter = parse_frontmatter(content.decode())
        except UnicodeDecodeError:
            raise SkillError(f"{path} is not valid UTF-8.") from None
        except SkillError as exc:
            raise SkillError(f"{path}: {exc}", field=exc.field) from None
        home = folder.rpartition("/")[2] or root.name
        if frontmatter["name"] != home:
            raise SkillError(
                f"{path}: the name is {frontmatter['name']!r} but the folder is {home!r}; use "
                "one name."
            )
        frontmatter_by_path[path] = frontmatter
    return frontmatter_by_path


# Frontmatter of a SKILL.md ------------------------------------------------------------------------

# Frontmatter is validated against the Agent Skills specification (agentskills.io/specification).
# Fields that the specification does not define are kept.

MAX_CHARACTERS = 16 * 1024

_FRONTMATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


def parse_frontmatter(text: str) -> dict[str, Any]:
    """Return the frontmatter of a ``SKILL.md`` as JSON values, unchanged.

    Raises:
        ImproperlyConfigured: PyYAML is not installed.
        SkillError: the frontmatter is missing or not valid.
    """
    # Search only up to the size limit, however long the file is.
    block = _FRONTMATTER.match(text[: MAX_CHARACTERS + 16])
    if block is None:
        raise SkillError(
            "it must begin with a line ---, then name: and description:, then another line --- "
            f"(within {MAX_CHARACTERS} characters)."
        )
    frontmatter = yaml_core.parse_yaml(block[1])
    if not isinstance(frontmatter, dict):
        raise SkillError("the lines between the --- must be fields: name: and description:.")
    check_frontmatter(frontmatter)
    return frontmatter


def check_frontmatter(frontmatter: Mapping[str, Any]) -> None:
    """Check that hosts accept the frontmatter.

    Raises:
        SkillError: a field is not valid; the exception names it.
    """
    name = frontmatter.get("name")
    if not isinstance(name, str) or not is_skill_name(name):
        raise SkillError(
            f"the name {name!r:.80} is not valid; write up to {MAX_NAME} characters of a-z, 0-9 "
            "and single hyphens between them.",
            field="name",
        )
    description = frontmatter.get("description")
    if not isinstance(description, str) or not description.strip():
        raise SkillError(
            "it needs a description of what it does and when to use it.", field="description"
        )
    if len(description) > MAX_DESCRIPTION:
        raise SkillError(
            f"the description has {len(description)} characters; at most {MAX_DESCRIPTION} are "
            "allowed.",
            field="description",
        )
    _check_optional_fields(frontmatter)


def _check_optional_fields(frontmatter: Mapping[str, Any]) -> None:
    for name in ("license", "compatibility"):
        if name in frontmatter and not (
            isinstance(frontmatter[name], str) and frontmatter[name].strip()
        ):
            raise SkillError(
                f"{name} is {frontmatter[name]!r:.40}; write a non-empty text.", field=name
            )
    if len(frontmatter.get("compatibility", "")) > MAX_COMPATIBILITY:
        raise SkillError(
            f"compatibility has more than {MAX_COMPATIBILITY} characters.", field="compatibility"
        )
    metadata = frontmatter.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise SkillError(
            f"metadata is {metadata!r:.40}; write a mapping of keys to values.", field="metadata"
        )
    for key in metadata:
        if str(key).startswith(RESERVED_PREFIX):
            raise SkillError(
                f"metadata has the key {key!r:.80}; keys that begin with {RESERVED_PREFIX} are "
                "reserved "
                "for the protocol.",
                field="metadata",
            )
