"""The works, the servers and the tables of the benchmarks are consistent."""

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
    Cell,
    block_tables,
    build_document,
    cpu_of,
    figure_table,
    memory_table,
    ratio,
    stream_table,
)
from benchmarks.rounds import QUICK, RowResult, Sample, Spread, measure_rows
from benchmarks.streams import StreamFigures
from benchmarks.works import (
    ADD,
    BOLT,
    EVENT,
    FLOOR,
    GOALS,
    GUNICORN,
    LIST,
    MCPZ,
    MCPZ_GUNICORN,
    MIDDLEWARE,
    ON_POSTGRES,
    OWN,
    RAW,
    ROWS,
    SESSION,
    STREAM,
    WORKS,
    Processes,
    Row,
    bare_row,
    own_rows,
)

PROCESSES = Processes("own gunicorn", "own uvicorn")
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


def measured(work: str, *cpu: float, column: str = OWN, block: str = RAW) -> RowResult:
    """Return the result of a row that took these microseconds of CPU in its rounds."""
    samples = [
        Sample(
            requests=1000,
            seconds=microseconds / 1000,
            cpu_seconds=microseconds / 1000,
            latencies=[0.001],
        )
        for microseconds in cpu
    ]
    row = Row(block=block, work=work, column=column, process="", request=b"", expects=b"")
    return RowResult(row=row, samples=samples)


def cells_of(rows: Any) -> list[Cell]:
    return [Cell(row.block, row.work, row.column) for row in rows]


def test_every_cell_is_measured_once_and_every_goal_can_be_told():
    rows = [*own_rows("token", PROCESSES)]
    for peer in PEERS:
        rows += peer.rows(peer.title)
    every = cells_of(rows)
    assert len({*every}) == len(every)
    assert {cell.work for cell in every} | {STREAM, EVENT} == {*WORKS}
    for (block, work), goal in GOALS.items():
        if work not in {STREAM, EVENT}:
            assert Cell(block, work, OWN) in every
        # A work without a floor of its own is compared with the floor of the smallest work.
        assert {Cell(block, work, goal.of), Cell(block, ADD, FLOOR)} & {*every}


def test_another_database_has_blocks_and_servers_of_its_own():
    other = own_rows("", Processes("other gunicorn", "other uvicorn"), ON_POSTGRES)
    for peer in PEERS:
        other = [*other, *peer.rows(f"other {peer.title}", ON_POSTGRES)]
    assert all(row.block.endswith(ON_POSTGRES) for row in other)
    assert all(row.process.startswith("other ") for row in other)


def test_a_peer_behind_middleware_is_measured_on_both_servers():
    both = {peer.server: cells_of(peer.rows(peer.title)) for peer in PEERS if peer.name == "mcpz"}
    assert {(cell.block, cell.column) for cell in both["gunicorn"]} == {
        (GUNICORN, MCPZ),
        (MIDDLEWARE, MCPZ_GUNICORN),
    }
    assert {(cell.block, cell.column) for cell in both["uvicorn"]} == {(MIDDLEWARE, MCPZ)}
    assert not [cell for cells in both.values() for cell in cells if cell.work == SESSION]


def test_each_connection_has_a_session_of_its_own(monkeypatch):
    ports: list[int] = []

    def open_one(port: int) -> list[bytes]:
        ports.append(port)
        return [b"request %d" % len(ports)]

    bare = bare_row("own")
    row = replace(bare, request=open_one)
    assert len({request for (request,) in row.prepared(7)}) == CONNECTIONS
    assert ports == [7] * CONNECTIONS
    assert bare.prepared(7) == [[bare.request]]


def test_a_choice_of_rows_keeps_the_floors():
    rows = own_rows("", PROCESSES)
    chosen = cells_of(row for row in rows if is_chosen(row, "middleware: list of 50 tools"))
    assert chosen == [
        Cell(GUNICORN, LIST, OWN),
        Cell(GUNICORN, ADD, FLOOR),
        Cell(MIDDLEWARE, LIST, OWN),
        Cell(MIDDLEWARE, ADD, FLOOR),
        Cell(RAW, ADD, FLOOR),
        Cell(RAW, LIST, OWN),
    ]
    assert all(is_chosen(row, build_parser().parse_args([]).only) for row in rows)


def test_a_peer_that_needs_a_newer_python_is_not_installed(monkeypatch):
    bolt = next(peer for peer in PEERS if peer.name == "bolt")
    monkeypatch.setattr(sys, "version_info", (3, 11, 9))
    with pytest.raises(NotInstalled, match=r"it needs Python 3\.12 or newer"):
        bolt.install()


# Rounds -------------------------------------------------------------------------------------------


class Server:
    """A stand-in for a server process."""

    port = 1
    cpu_seconds = 0.0


def test_a_peer_that_fails_is_left_out_and_told(monkeypatch):
    def send_load(port: int, request: Any, **options: Any) -> Any:
        if request == [[b"bad"]]:
            raise TimeoutError("No response.")
        return type("Burst", (), {"latencies": [0.001], "seconds": 1.0})

    monkeypatch.setattr(rounds, "send_load", send_load)
    monkeypatch.setattr(rounds, "send_once", lambda *args, **options: b"")
    good = Row(block=RAW, work=ADD, column="SDK", process="peer", request=get("/"), expects=b"")
    bad = replace(good, work=LIST, request=b"bad")
    messages: list[str] = []
    servers: Any = {"peer": Server()}
    results = measure_rows([good, bad], servers, QUICK, say=messages.append, may_fail=["peer"])
    assert [result.row.work for result in results] == [ADD]
    assert len(results[0].samples) == QUICK.rounds
    assert messages[0] == f"left out: {RAW}: list of 50 tools, SDK: No response."
    with pytest.raises(UnexpectedResponse, match="list of 50 tools, SDK: No response"):
        measure_rows([good, bad], servers, QUICK, say=messages.append)


