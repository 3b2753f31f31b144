"""What is said and done of prompts in one way and of skills in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from django.db.models import QuerySet

from mcp_django.overrides.prompt_versions import Line

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise


class Versions(Protocol):
    """The module that keeps the rows of a kind, and what they said before."""

    def check(self, row: Any, /) -> None:
        """See that it can be offered."""

    def keep(self, row: Any, /, *, author: Any, based_on: int) -> bool:
        """Save it."""

    def newest_version(self, pk: Any, /) -> int | None:
        """The version it is at."""

    def versions_of(self, row: Any, /) -> QuerySet[Any]:
        """All its versions."""

    def restore(self, row: Any, version: Any, /, *, author: Any, based_on: int) -> bool:
        """Have it say again what it said in one of them."""

    def lines_of(self, content: Any, /) -> list[str]:
        """What a version says."""

    def differences(self, before: Any, after: Any, /) -> Iterator[Line]:
        """What is different in one."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Prompts, or skills; a text may have the noun as its placeholder, for the row's name."""

    noun: Literal["prompt", "skill"]
    offered_among: Literal["prompts", "resources"]
    versions: Versions
    error: type[ValueError]
    """Why it cannot be offered; its ``field``, if it has one, names what is wrong."""
    is_taken: Callable[[str, str], bool]
    """Whether code has one of this name on this server, which would be offered instead."""
    previewed: Callable[[Any, Any], dict[str, Any]]
    """What a preview shows of a row that can be offered, and of what was sent with it."""

    not_offered: _StrPromise
    code_has_it: _StrPromise
    name_is_taken: _StrPromise
    changed_meanwhile: _StrPromise
    look_again: _StrPromise
    versions_title: _StrPromise
    version_title: _StrPromise
    back: _StrPromise
    were_changed: _StrPromise
