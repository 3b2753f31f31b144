"""The progress bar at a terminal and in a log."""

from __future__ import annotations

import io

from demo_project.airports.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_shows_one_line_that_is_redrawn():
    terminal = Terminal()
    bar = ProgressBar(terminal, label="Loading", total=1500)
    bar.advance(1000)
    bar.advance(500)
    assert terminal.getvalue() == (
        "\rLoading [####################..........] 1,000 of 1,500"
        "\rLoading [##############################] 1,500 of 1,500\n"
    )


def test_log_gets_a_line_for_each_quarter():
    log = io.StringIO()
    bar = ProgressBar(log, label="Loading", total=1000)
    for _ in range(100):
        bar.advance(10)
    assert log.getvalue().splitlines() == [
        "Loading 250 of 1,000",
        "Loading 500 of 1,000",
        "Loading 750 of 1,000",
        "Loading 1,000 of 1,000",
    ]
