"""Skills: folders of files with instructions for a model, each file of them a resource.

Agent Skills (agentskills.io) says what a skill is, SEP-2640 how a server offers it. Who may see a
file is decided for it as for any resource; the entry of a skill lists the files its caller sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeAlias

from mcp_django.components.resource import Resource

SKILL_MD = "SKILL.md"
SCHEME = "skill://"
# What every host has to be able to load (SEP-2640, "Limits").
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
RESERVED = "io.modelcontextprotocol/"
"""The prefix of keys in ``metadata`` that extensions of the protocol keep for themselves."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def is_name(name: str) -> bool:
    """Whether a skill, or a folder of skills, can be called like this."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile(Resource):
    """One file of a skill: an ordinary resource, with what the entry of its skill says of it.

    ``frontmatter`` is that of a ``SKILL.md``, and ``None`` for every other file. ``digest`` is of
    the file's raw bytes.
    """

    digest: str
    frontmatter: Mapping[str, Any] | None = field(default=None, repr=False)


def digest_of(content: bytes) -> str:
    """The digest of a file as the entry of a skill has it."""
    return f"sha256:{sha256(content).hexdigest()}"


def parents(uri: str) -> Iterator[str]:
    """The directories that a file or directory lies in, the innermost first."""
    scheme, separator, path = uri.partition("://")
    while "/" in path:
        path = path.rpartition("/")[0]
        yield f"{scheme}{separator}{path}"


Directory: TypeAlias = Mapping[str, SkillFile | None]
"""The direct children of a directory by URI; ``None`` stands for another directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skills:
    """The skills among some resources, and the directories that they are in."""

    files: Mapping[str, tuple[SkillFile, ...]]
    """All files of each skill by the URI of its ``SKILL.md``, nested skills included."""
    entries: Mapping[str, SkillFile]
    """The ``SKILL.md`` of each skill by its URI."""
    directories: Mapping[str, Directory]

    def __bool__(self) -> bool:
        return bool(self.entries)


NO_SKILLS = Skills(
    files=MappingProxyType({}), entries=MappingProxyType({}), directories=MappingProxyType({})
)


def skills_among(resources: Iterable[Resource]) -> Skills:
    """What there is of skills among these resources."""
    found = sorted(
        (one for one in resources if isinstance(one, SkillFile)), key=lambda one: one.uri
    )
    if not found:
        return NO_SKILLS
    entries = {one.uri: one for one in found if one.frontmatter is not None}
    files: dict[str, list[SkillFile]] = {uri: [] for uri in entries}
    directories: dict[str, dict[str, SkillFile | None]] = {}
    for one in found:
        child: str = one.uri
        for parent in parents(one.uri):
            directories.setdefault(parent, {})[child] = one if child == one.uri else None
            if (holder := files.get(f"{parent}/{SKILL_MD}")) is not None:
                holder.append(one)
            child = parent
    return Skills(
        files={uri: tuple(each) for uri, each in files.items()},
        entries=entries,
        directories=directories,
    )
