"""The client of a running call, as seen through the stream of its answer."""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

from mcp_django.protocol import envelope, jsonrpc, shapes
from mcp_django.protocol.revisions import LOG_LEVELS, severity
from mcp_django.runtime.incoming import Incoming
from mcp_django.schema.values import jsonable


class Outbox(Protocol):
    """Where messages to the client are put; a ``Mailbox`` is one."""

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Take a message, from any thread."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Stands among messages where the connection is to be closed for so many seconds."""

    seconds: float


class StreamPort:
    """Puts progress and log messages that the client asked for into a mailbox."""

    def __init__(self, incoming: Incoming, mailbox: Outbox) -> None:
        self._incoming = incoming
        self._mailbox = mailbox
        self._lock = threading.Lock()
        self._progress = -math.inf

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress; a value that does not grow is dropped (PRG-2, PRG-5)."""
        token = self._incoming.envelope.progress_token
        if token is None or not math.isfinite(progress):
            return
        with self._lock:
            if progress <= self._progress:
                return
            self._progress = progress
        params: dict[str, Any] = {envelope.PROGRESS_TOKEN: token, "progress": progress}
        if total is not None and math.isfinite(total):
            params["total"] = total
        if message is not None:
            params["message"] = str(message)
        self._send("notifications/progress", params, key="progress")

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Send a log message of the level asked for, or a more severe one (LOG-4)."""
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is no log level; use one of {', '.join(LOG_LEVELS)}.")
        threshold = self._incoming.envelope.log_level
        if threshold is None or severity(level) < severity(threshold):
            return
        params: dict[str, Any] = {"level": level, "data": jsonable(data)}
        if logger is not None:
            params["logger"] = str(logger)
        self._send("notifications/message", params, key="log")

    def hang_up(self, seconds: float) -> None:
        """Close the connection where the client knows how to come back."""
        if self._incoming.revision.priming_event and self._incoming.session is not None:
            self._mailbox.post(HangUp(seconds))

    def _send(self, method: str, params: dict[str, Any], *, key: str) -> None:
        projected = shapes.project_notification(method, params, self._incoming.revision)
        if projected is not None:
            self._mailbox.post(jsonrpc.notification(method, projected), key=key)
