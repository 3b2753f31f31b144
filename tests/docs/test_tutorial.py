"""The tutorial, followed word by word: its files, its commands, its shell, its tests."""

from importlib.metadata import distribution

import pytest

from tests.docs.project import Project

pytestmark = pytest.mark.outside


# A reader takes half an hour; the test mostly waits for one process after the other.
@pytest.mark.timeout(600)
def test_the_tutorial_leads_to_a_site_that_works(tmp_path):
    with Project(tmp_path, settings="airfield.settings") as project:
        project.follow("tutorial")
        command, *packages = project.arguments_of("pip")
        assert command == "install"
        assert all(map(distribution, packages))
        assert (project.directory / "airports" / "mcp.py").exists()
        assert project.arguments_of("claude")[:5] == [
            "mcp",
            "add",
            "--transport",
            "http",
            "airfield",
        ]
