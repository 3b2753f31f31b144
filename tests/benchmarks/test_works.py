"""What is measured hangs together: works, servers, and the tables made of it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import rounds
from benchmarks.__main__ import build_parser, is_chosen
from benchmarks.load import CONNECTIONS, UnexpectedResponse, get
from benchmarks.peers import PEERS, NotInstalled
from benchmarks.report import (
    MEMORY,
    build_document,
    figure_table,
    stream_table,
    times_bare,
    work_table,
)
from benchmarks.rounds import QUICK, RowResult, Sample, Spread, measure_rows
from benchmarks.streams import StreamFigures
from benchmarks.works import (
    ADD,
    BARE,
    EVENT,
    GOALS,
    LIST,
    OWN,
    SESSION,
    STREAM,
    Row,
    bare_row,
    own_rows,
    peer_rows,
)

STREAMS = StreamFigures(
    mount="/raw",
    kind="GET",
    streams=100,
    bytes_each=2048,
    threads=0,
    database_connections=0,
    open_cpu=500,
    event_cpu=12.5,
    event_ms=55,
    stop_seconds=0.1,
)


def measured(work: str, *cpu: float, server: str = OWN) -> RowResult:
    """A row that took so many microseconds of CPU in each of its rounds."""
    samples = [
        Sample(requests=1000, seconds=one / 1000, cpu_seconds=one / 1000, latencies=[0.001])
        for one in cpu
    ]
    row = Row(work=work, server=server, request=b"", expects=b"")
    return RowResult(row=row, samples=samples)


def test_every_work_of_the_table_is_measured_once():
    own = [row.work for row in own_rows("token")]
    assert sorted([*own, STREAM, EVENT]) == sorted(GOALS)
    assert not [row for row in own_rows("", "elsewhere") if row.server != "elsewhere"]
    for peer in PEERS:
        works = [row.work for row in peer_rows(peer.title, through_middleware=False)]
        assert len({*works}) == len(works)
        assert {*works} < {*GOALS}


def test_a_peer_behind_middleware_has_no_sessions():
    works = [row.work for row in peer_rows("mcpz", through_middleware=True)]
    assert ADD not in works
    assert SESSION not in works
    assert LIST in works


def test_each_connection_has_a_session_of_its_own(monkeypatch):
    ports: list[int] = []

    def open_one(port: int) -> list[bytes]:
        ports.append(port)
        return [b"request %d" % len(ports)]

    row = replace(bare_row(), request=open_one)
    assert len({one for (one,) in row.prepared(7)}) == CONNECTIONS
    assert ports == [7] * CONNECTIONS
    assert bare_row().prepared(7) == [[bare_row().request]]


def test_a_choice_of_works_keeps_the_bare_response():
    chosen = [row.work for row in (bare_row(), *own_rows("")) if is_chosen(row, "list of 50 tools")]
    assert chosen == [BARE, LIST]
    assert all(is_chosen(row, build_parser().parse_args([]).only) for row in own_rows(""))


def test_a_peer_that_needs_a_newer_python_is_not_installed(monkeypatch):
    bolt = next(peer for peer in PEERS if peer.name == "bolt")
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    with pytest.raises(NotInstalled, match=r"it needs Python 3\.12 or newer"):
        bolt.install()


# Rounds -------------------------------------------------------------------------------------------


class Server:
    """Takes the place of a process."""

    port = 1
    cpu_seconds = 0.0


def test_a_peer_that_fails_is_left_out_and_told(monkeypatch):
    def send_load(port: int, request: Any, **options: Any) -> Any:
        if request == [[b"bad"]]:
            raise TimeoutError("No response.")
        return type("Burst", (), {"latencies": [0.001], "seconds": 1.0})

    monkeypatch.setattr(rounds, "send_load", send_load)
    monkeypatch.setattr(rounds, "send_once", lambda *args, **options: b"")
    good = Row(work=ADD, server="peer", request=get("/"), expects=b"")
    bad = replace(good, work=LIST, request=b"bad")
    told: list[str] = []
    servers: Any = {"peer": Server()}
    results = measure_rows([good, bad], servers, QUICK, say=told.append, may_fail=["peer"])
    assert [one.row.work for one in results] == [ADD]
    assert len(results[0].samples) == QUICK.rounds
    assert told[0] == "left out: list of 50 tools, peer: No response."
    with pytest.raises(UnexpectedResponse, match="list of 50 tools, peer: No response"):
        measure_rows([good, bad], servers, QUICK, say=told.append)


def test_what_a_server_may_not_survive_comes_last(monkeypatch):
    sent: list[bytes] = []

    def send_load(port: int, requests: Any, **options: Any) -> Any:
        sent.append(requests[0][0])
        return type("Burst", (), {"latencies": [0.001], "seconds": 1.0})

    monkeypatch.setattr(rounds, "send_load", send_load)
    monkeypatch.setattr(rounds, "send_once", lambda *args, **options: b"")
    hard = Row(work=ADD, server="peer", request=b"hard", expects=b"", comes_last=True)
    easy = replace(hard, work=LIST, request=b"easy", comes_last=False)
    servers: Any = {"peer": Server()}
    measure_rows([hard, easy], servers, QUICK, say=lambda text: None)
    # After the warm-up of both.
    assert sent[2:] == [b"easy"] * QUICK.rounds + [b"hard"] * QUICK.rounds


# Tables -------------------------------------------------------------------------------------------


def test_a_work_is_compared_with_the_bare_response_of_its_round():
    results = [measured(BARE, 100, 1000), measured(ADD, 200, 3000), measured(ADD, 50, 500)]
    results[2].row = replace(results[2].row, server="peer")
    found = times_bare(results, [STREAMS, replace(STREAMS, kind="listen", open_cpu=9999)])
    assert found == {
        (ADD, OWN): Spread(median=2.5, least=2, most=3),
        (ADD, "peer"): Spread(median=0.5, least=0.5, most=0.5),
        (STREAM, OWN): Spread(median=500 / 550, least=500 / 550, most=500 / 550),
        (EVENT, OWN): Spread(median=12.5 / 550, least=12.5 / 550, most=12.5 / 550),
    }


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_has_a_column_for_each_server_and_a_line_for_each_work():
    results = [
        measured(BARE, 100),
        measured(ADD, 200),
        measured(LIST, 300, server="peer"),
    ]
    printed = work_table(results, [], {OWN: 77.6})
    head, _, *lines = printed.splitlines()
    assert len({len(line) for line in printed.splitlines()}) == 1
    assert cells(head) == ["times bare", OWN, "peer", "goal"]
    assert [cells(line) for line in lines] == [
        [ADD, "2.00 (2.00 to 2.00)", "-", "≤ 2"],
        [LIST, "-", "3.00 (3.00 to 3.00)", "≤ 2"],
        [MEMORY, "78", "-", "≤ 78"],
    ]


def test_the_figures_are_there_beside_it():
    line = figure_table([measured(ADD, 50, server="peer")]).splitlines()[-1]
    assert cells(line) == ["add: peer", "50.0 (50.0 to 50.0)", "20000", "1.00", "1.00"]
    line = stream_table([STREAMS]).splitlines()[-1]
    assert cells(line)[:4] == ["/raw", "GET", "100", "2.00"]


def test_everything_is_there_as_json():
    results = [measured(BARE, 100), measured(ADD, 200)]
    found = json.loads(json.dumps(build_document(QUICK, results, [STREAMS], {OWN: 77.0})))
    bare, add = found["rows"]
    assert bare["times_bare"] is None
    assert add["times_bare"] == {"median": 2, "least": 2, "most": 2}
    assert (add["work"], add["server"], add["goal"]) == (ADD, OWN, 2)
    assert add["cpu_us"]["median"] == 200
    assert found["streams"][0]["bytes_each"] == 2048
    assert found["plan"]["rounds"] == QUICK.rounds
    assert found["memory_mb"] == {OWN: 77}
