"""What clients get of skills: entries, directories and files, as far as they may see them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.integrations.skills import build_skill_files as built
from mcp_django.protocol.revisions import HANDSHAKE
from mcp_django.test import ErrorResponse, MCPClient
from tests.integrations.skills.shelf import FILES, fill, serving, skill
from tests.kit.servers import person
from tests.spec import spec

SKILLS = "io.modelcontextprotocol/skills"
URI = "skill://fold-maps/SKILL.md"


@pytest.fixture
def server(tmp_path):
    """Return a server with one skill of four files."""
    return serving(fill(tmp_path))


@pytest.fixture
def client(server):
    return MCPClient(server=server)


def directory(client: MCPClient, uri: str, **more: Any) -> Any:
    return client.request("resources/directory/read", {"uri": uri, **more})


def refusal(client: MCPClient, method: str, params: Any = None) -> tuple[int, str]:
    with pytest.raises(ErrorResponse) as caught:
        client.request(method, params)
    return caught.value.code, caught.value.message


@spec("SKL-2", "SKL-3", "SKL-4")
def test_an_entry_says_everything_of_a_skill(client):
    result = client.request("skills/list")
    (skill,) = result["skills"]
    assert skill["uri"] == URI
    assert skill["frontmatter"] == {
        "name": "fold-maps",
        "description": "Folds maps. Use it on paper.",
        "license": "MIT",
        # As every parser of YAML 1.2 reads it.
        "metadata": {"version": "1.0", "since": "2026-01-31", "tested": "yes"},
    }
    digests = {
        resource["uri"]: (resource["digest"], resource["size"]) for resource in skill["resources"]
    }
    assert len(digests) == len(skill["resources"])
    for path, content in FILES.items():
        raw = content if isinstance(content, bytes) else content.encode()
        assert digests.pop(f"skill://{path}") == (f"sha256:{sha256(raw).hexdigest()}", len(raw))
    assert digests == {}
    assert (result["ttlMs"], result["cacheScope"]) == (0, "public")


@spec("SKL-7")
def test_what_is_read_has_the_bytes_of_its_digest(client):
    (skill,) = client.request("skills/list")["skills"]
    for resource in skill["resources"]:
        (contents,) = client.read_resource(resource["uri"])
        blob = contents.get("blob")
        raw = base64.b64decode(blob) if blob is not None else contents["text"].encode()
        assert (f"sha256:{sha256(raw).hexdigest()}", len(raw)) == (
            resource["digest"],
            resource["size"],
        )
    assert client.read_resource("skill://fold-maps/crease.png")[0]["mimeType"] == "image/png"


@spec("SKL-7", "SKL-1", "EXT-4")
@pytest.mark.parametrize("revision", [revision.version for revision in HANDSHAKE])
def test_a_handshake_sees_ordinary_resources_and_no_extension(server, revision):
    client = MCPClient(server=server, protocol_version=revision)
    listed = {resource["uri"]: resource for resource in client.list_resources()}
    assert set(listed) == {f"skill://{path}" for path in FILES}
    assert listed[URI]["name"] == "fold-maps"
    assert listed[URI]["description"] == "Folds maps. Use it on paper."
    assert listed[URI]["mimeType"] == "text/markdown"
    assert client.read_resource(URI)[0]["text"] == FILES["fold-maps/SKILL.md"]
    assert refusal(client, "skills/list")[0] == -32601


@spec("SKL-1")
def test_the_extension_is_there_while_there_is_a_skill(server):
    capabilities = MCPClient(server=server).discover()["capabilities"]
    assert capabilities["extensions"][SKILLS] == {"directoryRead": True}
    assert "resources" in capabilities
    bare = MCPServer("bare", permission=AllowAny)

    @bare.resource("bare://one")
    def one() -> str:
        return ""

    client = MCPClient(server=bare)
    assert SKILLS not in client.discover()["capabilities"].get("extensions", {})
    for method in ("skills/list", "skills/get", "resources/directory/read"):
        assert refusal(client, method, {"uri": "bare://one"})[0] == -32601


def test_a_client_need_not_declare_it(server):
    assert MCPClient(server=server, capabilities={}).request("skills/list")["skills"]


@spec("SKL-5")
def test_one_entry_is_got_by_its_uri(client):
    result = client.request("skills/get", {"uri": URI})
    assert result["skill"] == client.request("skills/list")["skills"][0]
    assert {"ttlMs", "cacheScope"} <= set(result)
    assert "nextCursor" not in result
    for wrong in ("skill://none/SKILL.md", "skill://fold-maps", "skill://fold-maps/crease.png", ""):
        code, message = refusal(client, "skills/get", {"uri": wrong})
        assert (code, repr(wrong) in message) == (-32602, True)
    assert refusal(client, "skills/get", {})[0] == -32602


@spec("SKL-6")
def test_a_directory_lists_its_direct_children(client):
    assert directory(client, "skill://fold-maps/references")["resources"] == [
        {
            "uri": "skill://fold-maps/references/deep",
            "name": "deep",
            "mimeType": "inode/directory",
        },
        {
            "uri": "skill://fold-maps/references/papers.md",
            "name": "papers.md",
            "mimeType": "text/markdown",
            "size": 18,
        },
    ]
    root = directory(client, "skill://fold-maps")["resources"]
    assert [child["name"] for child in root] == ["fold-maps", "crease.png", "references"]
    for wrong in (URI, "skill://fold-maps/", "skill://none", "skill://fold-maps/none", "skill:"):
        assert refusal(client, "resources/directory/read", {"uri": wrong})[0] == -32602


@spec("SKL-4", "SKL-6")
def test_lists_come_in_pages(tmp_path):
    names = ["a", "b", "c"]
    server = MCPServer("pages", permission=AllowAny, page_size=2)
    server.register_skills(fill(tmp_path, {f"x/{name}/SKILL.md": skill(name) for name in names}))
    client = MCPClient(server=server)
    assert client.list_skills()[2]["uri"] == "skill://x/c/SKILL.md"
    first = directory(client, "skill://x")
    assert [child["name"] for child in first["resources"]] == ["a", "b"]
    second = directory(client, "skill://x", cursor=first["nextCursor"])
    assert [child["name"] for child in second["resources"]] == ["c"]
    assert "nextCursor" not in second
    # A cursor is valid for one directory.
    params = {"uri": "skill://x/a", "cursor": first["nextCursor"]}
    assert refusal(client, "resources/directory/read", params)[0] == -32602


@pytest.mark.django_db
@spec("SKL-5", "SKL-6")
def test_hidden_and_unknown_are_the_same(tmp_path):
    server = serving(fill(tmp_path), permission="auth.view_user")
    reader = person("reader")
    client = MCPClient(server=server, user=reader)
    assert client.request("skills/list")["skills"] == []
    assert client.request("skills/list")["cacheScope"] == "private"
    for method, uri, unknown in (
        ("skills/get", URI, "skill://none-maps/SKILL.md"),
        ("resources/directory/read", "skill://fold-maps", "skill://none-maps"),
    ):
        answers = []
        for target in (uri, unknown):
            # The object of a user caches the permissions, so it is loaded again.
            client = MCPClient(server=server, user=type(reader).objects.get(pk=reader.pk))
            with CaptureQueriesContext(connection) as captured:
                code, text = refusal(client, method, {"uri": target})
            statements = [query["sql"] for query in captured]
            answers.append((code, text.replace("none-maps", "fold-maps"), statements))
        assert answers[0] == answers[1]
        assert len(answers[1][2]) == 2
    with pytest.raises(AuthenticationRequired):
        MCPClient(server=server).request("skills/get", {"uri": URI})


@spec("SKL-3")
def test_a_nested_skill_is_one_more_and_belongs_to_the_outer_one(tmp_path):
    files = {
        "outer/SKILL.md": skill("outer"),
        "outer/parts/inner/SKILL.md": skill("inner"),
        "outer/parts/inner/more.md": "More.",
    }
    client = MCPClient(server=serving(fill(tmp_path, files), prefix="acme/desk"))
    files_by_skill = {
        skill_entry["uri"]: [
            file["uri"].removeprefix("skill://acme/desk/") for file in skill_entry["resources"]
        ]
        for skill_entry in client.request("skills/list")["skills"]
    }
    assert files_by_skill == {
        "skill://acme/desk/outer/SKILL.md": sorted(files),
        "skill://acme/desk/outer/parts/inner/SKILL.md": sorted(files)[1:],
    }
    # The directories begin with the first part of the server's prefix.
    assert [child["uri"] for child in directory(client, "skill://acme")["resources"]] == [
        "skill://acme/desk"
    ]


class Counting(BasePermission):
    """Allows everybody, counts its checks, and runs other code during a check."""

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: list[Callable[[], None]] = []

    def has_permission(self, principal: Principal) -> bool:
        self.asked += 1
        while self.meanwhile:
            self.meanwhile.pop()()
        return True


def test_a_permission_is_asked_for_a_skill_and_not_for_each_file(tmp_path):
    rule = Counting()
    files = {"a/SKILL.md": skill("a"), **{f"a/many/{n}.md": "x" for n in range(100)}}
    client = MCPClient(server=serving(fill(tmp_path, files), permission=rule))
    for method, uri in (
        ("skills/get", "skill://a/SKILL.md"),
        ("skills/list", ""),
        ("resources/directory/read", "skill://a"),
    ):
        rule.asked = 0
        assert client.request(method, {"uri": uri})
        assert 0 < rule.asked < 5, method


def test_what_is_taken_away_meanwhile_is_in_the_answer_and_not_in_the_next(tmp_path):
    rule = Counting()
    server = serving(fill(tmp_path), permission=rule)
    client = MCPClient(server=server)

    def take_away() -> None:
        for resource in [*server.resources.values()]:
            server.unregister(resource)

    for method, uri in (
        ("skills/get", URI),
        ("skills/list", ""),
        ("resources/directory/read", "skill://fold-maps"),
    ):
        rule.meanwhile.append(take_away)
        assert client.request(method, {"uri": uri})
        # Without any skill, the server does not have the extension.
        assert refusal(client, method, {"uri": uri})[0] == -32601
        server.register_skills(tmp_path, permission=rule)


def test_folders_may_lie_deeper_than_calls(tmp_path):
    deep = "/".join("d" * 1100)
    skill_md = built(
        "a",
        {"SKILL.md": b"x", f"{deep}/x": b"y"},
        {"SKILL.md": {"name": "a"}},
        origin="code",
        module=__name__,
        options={},
    )
    server = MCPServer("deep", permission=AllowAny)
    for component in skill_md:
        server.add(component)
    children = directory(MCPClient(server=server), "skill://a")["resources"]
    assert [child["uri"] for child in children] == ["skill://a/SKILL.md", "skill://a/d"]
