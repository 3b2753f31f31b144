"""The Skills extension (SEP-2640): ``skills/list``, ``skills/get``, ``resources/directory/read``.

What the files hold is read by ``resources/read``, as of every resource; ``resources.py`` admits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from mcp_django.auth.principal import Principal
from mcp_django.core.resource import Resource, SkillFile, Skills
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol.cursors import paginate
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.runtime.handlers.paging import ListParams, page, scope_of
from mcp_django.runtime.handlers.resources import describe_resource
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.policy import admit, depends_on_caller, visible
from mcp_django.runtime.reasons import Verdicts
from mcp_django.runtime.signer import CURSORS

DIRECTORY = "inode/directory"


class GetParams(ListParams, kw_only=True):
    """Parameters of ``skills/get`` and ``resources/directory/read``."""

    uri: str


def list_skills(incoming: Incoming) -> dict[str, Any]:
    """The entries of the skills that the caller may see."""
    skills = incoming.server.offered.skills
    return page(
        incoming,
        skills.entries.values(),
        member="skills",
        describe=partial(_entry, skills, Sight(incoming.principal)),
        # An entry lists the files that its reader sees.
        is_private=_is_private(incoming, *(one for each in skills.files.values() for one in each)),
    )


def get_skill(incoming: Incoming) -> dict[str, Any]:
    """The entry of one skill.

    Raises:
        InvalidParams: no skill has this URI, or the caller may not see it.
    """
    params = read_params(incoming.request.params, GetParams)
    offered = incoming.server.offered
    skills = offered.skills
    skill = skills.entries.get(params.uri)
    is_admitted = admit(incoming.principal, skill, among=offered.resources.values())
    if skill is None or not is_admitted:
        raise InvalidParams(f"No skill is served at {params.uri[:200]!r}; see skills/list.")
    private = _is_private(incoming, *skills.files[skill.uri])
    return {
        "skill": _entry(skills, Sight(incoming.principal), skill),
        "ttlMs": int(skill.cache_ttl.total_seconds() * 1000),
        "cacheScope": "public" if skill.cache_public and not private else "private",
    }


def _is_private(incoming: Incoming, *files: SkillFile) -> bool:
    return any(depends_on_caller(incoming.server, one) for one in files)


class Sight:
    """What one caller sees of files: those of a skill ask the same, and he is asked once."""

    def __init__(self, principal: Principal) -> None:
        self._verdicts = Verdicts(principal)
        self._known: dict[tuple[int, tuple[str, ...]], bool] = {}

    def sees(self, file: SkillFile) -> bool:
        """Whether he may know of it."""
        key = id(file.permission), file.scopes
        if key not in self._known:
            verdicts = self._verdicts
            self._known[key] = visible(verdicts.principal, file, verdicts=verdicts)
        return self._known[key]

    def misses(self, resources: Iterable[Resource]) -> None:
        """Take as long for what is not there as for what the caller does not see of these."""
        self._verdicts.ask_all(resources)


def _entry(skills: Skills, sight: Sight, skill: SkillFile) -> dict[str, Any]:
    """What the caller sees of a skill: every file that is served to him, and no other."""
    return entry_of(skill, filter(sight.sees, skills.files[skill.uri]))


def entry_of(skill: SkillFile, files: Iterable[SkillFile]) -> dict[str, Any]:
    """The entry of a skill with these files."""
    return {
        "uri": skill.uri,
        "frontmatter": skill.frontmatter,
        "resources": [{"uri": one.uri, "digest": one.digest, "size": one.size} for one in files],
    }


def read_directory(incoming: Incoming) -> dict[str, Any]:
    """The direct children of a directory, as far as the caller may see them.

    Raises:
        InvalidParams: there is no such directory, or nothing in it for the caller to see.
    """
    params = read_params(incoming.request.params, GetParams)
    offered = incoming.server.offered
    skills = offered.skills
    sight = Sight(incoming.principal)
    children = [
        (uri, one)
        for uri, one in skills.directories.get(params.uri, {}).items()
        if any(map(sight.sees, _files_at(skills, uri, one)))
    ]
    if not children:
        sight.misses(offered.resources.values())
        raise InvalidParams(
            f"{params.uri[:200]!r} is no directory here; write it without a slash at its end."
        )
    entries, cursor = paginate(
        children,
        cursor=params.cursor,
        size=incoming.server.page_size,
        scope=f"{scope_of(incoming)}:{params.uri}",
        key=lambda child: child[0],
        signer=CURSORS,
    )
    result: dict[str, Any] = {"resources": [_child(uri, one) for uri, one in entries]}
    if cursor is not None:
        result["nextCursor"] = cursor
    return result


def _files_at(skills: Skills, uri: str, file: SkillFile | None) -> Iterator[SkillFile]:
    """A file, or all of a directory: one of which a caller sees none is not there for him."""
    waiting = [(uri, file)]
    while waiting:
        uri, file = waiting.pop()
        if file is None:
            waiting += skills.directories[uri].items()
        else:
            yield file


def _child(uri: str, file: SkillFile | None) -> dict[str, Any]:
    if file is None:
        return {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": DIRECTORY}
    return describe_resource(file)
