"""Benchmarks: measure CPU, latency and memory per request, without assertions."""

from __future__ import annotations
