"""Print how far the ledger is served: `python -m tests.spec`."""

from __future__ import annotations

from collections import Counter

from tests.spec.ledger import Requirement, mentions, requirements

COLUMNS = ("served", "planned", "declined", "tested")


def report() -> str:
    """A table with a row for each prefix and one for all of them."""
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


if __name__ == "__main__":
    print(report())
