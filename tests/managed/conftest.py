"""What the tests of decisions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def unpinned(_nothing_is_managed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that knows nothing yet and looks decisions up, as on any site.

    What it has seen stays fresh until the test says that a second is over.
    """
    from mcp_django.managed import freshness as module

    freshness = module.freshness
    freshness.forget()
    freshness.start_over()
    monkeypatch.setattr(module, "FRESH_SECONDS", 1e9)
    yield
    freshness.start_over()
