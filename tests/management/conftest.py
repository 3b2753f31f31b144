"""The commands look at every server of the process, so those of other tests have to be gone."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _no_strangers() -> None:
    """Collect what tests of other modules have declared and let go."""
    gc.collect()
