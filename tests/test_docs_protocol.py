"""The page about the protocol agrees with the tables of the code and with the ledger."""

from __future__ import annotations

import re
from pathlib import Path

from mcp_django.conf import SERVED_VERSIONS
from mcp_django.execution.pipeline import HANDLERS
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import REVISIONS
from tests.spec.ledger import requirements

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "protocol.md").read_text()

# An en dash.
NONE = "\u2013"

# The parts of the ledger that this page settles.
SECTIONS = "RPC VER HDR ERR MET UIX CCH PAG HTTP SUB TOOL OUT RSC PRM CMP LOG PRG CAN EXT AUT ALS"


def test_the_table_of_methods_is_the_one_of_the_code() -> None:
    (head,) = re.findall(r"^\| method \| (.+) \|$", PAGE, re.MULTILINE)
    versions = head.split(" | ")
    rows = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    assert {*versions} == {*REVISIONS}
    assert {name for name, _ in rows} == {*REQUESTS}
    for name, marks in rows:
        for version, mark in zip(versions, marks.split(" | "), strict=True):
            exists = version in REQUESTS[name].revisions
            # The one method that is no request of a session yet.
            handled = name in HANDLERS or name == "initialize"
            served = exists and handled and version in SERVED_VERSIONS
            assert mark == ("●" if served else "○" if exists else NONE), (name, version)


def test_every_open_point_is_settled() -> None:
    settled = re.findall(r"^- \*\*([A-Z]+-\d+)\*\* .+\.$", PAGE, re.MULTILINE)
    assert len(settled) == len(set(settled))
    known = requirements()
    assert {*settled} <= {*known}
    picks = {r.id for r in known.values() if r.level == "PICK" and r.prefix in SECTIONS.split()}
    assert picks - {*settled} == set()
