"""What is measured hangs together: names, servers, yardsticks, and the tables made of it."""

from __future__ import annotations

import json

from benchmarks.__main__ import select_rows
from benchmarks.figures import Sample
from benchmarks.peers.compare import own_rows, peer_rows, peer_starters
from benchmarks.report import build_document, figure_table, ratio_table, stream_table
from benchmarks.rounds import QUICK, RowResult, compare_results
from benchmarks.rows import BARE, SERVERS, VIEW, Row, rows
from benchmarks.streams import StreamFigures

STREAMS = StreamFigures(
    mount="/mcp",
    kind="listen",
    streams=100,
    bytes_each=2048,
    threads=0,
    database_connections=0,
    open_cpu=500,
    event_cpu=12.5,
    event_ms=55,
    stop_seconds=0.1,
)


def measured(name: str, cpu: float, *, against: str = BARE) -> RowResult:
    """A row that took so many microseconds of CPU in each of two rounds."""
    one = Sample(requests=1000, seconds=cpu / 1000, cpu_seconds=cpu / 1000, latencies=[0.001])
    row = Row(name=name, request=b"", expects=b"", against=against, target="at least 0.5")
    return RowResult(row=row, samples=[one, one])


def test_every_row_has_a_server_and_a_yardstick_that_comes_before_it() -> None:
    seen: list[str] = []
    for row in rows(bearer="token"):
        assert row.name not in seen
        assert row.server in SERVERS
        seen.append(row.name)
        assert row.against in {"", *seen}


def test_every_peer_has_a_server_and_a_row_of_ours() -> None:
    names = {row.name for row in own_rows("")}
    assert {*peer_rows()} == {*peer_starters()}
    for name, row in peer_rows().items():
        assert row.server == name
        assert row.against in names


def test_a_choice_of_rows_keeps_their_yardsticks() -> None:
    names = [row.name for row in select_rows(rows(bearer=""), ", one query, connection kept")]
    assert names == [BARE, VIEW, "fast handler, sync tool, one query, connection kept"]
    names = [
        row.name for row in select_rows(rows(bearer=""), "raw in a session, async tool, layer")
    ]
    assert names[:2] == [BARE, "raw, async tool"]
    every = rows(bearer="")
    assert select_rows(every, None) == list(every)


def test_a_row_is_better_than_its_yardstick_above_one() -> None:
    found = compare_results(measured("half as much", 50), measured(BARE, 100))
    assert found.cpu.median == 2
    assert found.rate.median == 2


def test_the_tables_say_each_row_beside_its_yardstick() -> None:
    results = [measured(BARE, 100), measured("twice", 200), measured("alone", 50, against="")]
    head, rule, line = ratio_table(results).splitlines()
    half = "0.500 (0.500 to 0.500)"
    assert line == f"| twice | bare ASGI answer | {half} | {half} | at least 0.5 |"
    assert len(head) == len(rule) == len(line)
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "row",
        "compared with",
        "requests/s",
        "CPU",
        "target",
    ]
    assert figure_table(results).splitlines()[-1] == (
        "| alone            | 0.500 (0.500 to 0.500) "
        "| 50.0 (50.0 to 50.0) |      20000 |   1.00 |   1.00 |"
    )
    assert figure_table(results[1:]).splitlines()[-1] == (
        "| alone |            | 50.0 (50.0 to 50.0) |      20000 |   1.00 |   1.00 |"
    )
    assert (
        stream_table([STREAMS])
        .splitlines()[-1]
        .startswith("| /mcp  | listen |     100 |     2.00 |")
    )


def test_everything_is_there_as_json() -> None:
    results = [measured(BARE, 100), measured("twice", 200), measured("alone", 50, against="")]
    found = json.loads(json.dumps(build_document(QUICK, results, [STREAMS])))
    bare, twice, alone = found["rows"]
    assert bare["ratio"] is alone["ratio"] is None
    assert twice["ratio"]["cpu"] == {"median": 0.5, "least": 0.5, "most": 0.5}
    assert twice["cpu_us"]["median"] == 200
    assert [row["times_bare"]["median"] for row in found["rows"]] == [1, 2, 0.5]
    assert found["streams"][0]["bytes_each"] == 2048
    assert found["plan"]["rounds"] == QUICK.rounds
