"""What the package costs: CPU, latency and memory per request, measured and never asserted."""

from __future__ import annotations
