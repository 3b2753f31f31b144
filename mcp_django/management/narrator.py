"""Progress and log messages of a running call, on the error stream as they come."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

from django.core.management.base import OutputWrapper

from mcp_django.management.rendering import printable


class Narrator:
    """Writes progress and log messages to the error stream as they come."""

    def __init__(self, stderr: OutputWrapper) -> None:
        self._stderr = stderr

    def post(self, message: Any, *, key: Hashable = None) -> None:
        """Write one line."""
        self._stderr.write(printable(_line(message["method"], message["params"])), style_func=str)


def _line(method: str, params: Mapping[str, Any]) -> str:
    if method == "notifications/progress":
        total = f"/{params['total']:g}" if "total" in params else ""
        return f"[{params['progress']:g}{total}] {params.get('message', '')}".rstrip()
    data = params.get("data")
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    logger = f" {params['logger']}" if "logger" in params else ""
    return f"[{params.get('level', method)}{logger}] {text}"
