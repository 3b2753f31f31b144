"""The levels of log messages, which are those of syslog (RFC 5424)."""

from __future__ import annotations

from mcp_django.protocol.errors import InvalidParams, clip

LOG_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""Least to most severe (RFC 5424)."""

_SEVERITY = {level: rank for rank, level in enumerate(LOG_LEVELS)}


def severity(level: str) -> int:
    """Return the rank of a log level; higher is more severe.

    Raises:
        InvalidParams: there is no such level.
    """
    try:
        return _SEVERITY[level]
    except KeyError:
        raise InvalidParams(
            f"No log level {clip(level)!r}; use one of {', '.join(LOG_LEVELS)}"
        ) from None
