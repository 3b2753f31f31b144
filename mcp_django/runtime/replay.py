"""A component that runs again says what it said before; the client hears it once."""

from __future__ import annotations

import threading
from typing import Any

from mcp_django.core.context import ClientPort


class ReplayPort:
    """Swallows as many progress reports and log messages as earlier rounds have delivered.

    A round whose client does not listen delivers nothing, and leaves the count as it was.
    """

    def __init__(
        self, port: ClientPort, *, progress: int, logs: int, hears_progress: bool, hears_logs: bool
    ) -> None:
        self._port = port
        self._delivered = {"progress": progress, "logs": logs}
        self._said = {"progress": 0, "logs": 0}
        self._hears = {"progress": hears_progress, "logs": hears_logs}
        self._lock = threading.Lock()

    @property
    def progress_count(self) -> int:
        """Progress reports that the client has got, in all rounds."""
        return self._count("progress")

    @property
    def log_count(self) -> int:
        """Log messages that the client has got, in all rounds."""
        return self._count("logs")

    def _count(self, kind: str) -> int:
        return max(self._delivered[kind], self._said[kind] if self._hears[kind] else 0)

    def _is_new(self, kind: str) -> bool:
        with self._lock:
            self._said[kind] += 1
            return self._said[kind] > self._delivered[kind]

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress that is new."""
        if self._is_new("progress"):
            self._port.progress(progress, total, message)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message that is new."""
        if self._is_new("logs"):
            self._port.log(level, data, logger)

    def hang_up(self, seconds: float) -> None:
        """Close the connection, in every round."""
        self._port.hang_up(seconds)
