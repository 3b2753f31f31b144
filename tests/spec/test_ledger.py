"""The ledger, the tests and the documentation agree."""

import re
from collections import defaultdict

import pytest

from tests.spec.__main__ import main, report
from tests.spec.ledger import explained_topics, mentions, mentions_in, requirements

# The number of requirements of each part. The numbers only grow, so a removed id fails here.
COUNTS = {
    "RPC": 16,
    "BAT": 9,
    "VER": 21,
    "IO": 11,
    "HTTP": 34,
    "SSE": 11,
    "HDR": 19,
    "SES": 11,
    "RSM": 12,
    "SUB": 18,
    "TOOL": 18,
    "OUT": 9,
    "RSC": 13,
    "PRM": 7,
    "CMP": 6,
    "LOG": 8,
    "PAG": 7,
    "CCH": 6,
    "PRG": 6,
    "CAN": 9,
    "PNG": 3,
    "ASK": 19,
    "MRT": 14,
    "TKD": 11,
    "TKE": 15,
    "ERR": 5,
    "MET": 6,
    "UIX": 4,
    "EXT": 5,
    "APP": 6,
    "SKL": 8,
    "AUT": 34,
    "ALS": 4,
}
LEVELS = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "PICK"}
REVISIONS = (
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
    "DRAFT-2026-v1",
)
STATUS = re.compile(r"served|planned|declined: \S.*")


def test_no_requirement_disappears():
    numbers = defaultdict(list)
    for requirement in requirements().values():
        numbers[requirement.prefix].append(requirement.number)
    assert numbers == {prefix: [*range(1, count + 1)] for prefix, count in COUNTS.items()}


def test_every_entry_is_well_formed():
    broken = [
        requirement.id
        for requirement in requirements().values()
        if requirement.level not in LEVELS
        or not STATUS.fullmatch(requirement.status)
        or not requirement.revisions
        or [*requirement.revisions] != [r for r in REVISIONS if r in requirement.revisions]
        or not re.fullmatch(r"[A-Z].+\.", requirement.text)
    ]
    assert broken == []


def test_every_served_requirement_has_a_test():
    tested = {mention.id for mention in mentions()}
    untested = [r.id for r in requirements().values() if r.is_served and r.id not in tested]
    assert untested == []


def test_every_marker_names_a_known_requirement():
    known = requirements()
    unknown = [
        f"{mention.place}: {mention.id}" for mention in mentions() if mention.id not in known
    ]
    assert unknown == []


def test_every_declined_requirement_is_explained():
    topics = explained_topics()
    declined = [r for r in requirements().values() if r.is_declined]
    assert [r.id for r in declined if r.explained not in topics] == []


def test_markers_are_found_wherever_they_are_written():
    source = """
pytestmark = [spec("RPC-1")]

@pytest.mark.spec("RPC-2", "RPC-3")
class TestAll:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=spec("RPC-4"))])
    def test_one(self, x): other("RPC-5"); thing.spec("RPC-6")
"""
    places = [(mention.id, mention.place) for mention in mentions_in(source, "a.py")]
    assert sorted(places) == [
        ("RPC-1", "a.py:2"),
        ("RPC-2", "a.py:4"),
        ("RPC-3", "a.py:4"),
        ("RPC-4", "a.py:6"),
    ]


def test_a_marker_whose_id_is_computed_is_refused():
    with pytest.raises(ValueError, match=r"a\.py:1: write the ids"):
        [*mentions_in("spec(name)", "a.py")]


def test_the_report_counts_every_requirement_once():
    *_, total = report().splitlines()
    name, served, planned, declined, _tested = total.split()
    assert name == "all"
    assert int(served) + int(planned) + int(declined) == sum(COUNTS.values())


def test_what_is_served_has_to_have_passed(tmp_path, capsys):
    served = [requirement.id for requirement in requirements().values() if requirement.is_served]
    first, rest = tmp_path / "fast", tmp_path / "outside"
    first.write_text("\n".join(served[:100]))
    rest.write_text("\n".join(served[101:]))
    assert main(["--passed", str(first), str(rest)]) == 1
    assert capsys.readouterr().err == f"Served, and no test of theirs passed: {served[100]}.\n"
    rest.write_text("\n".join(served[100:]))
    assert main(["--passed", str(first), str(rest)]) == 0
