"""OpenTelemetry: a span and a measurement for every request, where its API is installed.

``dispatch`` begins the ``Operation`` of a request, its handler says what was found, ``observed``
and ``aobserved`` run the function inside of it and end it. Names follow the semantic conventions
for the Model Context Protocol (open-telemetry/semantic-conventions-genai, docs/gen-ai/mcp.md).

Only ``otel`` imports the API, at the first request; without it ``begin`` is one look at a cache.
"""

from __future__ import annotations

from mcp_django.runtime.telemetry.around import aobserved, observed, refused
from mcp_django.runtime.telemetry.operation import Operation
from mcp_django.runtime.telemetry.questions import asking
from mcp_django.runtime.telemetry.starting import begin, initialize, notified, session_ended

__all__ = [
    "Operation",
    "aobserved",
    "asking",
    "begin",
    "initialize",
    "notified",
    "observed",
    "refused",
    "session_ended",
]
