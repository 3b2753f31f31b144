"""A site whose one server asks its clients everything that a client can be asked."""

from __future__ import annotations
