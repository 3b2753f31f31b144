"""A desk to try things on."""

import pytest

from tests.admin.playground.desk import Trying, desk


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def trying(db):
    """The pages of a server."""
    return Trying(desk())
