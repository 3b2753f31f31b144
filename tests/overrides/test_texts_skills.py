"""Written skills of a server: read, overridden as a whole, and harmless to other components."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.integrations import skills
from mcp_django.integrations.skills import build_skill_files as built
from mcp_django.integrations.yaml_core import SkillError
from mcp_django.models import Component, Skill
from mcp_django.overrides.state import publish_change
from mcp_django.overrides.sync import sync_rows
from mcp_django.overrides.text_versions import SKILLS, VersionConflict
from mcp_django.overrides.texts import (
    MAX_CHARACTERS,
    SkillSpec,
    build_skill,
    parse_files,
    parse_skill_row,
    render_skill_md,
)
from mcp_django.test import ErrorResponse, MCPClient
from tests.kit.servers import person

# Other processes are notified after the commit.
pytestmark = pytest.mark.django_db(transaction=True)
URI = "skill://close/SKILL.md"
MORE = "skill://close/references/codes.md"
PATIENCE = 5
FILES = "--- file: references/codes.md\nLHR is London.\n"


@pytest.fixture
def server():
    """Return a server of its own, with one skill in code."""
    server = MCPServer("skills", permission=AllowAny)
    frontmatter = {"name": "in-code", "description": "Code."}
    files = {"SKILL.md": b"code"}
    for component in built(
        "in-code", files, {"SKILL.md": frontmatter}, origin="code", module=__name__, options={}
    ):
        server.add(component)
    return server


def saved(**values: Any) -> Skill:
    """Save a row as the admin does, and return it."""
    row = Skill(
        **{
            "server": "skills",
            "name": "close",
            "description": "Closes.",
            "text": "Do it.",
            "supporting_files": FILES,
            **values,
        }
    )
    SKILLS.save(row, author=None, based_on=0)
    return row


def uris(client: MCPClient) -> list[str]:
    return [skill["uri"] for skill in client.request("skills/list")["skills"]]


def test_a_written_skill_is_listed_and_read(server):
    client = MCPClient(server=server)
    assert uris(client) == ["skill://in-code/SKILL.md"]
    saved(license="MIT", description='Closes "it": é\n# no comment')
    skill = client.request("skills/list")["skills"][0]
    assert skill["frontmatter"] == {
        "name": "close",
        "description": 'Closes "it": é\n# no comment',
        "license": "MIT",
    }
    assert [resource["uri"] for resource in skill["resources"]] == [URI, MORE]
    for resource in skill["resources"]:
        text = client.read_resource(resource["uri"])[0]["text"].encode()
        assert resource["digest"] == f"sha256:{sha256(text).hexdigest()}"
    assert client.read_resource(MORE)[0]["text"] == "LHR is London.\n"


def test_the_frontmatter_is_what_a_parser_of_yaml_reads():
    pytest.importorskip("yaml")
    row = saved(description='yes: "a" \\ \t\U0001f600 # {x}', compatibility="2026-01-31")
    spec = parse_skill_row(Skill.objects.values().get(pk=row.pk))
    (skill,) = [component for component in build_skill(spec) if component.frontmatter is not None]
    assert skills.parse_frontmatter(render_skill_md(spec)) == skill.frontmatter


def test_code_has_its_own_skill_whatever_is_written(server):
    saved(name="in-code")
    client = MCPClient(server=server)
    assert uris(client) == ["skill://in-code/SKILL.md"]
    assert client.read_resource("skill://in-code/SKILL.md")[0]["text"] == "code"


def test_nothing_that_is_written_becomes_a_part_of_a_skill_in_code(server):
    frontmatter = {"name": "billing", "description": "Code."}
    for component in built(
        "acme/billing",
        {"SKILL.md": b"x"},
        {"SKILL.md": frontmatter},
        origin="",
        module="",
        options={},
    ):
        server.add(component)
    server.resource("skill://new/SKILL.md", aliases=["skill://old/SKILL.md"])(lambda: "code")
    known = uris(MCPClient(server=server))
    saved(name="acme", supporting_files="--- file: billing/run-this.md\nx\n")
    saved(name="old")
    client = MCPClient(server=server)
    assert uris(client) == known
    assert client.read_resource("skill://old/SKILL.md")[0]["text"] == "code"
    with pytest.raises(ErrorResponse):
        client.read_resource("skill://acme/billing/run-this.md")


@pytest.mark.parametrize(
    "values",
    [
        {"name": "No Name"},
        {"description": " "},
        {"description": "\x07"},
        {"description": "x" * 1025},
        {"text": " "},
        {"text": "x" * (MAX_CHARACTERS + 1)},
        {"supporting_files": "text without a name"},
        {"supporting_files": "--- file: ../up.md\nx"},
        {"supporting_files": "--- file: /etc/passwd\nx"},
        {"supporting_files": "--- file: a/.env\nx"},
        {"supporting_files": "--- file: skill.md\nx"},
        {"supporting_files": "--- file: a\nx\n--- file: a/b\ny"},
        {"supporting_files": "--- file: a\nx\n--- file: a\ny"},
        {"supporting_files": "".join(f"--- file: f{n}\n" for n in range(512))},
        {"groups": "Editors"},
        {"permissions": ["no codename"]},
        {"scopes": [1]},
    ],
    ids=lambda values: f"{values!r:.30}",
)
def test_a_row_that_cannot_be_offered_is_left_out_and_nothing_else(server, values, caplog):
    saved(name="good")
    # The row is written without the checks of the admin.
    columns = {"server": "skills", "name": "bad", "description": "d", "text": "t", **values}
    Skill.objects.create(**columns)
    publish_change([("skills", "resources")])
    client = MCPClient(server=server)
    assert uris(client) == ["skill://good/SKILL.md", "skill://in-code/SKILL.md"]
    assert "is left out" in caplog.text


def test_files_are_counted_before_they_are_compared():
    # Comparing each file with all others would take minutes in a preview.
    with pytest.raises(SkillError, match="too many files"):
        parse_files("".join(f"--- file: {n}\n" for n in range(30_000)))


def test_half_a_character_is_refused():
    # JSON from a browser can contain it, and no database can store it.
    for field in ("text", "description", "supporting_files"):
        spec = SkillSpec(**{"name": "a", "description": "d", "text": "t", field: "\ud800"})
        with pytest.raises(SkillError):
            build_skill(spec)


def test_only_who_may_sees_it(server):
    group = Group.objects.create(name="Desk")
    saved(groups=["Desk"])
    inside, outside = person("inside"), person("outside")
    inside.groups.add(group)
    assert URI in uris(MCPClient(server=server, user=inside))
    client = MCPClient(server=server, user=outside)
    assert URI not in uris(client)
    for uri in (URI, MORE):
        with pytest.raises(ErrorResponse) as caught:
            client.read_resource(uri)
        assert caught.value.code == -32602


def test_what_is_decided_of_a_skill_holds_for_its_files(server):
    saved()
    sync_rows([server])
    # One row for the skill, none for the files that belong to it.
    row = Component.objects.get(server="skills", key=URI)
    assert not Component.objects.filter(key=MORE).exists()
    client = MCPClient(server=server)
    row.description = "Reworded."
    row.groups = ["Nobody"]
    row.save()
    publish_change([("skills", "resources")])
    user = MCPClient(server=server, user=person("someone"))
    with pytest.raises(ErrorResponse):
        user.read_resource(MORE)
    row.groups, row.is_enabled = [], False
    row.save()
    publish_change([("skills", "resources")])
    assert URI not in uris(client)
    with pytest.raises(ErrorResponse):
        client.read_resource(MORE)
    row.is_enabled = True
    row.save()
    publish_change([("skills", "resources")])
    listed = {resource["uri"]: resource for resource in client.list_resources()}
    assert listed[URI]["description"] == "Reworded."
    assert "description" not in listed[MORE]
    # Hosts compare this with the file.
    skill = client.request("skills/get", {"uri": URI})["skill"]
    assert skill["frontmatter"]["description"] == "Closes."


def test_versions_are_kept_compared_and_restored(server):
    row = saved()
    row.text = "Do it otherwise."
    assert SKILLS.save(row, author=None, based_on=1)
    assert not SKILLS.save(row, author=None, based_on=2)
    old, new = row.versions.order_by("number")
    changed = [(line.kind, line.text) for line in SKILLS.differences(old.content, new.content)]
    assert ("removed", "Do it.") in changed
    assert ("added", "Do it otherwise.") in changed
    with pytest.raises(VersionConflict):
        SKILLS.restore(row, old, author=None, based_on=1)
    assert SKILLS.restore(row, old, author=None, based_on=2)
    assert (row.version, row.text) == (3, "Do it.")
    assert "Do it." in MCPClient(server=server).read_resource(URI)[0]["text"]
    old.content = {"text": 7}
    with pytest.raises(ValueError, match="is invalid"):
        SKILLS.restore(row, old, author=None, based_on=3)


async def test_a_listener_hears_of_a_written_skill(server):
    async with MCPClient(server=server).listen(lists=["resources"]) as heard:
        await anext(heard)
        await sync_to_async(saved)()
        message = await asyncio.wait_for(anext(heard), PATIENCE)
    assert message["method"] == "notifications/resources/list_changed"
