"""Skills in folders need PyYAML."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")
