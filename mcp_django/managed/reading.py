"""What the admin says of all servers, read at once."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, get_args

from django.db import router

from mcp_django.conf import Rate, parse_all
from mcp_django.core.component import SCOPE
from mcp_django.core.tool import Approval
from mcp_django.managed.exposures.spec import ExposureSpec, is_names, read_exposures
from mcp_django.managed.narrowing import AS_IN_CODE, Override
from mcp_django.managed.prompt_texts import WrittenPrompt, read_prompts
from mcp_django.managed.skill_texts import WrittenSkill, read_skills
from mcp_django.storage.databases import tables

logger = logging.getLogger("mcp_django")

Said: TypeAlias = Mapping[str, Any]
"""The columns of a row."""

KEY = ("server", "kind", "key")
NARROWING = ("is_enabled", "title", "groups", "permissions", "rate")
COMPONENT_NARROWING = ("description", "scopes", "approval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What the admin says of one server."""

    is_enabled: bool = True
    title: str = ""
    instructions: str = ""
    groups: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    rates: tuple[Rate, ...] = ()
    overrides: dict[tuple[str, str], Override] = field(default_factory=dict)
    """By kind and key; those that say nothing are left out."""
    prompts: tuple[WrittenPrompt, ...] = ()
    """Those that were written in the admin."""
    skills: tuple[WrittenSkill, ...] = ()
    """Those that were written in the admin."""
    exposures: tuple[ExposureSpec, ...] = ()
    """The models and views that are offered because the admin says so."""


UNMANAGED = Decisions()


def read() -> dict[str, Decisions]:
    """The decisions by the name of the server; servers of which nothing is said are left out."""
    overrides = _overrides()
    found = {
        said["name"]: decisions_of(said, overrides.pop(said["name"], {}))
        for said in _rows(tables.Server, "name", "instructions", *NARROWING)
    }
    found.update({name: Decisions(overrides=rest) for name, rest in overrides.items()})
    for name, prompts in read_prompts().items():
        found[name] = replace(found.get(name, UNMANAGED), prompts=prompts)
    for name, skills in read_skills().items():
        found[name] = replace(found.get(name, UNMANAGED), skills=skills)
    for name, exposures in read_exposures().items():
        found[name] = replace(found.get(name, UNMANAGED), exposures=exposures)
    return {name: one for name, one in found.items() if one != UNMANAGED}


def decisions_of(said: Said, overrides: dict[tuple[str, str], Override]) -> Decisions:
    """What a row says of its server; one that cannot be read switches it off."""
    try:
        return Decisions(**_narrowing(said), instructions=said["instructions"], overrides=overrides)
    except ValueError as exc:
        told = "The server %r is switched off: what the admin says is %s."
        # The message says it all.
        logger.error(told, said["name"], exc)  # noqa: TRY400
        return Decisions(is_enabled=False, overrides=overrides)


def _overrides() -> dict[str, dict[tuple[str, str], Override]]:
    found: dict[str, dict[tuple[str, str], Override]] = defaultdict(dict)
    for said in _rows(tables.Component, *KEY, *NARROWING, *COMPONENT_NARROWING):
        server, kind, key = (said[name] for name in KEY)
        override = override_of(said, name=key)
        if override != AS_IN_CODE:
            found[server][kind, key] = override
    return found


def override_of(said: Said, *, name: str) -> Override:
    """What a row says of the component of this name; one that cannot be read switches it off."""
    try:
        return Override(
            **_narrowing(said),
            description=said["description"],
            scopes=_names("scope", said["scopes"], SCOPE.fullmatch),
            approval=_meant("approval", [said["approval"]], get_args(Approval).__contains__)[0],
        )
    except ValueError as exc:
        told = "The component %r is switched off: what the admin says is %s."
        logger.error(told, name, exc)  # noqa: TRY400
        return Override(is_enabled=False)


def _narrowing(said: Said) -> dict[str, Any]:
    """What servers and components are narrowed by alike.

    Raises:
        ValueError: something was written past the admin that means nothing.
    """
    return {
        "is_enabled": said["is_enabled"],
        "title": said["title"],
        "groups": _names("group", said["groups"], bool),
        "permissions": _names("codename", said["permissions"], lambda one: one.count(".") == 1),
        "rates": parse_all(said["rate"]),
    }


def _names(what: str, value: Any, is_one: Callable[[str], Any]) -> tuple[str, ...]:
    # Never taken for "nobody was named", which would let everybody in.
    if not is_names(value):
        raise ValueError(f"{value!r:.80}, which is no list of names, each a {what}")
    return _meant(what, value, is_one)


def _meant(what: str, values: Iterable[Any], is_one: Callable[[str], Any]) -> tuple[Any, ...]:
    found = tuple(values)
    if wrong := [one for one in found if not is_one(one)]:
        raise ValueError(f"{wrong[0]!r}, which is no {what}")
    return found


def _rows(model: Any, *columns: str) -> Any:
    return model._default_manager.using(router.db_for_write(model)).values(*columns)
