"""The page about tests, whose tests are run."""

import shutil

import pytest

from tests.docs.fences import DOCS
from tests.docs.project import Project

pytestmark = pytest.mark.outside

SETTINGS = "from tests.docs.settings import *\n"


def test_the_tests_on_the_page_pass(tmp_path):
    with Project(tmp_path, settings="mysite.settings") as project:
        shutil.copytree(DOCS / "examples" / "shop", project.directory / "shop")
        (project.directory / "mysite").mkdir()
        (project.directory / "mysite" / "settings.py").write_text(SETTINGS)
        project.follow("testing")
        assert "14 passed" in project.output
