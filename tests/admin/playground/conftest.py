"""A desk to try things on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.playground.desk import Trying, desk


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def trying(db: None) -> Trying:
    """The pages of a server."""
    return Trying(desk())
