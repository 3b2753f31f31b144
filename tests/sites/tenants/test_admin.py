"""The admin of a tenant sees its rows and decides for its callers, where users are its own too."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.kit.processes import REPOSITORY
from tests.sites.tenants.sites import environ_of

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]


@pytest.fixture(scope="module")
def visits():
    process = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.sites.tenants.admin_visits"],
        cwd=REPOSITORY,
        env={**os.environ, **environ_of("users", "admin")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_a_tool_is_disabled_for_the_callers_of_the_tenant(visits):
    every = visits["tools before"]
    assert "sync_items" in every
    assert visits["tools of alpha"] == [name for name in every if name != "sync_items"]
    assert visits["tools of beta"] == every


def test_a_prompt_is_one_of_the_tenant(visits):
    assert visits["prompts of beta after alpha"] == ["summary"]
    assert visits["prompts of beta after beta"] == ["greeting", "summary"]
    assert visits["prompts of alpha"] == ["greeting", "summary"]
    # Each tenant has one of this name, and the form refuses a second one.
    assert visits["added in alpha"] == visits["added in beta"] == [302, 200]


def test_lists_and_pages_show_rows_of_the_tenant(visits):
    assert len(visits["pages"]) == 13
    for name, page in visits["pages"].items():
        assert page["status"] == 200, name
        assert page["linked"]["alpha"] == 0, name
        assert page["linked"]["beta"], name
        # As for a row that does not exist, Django redirects to the index.
        assert page["opened"] == {"alpha": 302, "beta": 200}, name


def test_pages_of_a_server_are_those_of_the_tenant(visits):
    for page in ("try", "seen", "charts"):
        assert visits[page] == {"alpha": 200, "beta": 404}, page


def test_a_deleted_user_takes_the_rows_of_the_tenant_along(visits):
    before, after = visits["left"]["alpha"]
    assert all(before)
    assert after == [0, 0, 0, 0]
    before, after = visits["left"]["beta"]
    assert all(before)
    assert after == before


def test_a_deleted_tenant_leaves_nothing_to_another_one_of_its_name(visits):
    assert visits["deleted"] == [1, 0]
