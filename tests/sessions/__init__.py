"""Sessions, streams and fan-out: the store by itself, and with real processes that share it."""

from __future__ import annotations
