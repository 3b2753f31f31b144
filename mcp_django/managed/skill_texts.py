"""Skills that were written in the admin, as resources like those of folders.

A row that cannot be offered, whoever put it into the table, is left out and logged, and nothing
else suffers.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.utils.translation import gettext as _

from mcp_django.core.resource import MAX_FILES, SKILL_MD, Resource, SkillFile
from mcp_django.managed.exposures.spec import is_names
from mcp_django.managed.narrowing import guards_of
from mcp_django.managed.prompt_texts import FROM_ADMIN
from mcp_django.sources.skills.building import build as built
from mcp_django.sources.skills.building import uri_of
from mcp_django.sources.skills.frontmatter import check
from mcp_django.sources.skills.problems import SkillError
from mcp_django.storage.databases import tables

logger = logging.getLogger("mcp_django")

COLUMNS = (
    "name",
    "description",
    "license",
    "compatibility",
    "text",
    "supporting_files",
    "groups",
    "permissions",
    "scopes",
)
FIELDS = ("name", "description", "license", "compatibility")
# Every process keeps all of it.
MAX_CHARACTERS = 500_000

_FILE = re.compile(r"^--- file: (.*)$", re.MULTILINE)
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,9}")
# Not printable by YAML 1.2 within quotes, or the end of a line there.
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSkill:
    """What a row says."""

    name: str
    description: str = ""
    license: str = ""
    compatibility: str = ""
    text: str = ""
    supporting_files: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


def written(row: Mapping[str, Any]) -> WrittenSkill:
    """What the columns of a row say.

    Raises:
        SkillError: one of them holds what it should not.
    """
    lists = {name: row[name] for name in ("groups", "permissions", "scopes")}
    for name, value in lists.items():
        if not is_names(value):
            # Never taken for "nobody was named", which would let everybody in.
            raise SkillError(_("%(name)s is no list of names.") % {"name": name}, field=name)
    given: dict[str, Any] = {name: row[name] for name in COLUMNS}
    return WrittenSkill(**{**given, **{name: tuple(value) for name, value in lists.items()}})


def frontmatter_of(said: WrittenSkill) -> dict[str, str]:
    """The frontmatter that a skill is offered with.

    Raises:
        SkillError: hosts would not take it; names the field.
    """
    found = {name: value for name in FIELDS if (value := getattr(said, name))}
    for name, value in found.items():
        if _UNWRITABLE.search(value):
            raise SkillError(_("It has characters that cannot be sent."), field=name)
    check(found)
    return found


def skill_md(said: WrittenSkill) -> str:
    """The ``SKILL.md`` that clients read.

    Raises:
        SkillError: hosts would not take it; names the field.
    """
    # A JSON string is a YAML string in quotes, and no parser takes it for anything else.
    lines = [
        f"{name}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in frontmatter_of(said).items()
    ]
    return "\n".join(["---", *lines, "---", "", said.text.strip("\n"), ""])


def files_of(text: str) -> dict[str, str]:
    """The files beside the ``SKILL.md`` by their paths.

    Raises:
        SkillError: a name is none, or there twice.
    """
    before, *rest = _FILE.split(text)
    if before.strip():
        message = _("Begin with a line “--- file: references/codes.md”, and what is in it below.")
        raise SkillError(message, field="supporting_files")
    paths = [*map(str.strip, rest[::2])]
    # Before each of them is compared with all others.
    if len(paths) >= MAX_FILES:
        raise SkillError(_("There are too many files."), field="supporting_files")
    found: dict[str, str] = {}
    for path, content in zip(paths, rest[1::2], strict=True):
        _check_path(path, found)
        found[path] = content.strip("\n") + "\n"
    return found


def _check_path(path: str, known: Iterable[str]) -> None:
    if not _PATH.fullmatch(path):
        message = _(
            "“%(path)s” is no name for a file: use A-Z a-z 0-9 _ . - with / between folders, and "
            "begin none of them with a point."
        )
        raise SkillError(message % {"path": path[:80]}, field="supporting_files")
    if path.rpartition("/")[2].lower() == SKILL_MD.lower():
        raise SkillError(
            _("The file SKILL.md is made of the other fields."), field="supporting_files"
        )
    for other in known:
        if path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/"):
            message = _("“%(path)s” is there twice, or is a folder, too.") % {"path": path[:80]}
            raise SkillError(message, field="supporting_files")


def build(said: WrittenSkill) -> list[SkillFile]:
    """What is offered of a skill.

    Raises:
        SkillError: it cannot be offered; the message is for its author, and names the field.
    """
    if not said.text.strip():
        raise SkillError(_("It says nothing."), field="text")
    if len(said.text) + len(said.supporting_files) > MAX_CHARACTERS:
        message = _("It has more than %(n)d characters; put it into a folder of the site.")
        raise SkillError(message % {"n": MAX_CHARACTERS}, field="text")
    texts = {SKILL_MD: skill_md(said), **files_of(said.supporting_files)}
    try:
        contents = {path: text.encode() for path, text in texts.items()}
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can hold and UTF-8 cannot.
        message = _("It has characters that cannot be sent.")
        raise SkillError(message, field="text") from None
    try:
        options = {
            "permission": list(guards_of(said.groups, said.permissions)) or None,
            "scopes": said.scopes,
        }
        return built(
            said.name,
            contents,
            {SKILL_MD: frontmatter_of(said)},
            origin=FROM_ADMIN,
            module=__name__,
            options=options,
        )
    except ImproperlyConfigured as exc:
        raise SkillError(str(exc)) from None


def read_skills() -> dict[str, tuple[WrittenSkill, ...]]:
    """The enabled skills by the name of their server, those left out that cannot be read."""
    model = tables.Skill
    rows = model._default_manager.using(router.db_for_write(model)).filter(is_enabled=True)
    found: dict[str, list[WrittenSkill]] = defaultdict(list)
    for row in rows.order_by("pk").values("pk", "server", *COLUMNS):
        try:
            found[row["server"]].append(written(row))
        except SkillError as exc:
            _complain(row["server"], row["name"], str(exc))
    return {server: tuple(skills) for server, skills in found.items()}


def with_skills(
    resources: Mapping[str, Resource], said: Iterable[WrittenSkill]
) -> dict[str, Resource]:
    """The resources of code and the written skills beside them; of one name, code's own counts."""
    found = dict(resources)
    for one in said:
        if is_taken(resources, one.name):
            continue
        try:
            files = build(one)
        except SkillError as exc:
            _complain("", one.name, str(exc))
            continue
        found.update((file.key, file) for file in files)
    return found


def is_taken(resources: Mapping[str, Resource], name: str) -> bool:
    """Whether code has something at or below the address of a skill of this name.

    Within a skill of code, or around one, a written one would become a part of it.
    """
    root = uri_of(name, "")
    addresses = (uri for one in resources.values() for uri in (one.uri, *one.aliases))
    return any(uri.startswith(root) for uri in addresses)


@lru_cache(maxsize=1000)
def _complain(server: str, name: str, why: str) -> None:
    where = f" of the server {server!r}" if server else ""
    logger.error("The written skill %r%s is not offered: %s", name[:128], where, why)
