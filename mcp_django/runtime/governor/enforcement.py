"""What a database can be made to hold to; this one to nothing, so that it is counted alone."""

from __future__ import annotations

from typing import Literal

from django.db.backends.base.base import BaseDatabaseWrapper

from mcp_django.conf import Limits

Meaning = Literal["write", "time"]


class Enforcement:
    """One connection of a governed call. ``depth`` is how deep in transactions it was before."""

    def __init__(self, connection: BaseDatabaseWrapper, limits: Limits) -> None:
        self.connection = connection
        self.limits = limits
        self.depth = len(connection.atomic_blocks)
        self._needed_rollback = connection.needs_rollback

    def before(self, sql: str) -> str:
        """Hold the connection, which is open, for a statement; returns what to run instead."""
        return sql

    def allow(self, seconds: float | None) -> None:
        """Let the database work for so long from now on; ``None``: it is not working for us."""

    def meaning(self, exc: Exception) -> Meaning | None:
        """Whether the database refused a write or ran out of time; ``None`` for all else."""
        return None

    def end(self, *, succeeded: bool) -> None:
        """Let go of the connection; harmless if it was never held."""

    def _forget_failures(self) -> None:
        """A statement that was refused makes no transaction of somebody else worth a rollback."""
        if self.depth and self.connection.in_atomic_block:
            self.connection.needs_rollback = self._needed_rollback


def driver_error(exc: BaseException, attribute: str) -> object:
    """A detail of the driver's exception, given that or Django's around it."""
    for one in (exc, exc.__cause__):
        if getattr(one, attribute, None) is not None:
            return getattr(one, attribute)
    return None
