"""Whether there is anything to report to."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from mcp_django.conf import get_settings

if TYPE_CHECKING:
    from mcp_django.runtime.telemetry.otel import Instruments


def instruments() -> Instruments | None:
    """The tracer and the histograms; ``None`` without the API, or with ``TELEMETRY`` off."""
    return _found() if get_settings().telemetry else None


@cache
def _found() -> Instruments | None:
    try:
        from mcp_django.runtime.telemetry.otel import Instruments
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != "opentelemetry":
            raise
        return None
    return Instruments()
