"""Rules for the whole suite: what a marker means, and that no assertion looks at a clock."""

from __future__ import annotations

import hypothesis
import pytest

from tests.services import do_without, missing

# A slow machine is not a bug.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that requires a missing service, or fail it where every service is demanded."""
    for marker in item.iter_markers("requires"):
        for service in marker.args:
            reason = missing(service)
            if reason is not None:
                do_without(f"requires {service}: {reason}")
