"""The code in README.md makes a site whose test passes."""

from __future__ import annotations

import shutil

import pytest

from tests.docs.fences import DOCS, Fence, fences
from tests.docs.project import Project
from tests.kit.processes import REPOSITORY

pytestmark = pytest.mark.outside

# The files of fences of the README that do not name their file.
PLACES = {"def test_": "shop/tests.py", "DATABASES = ": "mysite/settings.py"}
SETTINGS = ("settings.py", "urls.py")
NEW = """
django-admin startproject mysite .
echo 'INSTALLED_APPS += ["shop"]' >>mysite/settings.py
echo 'DJANGO_SETTINGS_MODULE = mysite.settings' | cat <(echo '[pytest]') - >pytest.ini
"""


def test_the_code_of_the_readme_works_together(tmp_path):
    code = [block for block in fences(REPOSITORY / "README.md") if block.language == "python"]
    with Project(tmp_path, settings="mysite.settings") as project:
        shutil.copytree(DOCS / "examples" / "shop", project.directory / "shop")
        project.do(shell(NEW))
        for fence in code:
            project.do(placed(fence))
        project.do(shell("pytest -q shop/tests.py\npython manage.py check\n"))
        assert "1 passed" in project.output
        assert "no issues" in project.output


def shell(text: str) -> Fence:
    return Fence(language="sh", text=text, line=0)


def placed(fence: Fence) -> Fence:
    if fence.file is None:
        (file,) = (place for sign, place in PLACES.items() if sign in fence.text)
    else:
        file = f"mysite/{fence.file}" if fence.file in SETTINGS else fence.file
    return Fence(language="python", text=f"# {file}\n{fence.text}", line=fence.line)
