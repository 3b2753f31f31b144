"""The site serves what the benchmarks request, with the names and settings that others rely on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from benchmarks.load import UnexpectedResponse, call, request_2026, send_load, send_once
from benchmarks.process import NotStarted, Process, serve_asgi, serve_wsgi
from benchmarks.streams import KINDS, open_streams
from benchmarks.works import APP, WSGI_APP, Processes, bare_row, own_rows
from tests.benchmarks.conftest import TOOLS, run

pytestmark = [pytest.mark.outside, pytest.mark.heavy(turn=3)]

MOUNTS = ["/mcp", "/raw"]
SITE = {"DJANGO_SETTINGS_MODULE": "benchmarks.site.settings"}

COUNT = """
import django
django.setup()
from benchmarks.site.mcp import members, register_tools, server, tools_wanted
from mcp_django import MCPServer
print(len(server.tools), len(members.tools), tools_wanted())
for wanted in (0, 6, 107):
    one = MCPServer(f"with-{wanted}")
    register_tools(one, tools=wanted)
    print(*one.tools)
"""


def answer(site: Process, request: bytes, *, expects: bytes = b"") -> bytes:
    return send_once(site.port, request, expects=expects)


def result(site: Process, request: bytes) -> Any:
    return json.loads(answer(site, request).partition(b"\r\n\r\n")[2])["result"]


def text(site: Process, request: bytes) -> str:
    (block,) = result(site, request)["content"]
    content: str = block["text"]
    return content


@pytest.mark.parametrize("mount", MOUNTS)
def test_every_mount_adds(site, mount):
    assert text(site, call(mount, "add", a=2, b=3)) == "5"
    assert text(site, call(mount, "add_sync", a=-2, b=3)) == "1"


def test_rows_come_through_the_orm(site):
    rows = json.loads(text(site, call("/mcp", "list_rows", limit=1000)))
    assert [row["id"] for row in rows] == [*range(1, 1001)]
    assert rows[9] == {
        "id": 10,
        "name": "row 0009",
        "value": 333,
        "created": "2026-01-01T00:09:00Z",
    }
    assert len(json.loads(text(site, call("/raw", "list_rows", limit=3)))) == 3


def test_a_big_answer_is_as_big_as_it_was_asked_for(site):
    assert text(site, call("/mcp", "big", kb=300)) == "x" * 300 * 1024


def test_a_slow_answer_comes(site):
    assert text(site, call("/raw", "slow", ms=1)) == "done"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mount", ["/mcp", "/raw"])
async def test_a_touch_is_heard_on_every_mount(site, mount, kind):
    async with open_streams(site.port, mount, kind, 3) as listeners:
        await asyncio.to_thread(answer, site, call("/mcp", "touch"), expects=b"touched")
        await asyncio.gather(*(listener.event(b"bench://touched") for listener in listeners))


def test_a_bearer_is_asked_for_where_there_are_members(site):
    for mount in ("/members/mcp", "/members/raw"):
        with pytest.raises(UnexpectedResponse, match="401"):
            answer(site, call(mount, "add", a=2, b=3))


def test_the_token_lets_in(database, cache):
    code = (
        "from benchmarks.__main__ import prepare_database; "
        f"print(prepare_database(Path({str(database)!r})))"
    )
    bearer = run("-c", f"from pathlib import Path; {code}", cache=cache).strip()
    environ = {**SITE, "BENCH_DB": str(database)}
    with serve_asgi(APP, environ) as uvicorn, serve_wsgi(WSGI_APP, environ) as gunicorn:
        servers = {"uvicorn": uvicorn, "gunicorn": gunicorn}
        for row in own_rows(bearer, Processes("gunicorn", "uvicorn")):
            site = servers[row.process]
            requests = row.prepared(site.port)
            answer(site, requests[0][0], expects=row.expects)
            burst = send_load(site.port, requests, seconds=0.05, follow=row.follow)
            assert burst.latencies


def test_as_many_tools_are_listed_as_the_environment_says(site):
    names = [tool["name"] for tool in result(site, request_2026("/raw", "tools/list"))["tools"]]
    assert len(names) == TOOLS
    assert {"add", "list_rows", "big", "slow", "touch", "filler_00"} <= {*names}


def test_fillers_count_among_the_tools(cache):
    environ = {"BENCH_TOOLS": "12", **SITE}
    first, *lists = run("-c", COUNT, cache=cache, **environ).splitlines()
    assert first == "12 12 12"
    none, six, many = (line.split() for line in lists)
    assert none == six == ["add", "add_sync", "list_rows", "big", "slow", "touch"]
    assert len(many) == 107
    assert many[6] == "filler_00"
    assert many[-1] == "filler_100"


def test_the_bare_answer_is_as_long_as_what_it_stands_for(site):
    ((bare,),) = bare_row("site").prepared(site.port)
    body = answer(site, bare).partition(b"\r\n\r\n")[2]
    assert json.loads(body)["result"]["content"] == [{"type": "text", "text": "5"}]


def test_middleware_is_what_the_environment_says(site, database):
    request = call("/mcp", "add", a=2, b=3)
    assert b"x-frame-options" in answer(site, request).lower()
    environ = {**SITE, "BENCH_DB": str(database), "BENCH_MIDDLEWARE": "none"}
    with serve_asgi(APP, environ) as plain:
        assert b"x-frame-options" not in answer(plain, request).lower()


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"BENCH_MIDDLEWARE": "some"}, "write 'default' or 'none'"),
        ({"BENCH_TOOLS": "many"}, "write a number of tools"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(database, environ, sentence):
    environ = {**SITE, "BENCH_DB": str(database), **environ}
    with pytest.raises(NotStarted, match=sentence), serve_asgi(APP, environ):
        pass


def test_a_file_without_the_table_names_the_command_that_makes_it(tmp_path):
    path = tmp_path / "empty.sqlite3"
    command = f"python -m benchmarks --prepare {path}"
    for _ in range(2):
        environ = {**SITE, "BENCH_DB": str(path)}
        with pytest.raises(NotStarted, match=command), serve_asgi(APP, environ):
            pass
        # Looking for the file does not create it; a file without tables has the same error.
        assert not path.exists() or path.stat().st_size == 0
        path.touch()
