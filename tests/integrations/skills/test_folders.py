"""Folders with a SKILL.md: which files are served, and which are refused, with which message."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.autoreload import autoreload_started

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.checks.components import check_descriptions
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.integrations import skills
from mcp_django.management.inspect import source_of
from tests.integrations.skills.shelf import FILES, fill, serving, skill
from tests.kit.processes import REPOSITORY
from tests.spec import spec

HERE = "tests.integrations.skills.test_folders"


def test_a_relative_folder_is_beside_the_module():
    server = MCPServer("beside", permission=AllowAny)
    server.register_skills("../../conformance/skills")
    (skill_md,) = server.catalog.skills.entries
    assert skill_md == "skill://reading-tests/SKILL.md"
    assert server.resources[skill_md].origin == f"{HERE} (skills/)"
    assert server.resources[skill_md].callable.__module__ == HERE
    source = source_of(server.resources[skill_md].callable)
    assert str(source) == f"{HERE} register_skills()"
    assert source.file == str(REPOSITORY / "tests/conformance/skills")
    # The files beside SKILL.md need no description.
    messages = [message.msg for message in check_descriptions(None) if message.obj is server]
    assert messages == []


def test_hidden_files_stay_hidden(tmp_path):
    left_out = {
        "fold-maps/.env": "SECRET=1",
        "fold-maps/.git/config": "x",
        "fold-maps/scripts/__pycache__/a.pyc": b"x",
        ".hidden/SKILL.md": skill(".hidden"),
        "no-skill/readme.md": "x",
    }
    server = serving(fill(tmp_path, {**FILES, **left_out}))
    assert set(server.resources) == {f"skill://{path}" for path in FILES}


def test_names_of_files_become_uris(tmp_path):
    files = {"a/SKILL.md": skill("a"), "a/Äther 50%?#.md": "x"}
    server = serving(fill(tmp_path, files))
    assert "skill://a/%C3%84ther%2050%25%3F%23.md" in server.resources


def test_one_folder_can_be_the_skill(tmp_path):
    server = serving(fill(tmp_path) / "fold-maps")
    assert [*server.catalog.skills.entries] == ["skill://fold-maps/SKILL.md"]


def test_what_is_served_is_what_was_read(tmp_path):
    server = serving(fill(tmp_path))
    file = server.resources["skill://fold-maps/references/papers.md"]
    (tmp_path / "fold-maps/references/papers.md").write_text("other")
    assert file.callable() == "Thin ones first.\r\n"


def test_runserver_watches_the_folder(tmp_path):
    class Reloader:
        watched: list[Any] = []

        def watch_dir(self, *args: Any) -> None:
            self.watched.append(args)

    serving(fill(tmp_path))
    autoreload_started.send(Reloader())
    assert (tmp_path, "**/*") in Reloader.watched


def link(path: Path, target: Path | str) -> Path:
    path.symlink_to(target)
    return path


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no folder below"),
        ({"a/readme.md": "x"}, "no folder below"),
        ({"a/SKILL.md": "# No frontmatter"}, "begin with a line ---"),
        ({"a/SKILL.md": "---\nname: a\n---\n"}, "needs a description"),
        ({"a/SKILL.md": skill("b")}, "the name is 'b' but the folder is 'a'"),
        ({"a/SKILL.md": skill("A")}, "a-z"),
        ({"a/SKILL.md": skill("a", "x" * 1025)}, "1025 characters; at most 1024"),
        ({"a/SKILL.md": b"---\nname: \xff"}, "is not valid UTF-8"),
        ({"a/SKILL.md": skill("a"), "a/b/SKILL.md": skill("c")}, "b/SKILL.md: the name is 'c'"),
        ({"Billing/a/SKILL.md": skill("a")}, "'Billing'"),
    ],
)
def test_what_is_no_skill_is_refused(tmp_path, files, words):
    server = MCPServer("wrong", permission=AllowAny)
    with pytest.raises(ImproperlyConfigured) as caught:
        server.register_skills(fill(tmp_path, files))
    assert words in str(caught.value)
    assert server.resources == {}


def test_links_lead_nowhere_else(tmp_path):
    outside = fill(tmp_path / "outside", {"secret.txt": "x"})
    inside = fill(tmp_path / "skills", {"a/SKILL.md": skill("a")})
    for target in (outside / "secret.txt", outside, tmp_path / "nothing"):
        made = link(inside / "a/link", target)
        with pytest.raises(ImproperlyConfigured, match="link"):
            serving(inside)
        made.unlink()
    # A link cannot serve a file that is left out, and cannot lead to itself.
    fill(inside, {"a/.env": "SECRET=1", "a/.git/config": "x"})
    for hidden in (".env", ".git/config", "link"):
        made = link(inside / "a/link", hidden)
        with pytest.raises(ImproperlyConfigured, match=r"'link' is a (broken )?symbolic link"):
            serving(inside)
        made.unlink()
    link(inside / "a/same.md", "SKILL.md")
    # A skill that is itself a link lies outside of the folder.
    link(inside / "b", outside)
    assert {*serving(inside).resources} == {"skill://a/SKILL.md", "skill://a/same.md"}
    if hasattr(os, "mkfifo"):
        os.mkfifo(inside / "a/pipe")
        with pytest.raises(ImproperlyConfigured, match="not a regular file"):
            serving(inside)


@spec("SKL-8")
def test_a_skill_that_no_host_has_to_load_is_refused(tmp_path, monkeypatch):
    assert (skills.MAX_FILES, skills.MAX_BYTES) == (512, 16_777_216)
    fill(tmp_path)
    monkeypatch.setattr(skills, "MAX_FILES", 3)
    with pytest.raises(ImproperlyConfigured, match="more than 3 files"):
        serving(tmp_path)
    monkeypatch.setattr(skills, "MAX_FILES", 4)
    assert serving(tmp_path).resources
    monkeypatch.setattr(skills, "MAX_BYTES", 100)
    with pytest.raises(ImproperlyConfigured, match="more than 100 bytes"):
        serving(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prefix": "../x"}, "prefix='../x'"),
        ({"prefix": "a//b"}, "prefix"),
        ({"rate": "often"}, "rate"),
        ({"scopes": ["no scope"]}, "no scope"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, words):
    with pytest.raises(ImproperlyConfigured) as caught:
        serving(fill(tmp_path), **options)
    assert words in str(caught.value)


def test_of_two_skills_of_one_name_the_second_is_refused_as_a_whole(tmp_path):
    server = serving(fill(tmp_path / "one"))
    known = set(server.resources)
    other = fill(tmp_path / "two", {**FILES, "also/SKILL.md": skill("also")})
    with pytest.raises(AlreadyRegistered, match="prefix"):
        server.register_skills(other)
    assert set(server.resources) == known
    server.register_skills(other, prefix="two")
    assert "skill://two/fold-maps/SKILL.md" in server.catalog.skills.entries


def test_without_pyyaml_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImproperlyConfigured, match=r"django-mcp-provider\[skills\]"):
        serving(fill(tmp_path))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    link(tmp_path / "itself", "itself")
    for name in ("nowhere", "itself"):
        with pytest.raises(ImproperlyConfigured, match="folder of the calling module"):
            serving(tmp_path / name)


def test_what_cannot_be_looked_into_is_not_left_out(tmp_path, monkeypatch):
    look = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("references"):
            raise PermissionError(13, "Permission denied", path)
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ImproperlyConfigured, match="'references' cannot be read"):
        serving(fill(tmp_path))
