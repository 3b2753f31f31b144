"""From the files of a skill to its resources."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from mcp_django.core.component import ComponentFunction
from mcp_django.core.resource import MAX_BYTES, MAX_FILES, SCHEME, SkillFile, digest_of
from mcp_django.sources.skills.problems import SkillError

# Without the tables of the machine, so that every process says the same.
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


def build(
    root: str,
    files: Mapping[str, bytes],
    frontmatter: Mapping[str, Mapping[str, Any]],
    *,
    origin: Any,
    module: str,
    options: Mapping[str, Any],
) -> list[SkillFile]:
    """The resources of one skill, given its files by their paths within it.

    ``root`` is the path that the skill has among those of its server, without the scheme;
    ``frontmatter`` is by path too, of every ``SKILL.md`` that is a skill of its own.

    Raises:
        SkillError: there are too many, or they are too large.
        ImproperlyConfigured: an option cannot work.
    """
    if len(files) > MAX_FILES:
        raise SkillError(f"it has {len(files)} files; hosts load up to {MAX_FILES}.")
    total = sum(map(len, files.values()))
    if total > MAX_BYTES:
        raise SkillError(f"it has {total} bytes; hosts load up to {MAX_BYTES} (16 MiB).")
    return [
        _file(root, path, content, frontmatter.get(path), origin, module, options)
        for path, content in files.items()
    ]


def uri_of(root: str, path: str) -> str:
    """The URI of a file of a skill."""
    return f"{SCHEME}{quote(root)}/{quote(path, safe=_PATH_SAFE)}"


_PATH_SAFE = "/!$&'()*+,;=:@"


def _file(
    root: str,
    path: str,
    content: bytes,
    frontmatter: Mapping[str, Any] | None,
    origin: Any,
    module: str,
    options: Mapping[str, Any],
) -> SkillFile:
    value = _as_text(content)
    said = frontmatter or {}
    return SkillFile(
        uri=uri_of(root, path),
        name=str(said.get("name") or path.rpartition("/")[2]),
        description=str(said.get("description", "")),
        mime_type=_mime_type(path, is_text=isinstance(value, str)),
        size=len(content),
        digest=digest_of(content),
        frontmatter=frontmatter,
        function=_function(value, origin, module),
        # Nothing of it touches the database.
        **{"read_only": True, "enforce": False, "atomic": False, "subscribe": False, **options},
    )


def _as_text(content: bytes) -> str | bytes:
    """Text where the same bytes come out of it again, since hosts compare digests."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _function(value: str | bytes, origin: Any, module: str) -> ComponentFunction:
    def skill_file() -> str | bytes:
        return value

    skill_file.__module__ = module
    skill_file.declared_by = origin  # type: ignore[attr-defined]
    return ComponentFunction(function=skill_file, is_async=False, context_parameter=None)


def _mime_type(path: str, *, is_text: bool) -> str:
    suffix = path[path.rfind(".") :].lower() if "." in path.rpartition("/")[2] else ""
    known = _OWN_TYPES.get(suffix) or _TYPES.guess_type(f"file{suffix}")[0]
    return known or ("text/plain" if is_text else "application/octet-stream")
