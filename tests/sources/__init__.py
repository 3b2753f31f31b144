"""Tests of what the site already has, as components."""

from __future__ import annotations
