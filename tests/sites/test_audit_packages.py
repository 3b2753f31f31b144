"""The site of `tests/sites/audit`, which has settings of its own, on both databases."""

from pathlib import Path

import pytest

from tests.storage.test_other_databases import RUN_SECONDS, STOP_SECONDS, run_under

pytest.importorskip("auditlog", reason="the audit packages come with the extra [test]")

SITE = Path(__file__).parent / "audit"

pytestmark = [pytest.mark.outside, pytest.mark.timeout(RUN_SECONDS + 2 * STOP_SECONDS)]


@pytest.mark.heavy(turn=3)
def test_audit_packages_record_the_caller():
    run_under("tests.sites.audit.settings", SITE)


@pytest.mark.heavy(turn=1)
@pytest.mark.requires("shared")
def test_audit_packages_record_the_caller_on_postgresql():
    run_under("tests.sites.audit.settings_postgres", SITE)
