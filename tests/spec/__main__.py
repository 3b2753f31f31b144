"""Print how many requirements of the ledger are served: `python -m tests.spec`.

With `--passed FILE …`, the files that `pytest --passed FILE` wrote, fail if a served requirement
has no test that passed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.spec.ledger import Requirement, mentions, requirements

COLUMNS = ("served", "planned", "declined", "tested")


def report() -> str:
    """Return a table with a row for each prefix and a row for all of them."""
    tested = {mention.id for mention in mentions()}
    rows: dict[str, Counter[str]] = {}
    for requirement in requirements().values():
        counts = rows.setdefault(requirement.prefix, Counter())
        counts[_column(requirement)] += 1
        counts["tested"] += requirement.id in tested
    rows["all"] = sum(rows.values(), Counter())
    lines = ["".join(f"{title:>10}" for title in ("", *COLUMNS))]
    lines += [
        f"{prefix:>10}" + "".join(f"{counts[column]:>10}" for column in COLUMNS)
        for prefix, counts in rows.items()
    ]
    return "\n".join(lines)


def _column(requirement: Requirement) -> str:
    return "declined" if requirement.is_declined else requirement.status


def unproven(passed: Iterable[Path]) -> list[str]:
    """Return the served requirements that none of these files names."""
    ids = {name for path in passed for name in path.read_text(encoding="utf-8").split()}
    return [
        requirement.id
        for requirement in requirements().values()
        if requirement.is_served and requirement.id not in ids
    ]


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a served requirement was not proven."""
    parser = argparse.ArgumentParser(prog="python -m tests.spec")
    parser.add_argument("--passed", nargs="+", type=Path, metavar="FILE", default=[])
    passed = parser.parse_args(arguments).passed
    print(report())
    missing = unproven(passed) if passed else []
    if missing:
        print(f"Served, and no test of theirs passed: {', '.join(missing)}.", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
