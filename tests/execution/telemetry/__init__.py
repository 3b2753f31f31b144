"""Spans and measurements of every request."""

from __future__ import annotations