def test_what_a_server_may_not_survive_comes_last(monkeypatch):
    sent: list[bytes] = []

    def send_load(port: int, requests: Any, **options: Any) -> Any:
        sent.append(requests[0][0])
        return type("Burst", (), {"latencies": [0.001], "seconds": 1.0})

    monkeypatch.setattr(rounds, "send_load", send_load)
    monkeypatch.setattr(rounds, "send_once", lambda *args, **options: b"")
    hard = Row(
        block=RAW,
        work=ADD,
        column="SDK",
        process="peer",
        request=b"hard",
        expects=b"",
        comes_last=True,
    )
    easy = replace(hard, work=LIST, request=b"easy", comes_last=False)
    servers: Any = {"peer": Server()}
    measure_rows([hard, easy], servers, QUICK, say=lambda text: None)
    # The first two requests are the warm-up.
    assert sent[2:] == [b"easy"] * QUICK.rounds + [b"hard"] * QUICK.rounds


# Tables -------------------------------------------------------------------------------------------


def test_a_work_is_compared_with_another_column_of_its_round():
    results = [
        measured(ADD, 100, 1000, column=FLOOR),
        measured(ADD, 200, 3000),
        measured(ROWS, 400, 400, 400, column=BOLT),
        measured(ROWS, 500, 600),
        measured(ADD, 7, 7, block=GUNICORN),
    ]
    cpu = cpu_of(results, [STREAMS, replace(STREAMS, kind="listen", open_cpu=9999)])
    assert ratio(cpu, Cell(RAW, ADD, OWN), FLOOR) == Spread(median=2.5, least=2, most=3)
    # With the median, since one of the two has lost a round.
    assert ratio(cpu, Cell(RAW, ROWS, OWN), BOLT) == Spread(median=1.375, least=1.25, most=1.5)
    assert ratio(cpu, Cell(RAW, STREAM, OWN), FLOOR) == spread_of(500 / 550)
    assert ratio(cpu, Cell(RAW, EVENT, OWN), FLOOR) == spread_of(12.5 / 550)
    assert ratio(cpu, Cell(GUNICORN, ADD, OWN), MCPZ) is None


def spread_of(value: float) -> Spread:
    return Spread(median=value, least=value, most=value)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_block_has_a_table_with_a_column_for_each_who_does_the_work():
    results = [
        measured(ADD, 150, column=FLOOR),
        measured(LIST, 300, column=BOLT),
        measured(ADD, 300),
        measured(LIST, 600, block=GUNICORN + ON_POSTGRES),
        measured(ROWS, 600, block=GUNICORN + ON_POSTGRES),
    ]
    (raw, first), (gunicorn, second) = block_tables(results, [])
    assert (raw, gunicorn) == (RAW, GUNICORN + ON_POSTGRES)
    head, _, *lines = first.splitlines()
    assert len({len(line) for line in first.splitlines()}) == 1
    assert cells(head) == ["CPU µs/request", OWN, BOLT, FLOOR, "goal"]
    assert [cells(line) for line in lines] == [
        [ADD, "300 (300 to 300)", "-", "150 (150 to 150)", "2.00 (2.00 to 2.00), ≤ 4 times floor"],
        [LIST, "-", "300 (300 to 300)", "-", "≤ 2.5 times floor"],
    ]
    assert [cells(line) for line in second.splitlines()[2:]] == [
        [ROWS, "600 (600 to 600)", "≤ 1.1 times django-mcpz"],
        [LIST, "600 (600 to 600)", ""],
    ]


def test_the_figures_are_there_beside_it():
    line = figure_table([measured(ADD, 50, column="SDK")]).splitlines()[-1]
    assert cells(line) == [f"{RAW}: add, SDK", "50.0 (50.0 to 50.0)", "20000", "1.00", "1.00"]
    line = stream_table([STREAMS]).splitlines()[-1]
    assert cells(line)[:4] == ["/raw", "GET", "100", "2.00"]
    assert cells(memory_table({"one": 77.6}).splitlines()[-1]) == ["one", "78"]


def test_everything_is_there_as_json():
    results = [measured(ADD, 100, column=FLOOR), measured(ADD, 200)]
    document = json.loads(json.dumps(build_document(QUICK, results, [STREAMS], {"one": 77.0})))
    floor, add = document["rows"]
    assert (floor["times"], floor["goal"]) == (None, None)
    assert add["times"] == {"median": 2, "least": 2, "most": 2}
    assert add["goal"] == {"times": 4, "of": FLOOR}
    assert (add["block"], add["work"], add["column"]) == (RAW, ADD, OWN)
    assert add["cpu_us"]["median"] == 200
    assert document["streams"][0]["bytes_each"] == 2048
    assert document["plan"]["rounds"] == QUICK.rounds
    assert document["memory_mb"] == {"one": 77}
