"""Skills written in the admin: the form, its preview, versions, and who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations.skills import build_skill_files
from mcp_django.models import Component, Skill
from mcp_django.overrides.sync import sync_rows
from mcp_django.overrides.text_versions import SKILLS
from mcp_django.test import MCPClient
from tests.admin.reading import page
from tests.admin.staff import staff, superuser

pytestmark = pytest.mark.django_db
# What is decided is known, and told, after the commit.
commits = pytest.mark.django_db(transaction=True)
LIST = "/admin/mcp_django/skill/"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture(autouse=True)
def server():
    """A server of its own, with one skill in code."""
    server = MCPServer("written", permission=AllowAny)
    frontmatter = {"SKILL.md": {"name": "in-code", "description": "Code."}}
    for file in build_skill_files(
        "in-code", {"SKILL.md": b"code"}, frontmatter, origin="code", module=__name__, options={}
    ):
        server.add(file)
    return server


def form(**values: Any) -> dict[str, Any]:
    """What a browser sends."""
    return {
        "server": "written",
        "name": "close-it",
        "is_enabled": "on",
        "description": "Closes it.\r\nUse it late.",
        "text": "Read references/codes.md.\r\nThen close.",
        "supporting_files": "--- file: references/codes.md\r\nLHR\r\n",
        "license": "MIT",
        "based_on": "0",
        **values,
    }


def saved(**values: Any) -> Skill:
    """A row, as the admin keeps it."""
    defaults = {"server": "written", "name": "close-it", "description": "Closes.", "text": "Do."}
    row = Skill(**{**defaults, **values})
    SKILLS.save(row, author=None, based_on=0)
    return row


@commits
def test_a_skill_written_here_is_read_by_a_client(server):
    client = superuser()
    assert "references/codes.md" in page(client, f"{LIST}add/")
    assert client.post(f"{LIST}add/", form()).status_code == 302
    row = Skill.objects.get()
    assert (row.version, row.versions.get().author.username) == (1, "root")
    reader = MCPClient(server=server)
    skills = {skill["uri"]: skill for skill in reader.request("skills/list")["skills"]}
    skill = skills["skill://close-it/SKILL.md"]
    assert skill["frontmatter"] == {
        "name": "close-it",
        "description": "Closes it.\nUse it late.",
        "license": "MIT",
    }
    assert reader.read_resource("skill://close-it/SKILL.md")[0]["text"] == (
        '---\nname: "close-it"\ndescription: "Closes it.\\nUse it late."\nlicense: "MIT"\n---\n\n'
        "Read references/codes.md.\nThen close.\n"
    )
    assert reader.read_resource("skill://close-it/references/codes.md")[0]["text"] == "LHR\n"
    assert LogEntry.objects.get().is_addition()
    listed = page(client, LIST)
    assert "available" in listed


@commits
def test_a_skill_and_its_files_lead_to_each_other(server):
    client, row = superuser(), saved(supporting_files="--- file: references/codes.md\nLHR\n")
    sync_rows([server])
    files = Component.objects.filter(server="written", key__startswith="skill://close-it/")
    assert len(files) == 1
    change = f"{LIST}{row.pk}/change/"
    for file in files:
        link = f"/admin/mcp_django/component/{file.pk}/change/"
        assert f'<a href="{change}">Edit the skill</a>' in page(client, link)
    link = f"/admin/mcp_django/component/{files.get(key__endswith='SKILL.md').pk}/change/"
    assert f'<a href="{link}">' in page(client, change)


def test_a_change_makes_a_version_and_the_name_stays():
    client, row = superuser(), saved()
    address = f"{LIST}{row.pk}/change/"
    assert 'name="based_on" value="1"' in page(client, address)
    changed = form(name="other", server="default", text="New.", based_on="1")
    assert client.post(address, changed).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.server, row.version, row.text) == ("close-it", "written", 2, "New.")
    group = Group.objects.create(name="Editors").name
    same = {**changed, "based_on": "2", "groups": [group]}
    assert client.post(address, same).status_code == 302
    row.refresh_from_db()
    assert (row.version, row.groups) == (2, ["Editors"])
    # Somebody who still has the first one before him.
    response = client.post(address, form(text="Old.", based_on="1"))
    assert "now at version 2" in response.content.decode()
    row.refresh_from_db()
    assert row.text == "New."


@pytest.mark.parametrize(
    ("values", "field", "words"),
    [
        ({"name": "Close It"}, "name", "single hyphens"),
        ({"name": "in-code"}, "name", "Code has a skill"),
        ({"server": "nowhere"}, "server", "nowhere"),
        ({"description": ""}, "description", "required"),
        ({"description": "x" * 1025}, "description", "1024"),
        ({"description": "a\x85b"}, "description", "cannot be sent"),
        ({"text": " \n"}, "text", "are empty"),
        ({"supporting_files": "no name"}, "supporting_files", "--- file:"),
        ({"supporting_files": "--- file: ../a"}, "supporting_files", "not a valid file name"),
        ({"scopes": "a\\b"}, "scopes", "not a valid scope"),
    ],
)
def test_what_is_wrong_is_said_beside_its_field(values, field, words):
    response = superuser().post(f"{LIST}add/", form(**values))
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert words in str(errors[field])
    assert not Skill.objects.exists()


def test_a_preview_shows_what_clients_get_and_keeps_nothing():
    client = superuser()
    response = client.post(f"{LIST}preview/", form(text=HOSTILE))
    text = response.content.decode()
    assert response.status_code == 200
    assert "&quot;frontmatter&quot;: {" in text
    assert "skill://close-it/references/codes.md" in text
    assert "sha256:" in text
    assert HOSTILE not in text
    assert not Skill.objects.exists()
    wrong = client.post(f"{LIST}preview/", form(name="No Name")).content.decode()
    assert "single hyphens" in wrong
    row = saved()
    text = client.post(f"{LIST}{row.pk}/preview/", form(text="Draft.")).content.decode()
    assert "Draft." in text
    row.refresh_from_db()
    assert row.text == "Do."
    assert page(client, f"{LIST}preview/", 405) is not None


def test_versions_are_shown_compared_and_restored():
    client, row = superuser(), saved(description=HOSTILE)
    row.description = "Closes well."
    SKILLS.save(row, author=None, based_on=1)
    versions = f"{LIST}{row.pk}/versions/"
    assert "Version 2" in page(client, versions)
    compared = page(client, f"{versions}2/")
    assert "Closes well." in compared
    assert HOSTILE not in compared
    assert "&lt;script&gt;" in compared
    assert client.post(f"{versions}1/restore/", {"based_on": "1"}).status_code == 302
    row.refresh_from_db()
    assert row.version == 2
    assert client.post(f"{versions}1/restore/", {"based_on": "2"}).status_code == 302
    row.refresh_from_db()
    assert (row.version, row.description) == (3, HOSTILE)
    assert page(client, f"{versions}9/", 404) is not None
    assert page(client, f"{versions}1/restore/", 405) is not None


@commits
def test_switching_and_deleting_reach_clients(server):
    client, row = superuser(), saved()
    reader = MCPClient(server=server)

    def names() -> list[str]:
        return [skill["frontmatter"]["name"] for skill in reader.request("skills/list")["skills"]]

    def act(action: str) -> None:
        chosen = {"action": action, "_selected_action": [row.pk]}
        assert client.post(LIST, chosen).status_code == 302

    assert names() == ["close-it", "in-code"]
    act("disable")
    assert names() == ["in-code"]
    assert "disabled" in page(client, LIST)
    act("enable")
    assert names() == ["close-it", "in-code"]
    assert client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    assert names() == ["in-code"]


def test_the_list_says_what_is_not_offered():
    saved(name="in-code")
    saved(name="lost", server="gone")
    row = Skill.objects.create(server="written", name="bad", description="", text="x")
    client = superuser()
    listed = page(client, LIST)
    assert "Code has a skill with this name" in listed
    assert "A server with this name does not exist" in listed
    assert "The skill is invalid" in page(client, f"{LIST}{row.pk}/change/")


@pytest.mark.parametrize("wrong", [7, [[]]])
def test_every_page_of_a_row_that_nobody_can_read_opens(wrong):
    row = saved()
    # Written past the admin.
    Skill.objects.update(groups=wrong, permissions=wrong, scopes=wrong)
    row.versions.update(content=wrong)
    client = superuser()
    assert "not a list of names" in page(client, LIST)
    assert "not a list of names" in page(client, f"{LIST}{row.pk}/change/")
    assert "The version is invalid" in page(client, f"{LIST}{row.pk}/versions/1/")
    # Whoever saves the form has put it right.
    changed = form(based_on="1", scopes="")
    assert client.post(f"{LIST}{row.pk}/change/", changed).status_code == 302
    assert Skill.objects.get().groups == []


def test_who_may_only_look_changes_nothing():
    row = saved()
    versions = f"{LIST}{row.pk}/versions/"
    viewer = staff("view_skill")
    assert "Do." in page(viewer, f"{LIST}{row.pk}/change/")
    assert "Restore" not in page(viewer, f"{versions}1/")
    for address in (f"{LIST}preview/", f"{LIST}{row.pk}/preview/", f"{versions}1/restore/"):
        assert viewer.post(address, form()).status_code == 403
    nobody = staff()
    for address in (LIST, versions, f"{versions}1/"):
        assert page(nobody, address, 403) is not None
