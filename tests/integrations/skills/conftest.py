"""Skills in folders need PyYAML."""

import pytest

pytest.importorskip("yaml")
