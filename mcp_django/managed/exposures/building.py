"""What the exposures of one server become, and why some of them do not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.catalog import Offered
from mcp_django.core.component import Component
from mcp_django.core.registry import Registry
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.managed.exposures.exposed_model import register_model
from mcp_django.managed.exposures.exposed_view import register_view
from mcp_django.managed.exposures.scratch import Scratch
from mcp_django.managed.exposures.spec import ExposureSpec
from mcp_django.sources.models.declaration import ModelComponents

logger = logging.getLogger("mcp_django")

REGISTER: Mapping[str, Callable[[ExposureSpec, Scratch], None]] = {
    "model": register_model,
    "view": register_view,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a row, or one of its components, is not offered; ``is_whole`` for all of it."""

    spec: ExposureSpec
    reason: str
    is_whole: bool = True


@dataclass(slots=True, kw_only=True)
class Built:
    """The components of some exposures, and what is wrong with the others."""

    scratch: Scratch
    components: dict[ExposureSpec, list[Component]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    registered: dict[ExposureSpec, list[ModelComponents[Any]]] = field(default_factory=dict)

    def table(self, kind: str) -> dict[str, Any]:
        """The components of a kind by their keys."""
        every = (one for some in self.components.values() for one in some)
        return {one.key: one for one in every if one.kind == kind}

    def of(self, spec: ExposureSpec) -> list[Component]:
        """What one exposure became."""
        return self.components.get(spec, [])

    def declarations(self, spec: ExposureSpec) -> list[ModelComponents[Any]]:
        """What was registered for one model exposure."""
        return self.registered.get(spec, [])

    def wrong_with(self, spec: ExposureSpec) -> list[Problem]:
        """What is wrong with one exposure."""
        return [one for one in self.problems if one.spec == spec]

    def completions(self) -> dict[tuple[str, str, str], Any]:
        """The completions of what is offered."""
        offered = {(one.kind, one.key) for some in self.components.values() for one in some}
        return {key: one for key, one in self.scratch.completions.items() if key[:2] in offered}


def build(server: Any, name: str, specs: Iterable[ExposureSpec]) -> Built:
    """What these exposures become on a server; what cannot be built is left out, with the reason.

    ``server`` is the registry of code, ``None`` where this process has no server of the name.
    """
    made = Built(scratch=Scratch(name, server))
    for spec in specs:
        reason = _added(made, spec)
        if reason:
            made.problems.append(Problem(spec=spec, reason=reason))
            continue
        _leave_to_code(made, spec, server)
    return made


def _added(made: Built, spec: ExposureSpec) -> str:
    """Add what one exposure becomes, or say why it cannot become anything."""
    scratch = made.scratch
    before = {id(one) for one in scratch}
    known = len(scratch.declarations)
    reason = ""
    try:
        REGISTER.get(spec.kind, _unknown)(spec, scratch)
    except (AlreadyRegistered, ImproperlyConfigured) as exc:
        reason = str(exc)
    except Exception as exc:
        # The site's own views, forms and serializers are looked at, and any of them may fail.
        logger.exception("The exposure of %s cannot be looked at.", spec)
        reason = f"The site's own code failed with {type(exc).__name__}; it was logged."
    added = [one for one in scratch if id(one) not in before]
    if not reason:
        made.components[spec] = added
        made.registered[spec] = scratch.declarations[known:]
        return ""
    for one in added:
        scratch.unregister(one)
    return reason


def _unknown(spec: ExposureSpec, scratch: Scratch) -> None:
    raise ImproperlyConfigured(f"There is no kind {spec.kind!r} of exposures.")


def _leave_to_code(made: Built, spec: ExposureSpec, server: Any) -> None:
    """Leave out what code offers under the same name."""
    kept: list[Component] = []
    for one in made.components[spec]:
        other = server.answering(one.kind, one.key) if server is not None else None
        if other is None:
            kept.append(one)
            continue
        reason = (
            f"Code has a {one.kind} {one.key!r} already ({other.origin}), and that is offered; "
            "give this exposure another name."
        )
        made.problems.append(Problem(spec=spec, reason=reason, is_whole=False))
    made.components[spec] = kept


_known: WeakKeyDictionary[Registry, tuple[Any, Built]] = WeakKeyDictionary()


def built(server: Any, name: str, specs: tuple[ExposureSpec, ...]) -> Built:
    """``build``, kept until the specs or what code declares change; problems are logged once."""
    state = (server.generation, specs)
    found = _known.get(server)
    if found is None or found[0] != state:
        found = _known[server] = state, build(server, name, specs)
        for problem in found[1].problems:
            logger.error("The exposure of %s: %s", problem.spec, problem.reason)
    return found[1]


def with_exposed(declared: Offered, server: Any, specs: tuple[ExposureSpec, ...]) -> Offered:
    """What is declared, and beside it what the admin exposes; of one name, what is declared."""
    if not specs:
        return declared
    made = built(server, server.name, specs)
    return replace(
        declared,
        tools={**made.table("tool"), **declared.tools},
        resources={**made.table("resource"), **declared.resources},
        templates={**made.table("resource template"), **declared.templates},
        prompts={**made.table("prompt"), **declared.prompts},
        completions={**made.completions(), **declared.completions},
    )
