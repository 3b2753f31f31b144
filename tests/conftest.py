"""Rules for the whole suite: what a marker means, and that no assertion looks at a clock."""

from __future__ import annotations

import os

import hypothesis
import pytest

from tests.services import do_without, missing

# The awkward site has settings of its own; its directory says how it is run.
AWKWARD = os.environ.get("DJANGO_SETTINGS_MODULE") == "tests.awkward.settings"
collect_ignore = [] if AWKWARD else ["awkward"]

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
