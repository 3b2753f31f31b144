"""How `manage.py mcp call` shows an answer, and where it puts what is not text."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from mcp_django import Context, EmbeddedResource, Image, ResourceLink, ToolResult
from tests.kit.servers import person
from tests.management.console import fails, run, server_of
from tests.sites.example.mcp import PIXEL


@pytest.mark.django_db
def test_structured_content_is_shown_once_as_json():
    person()
    out = run("call", "takings", "day=2026-03-01", "--user", "ada").out
    assert json.loads(out) == {"day": "2026-03-01", "orders": 3, "total": "12.50"}


@pytest.mark.django_db
def test_what_is_no_text_is_described(tmp_path):
    person()
    target = tmp_path / "logo.png"
    outcome = run("call", "pictures", "--user", "ada", "--output", str(target))
    assert outcome.out.splitlines() == [
        "words",
        "more words",
        f"[image, image/png, {len(PIXEL)} bytes]",
        "[audio, audio/wav, 4 bytes]",
        "[shop://note, unknown type]",
        "note",
        "[link to shop://about: about]",
    ]
    assert outcome.err == f"Wrote {len(PIXEL)} bytes to {target}.\n"
    assert target.read_bytes() == PIXEL


@pytest.mark.django_db
def test_a_blob_is_written_to_a_file(tmp_path):
    person()
    target = tmp_path / "logo.png"
    out = run("call", "shop://logo", "--user", "ada", "--output", str(target)).out
    assert out == f"[shop://logo, image/png, {len(PIXEL)} bytes]\n"
    assert target.read_bytes() == PIXEL


def test_the_first_binary_may_be_in_a_prompt_or_embedded(tmp_path):
    server = server_of()

    @server.prompt
    def picture() -> list[Any]:
        """Show."""
        return ["Look:", EmbeddedResource("x://a", data=b"embedded"), Image(PIXEL)]

    target = tmp_path / "first"
    run("call", "picture", "--server", server.name, "--output", str(target))
    assert target.read_bytes() == b"embedded"


def test_nothing_binary_is_a_mistake(tmp_path):
    target = tmp_path / "none"
    assert "no image, audio or blob" in fails("call", "echo", "text=x", "--output", str(target))
    assert not target.exists()
    server = server_of()

    @server.tool
    def picture() -> Image:
        """Show."""
        return Image(PIXEL)

    assert "cannot be written" in fails(
        "call", "picture", "--server", server.name, "--output", str(tmp_path)
    )


def test_structured_content_beside_other_text_is_shown_too():
    server = server_of()

    @server.tool
    def tool() -> ToolResult:
        """Do it."""
        return ToolResult("Seen.", ResourceLink("x://y", "y"), structured={"n": 1})

    out = run("call", "tool", "--server", server.name).out
    assert out == 'Seen.\n[link to x://y: y]\n{\n  "n": 1\n}\n'


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_terminal_would_obey_is_spelled_out_there():
    server = server_of()

    @server.tool
    def tool(ctx: Context) -> str:
        """Do it."""
        ctx.report_progress(1, message="\x1b[2J")
        return "clear\x1b[2J\tscreen\x07"

    screen, plain = Screen(), io.StringIO()
    for out in (screen, plain):
        call_command("mcp", "call", "tool", "--server", server.name, stdout=out, stderr=screen)
    assert plain.getvalue() == "clear\x1b[2J\tscreen\x07\n"
    assert "clear\\x1b[2J\tscreen\\x07\n" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()
