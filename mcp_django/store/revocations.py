"""Telling every process that a caller was sent away, so that open streams look again at once.

What is told is only that there is something to look at: whoever has a stream open asks whether its
caller would still be let in. A telling that gets lost costs time, never safety, since streams ask
every minute anyway.
"""

from __future__ import annotations

from typing import Any

from mcp_django.store.announcer import announce
from mcp_django.store.topics import SENT_AWAY, Topic


def announce_revoked(*credentials: str) -> None:
    """Let every stream whose principal has one of these credentials look again.

    Call it after the commit. The strings are those of ``Principal.credential``; empty ones are
    nobody's. Never raises.
    """
    _announce(Topic("", "credential", one) for one in credentials if one)


def announce_user(pk: Any) -> None:
    """Let every stream of a user look again; after the commit. Never raises."""
    _announce([Topic("", "user", str(pk))])


def topics_of(credential: str, user: Any) -> list[Topic]:
    """What is rung when a caller is sent away; nothing for one that nobody can send away."""
    found = [Topic("", "credential", credential)] if credential else []
    if user.is_authenticated:
        found.append(Topic("", "user", str(user.pk)))
    return found


def _announce(changed: Any) -> None:
    named = list(changed)
    if named:
        announce(*named, SENT_AWAY)
