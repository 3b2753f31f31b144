"""Scopes: a broader one satisfies a narrower need (AUT-7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mcp_django.conf import get_settings


def closure(granted: Iterable[str], implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The granted scopes with everything that they imply, through any number of steps."""
    reached: set[str] = set()
    waiting = list(granted)
    while waiting:
        scope = waiting.pop()
        if scope not in reached:
            reached.add(scope)
            waiting.extend(implies.get(scope, ()))
    return frozenset(reached)


def missing(granted: frozenset[str] | None, needed: Iterable[str]) -> tuple[str, ...]:
    """The needed scopes that a credential lacks; one without scopes (``None``) lacks nothing."""
    if granted is None:
        return ()
    held = closure(granted, get_settings().scope_implies or {})
    return tuple(scope for scope in needed if scope not in held)
