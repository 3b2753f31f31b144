"""The pages about OAuth, followed word by word."""

import pytest

from tests.docs.project import Project

pytest.importorskip("oauth2_provider")

# Each test creates a project of its own, with its environment and server.
pytestmark = pytest.mark.outside


def test_a_new_site_becomes_its_own_authorization_server(tmp_path):
    with Project(tmp_path, settings="mysite.settings") as project:
        project.follow("oauth")
        assert project.arguments_of("pip") == ["install", "django-mcp-provider[oauth]"]
        address = f"http://127.0.0.1:{project.port}/mcp"
        assert project.arguments_of("claude")[-2:] == ["mysite", address]


def test_a_site_with_the_toolkit_adds_to_it(tmp_path):
    with Project(tmp_path, settings="mysite.settings") as project:
        project.follow("oauth-toolkit")
