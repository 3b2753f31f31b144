"""The commands look at every server of the process, so those of other tests have to be gone."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_strangers(only_declared_servers: None) -> None:
    """What tests of other modules have declared and let go is not there."""
