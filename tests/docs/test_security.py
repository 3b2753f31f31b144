"""The page about security: every threat has a row, and every row a test that exists."""

import re
from pathlib import Path

from mcp_django.models import AuthEvent

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "topics" / "security.md"


def test_each_threat_has_a_test():
    rows = re.findall(
        r"^\| (\d+) \| .+ \| `(test_threat_(\d\d)_\w+)` \|$", PAGE.read_text(), re.MULTILINE
    )
    assert [int(number) for number, *_ in rows] == list(range(1, 31))
    assert all(int(number) == int(named) for number, _, named in rows)
    sources = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    known = set(re.findall(r"def (test_threat_\d\d_\w+)\(", sources))
    assert {name for _, name, _ in rows} - known == set()


def test_each_kind_of_event_is_described():
    table = PAGE.read_text().partition("| kind |")[2].partition("\n\n")[0]
    described = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))
    assert sorted(described) == sorted(AuthEvent.Kind.values)
