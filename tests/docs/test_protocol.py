"""The page about the protocol agrees with the tables of the code and with the ledger."""

import re

from mcp_django.conf import SERVED_VERSIONS
from mcp_django.execution.pipeline import HANDLERS
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import REVISIONS
from tests.spec.ledger import PROTOCOL_PAGE, explained_topics, requirements

PAGE = PROTOCOL_PAGE.read_text(encoding="utf-8")

# An en dash.
NONE = "\u2013"

# The sections of the ledger whose choices this page explains.
SECTIONS = "RPC VER HDR ERR MET UIX CCH PAG HTTP SUB TOOL OUT RSC PRM CMP LOG PRG CAN EXT AUT ALS"


def test_the_table_of_methods_is_the_one_of_the_code():
    (head,) = re.findall(r"^\| method \| (.+) \|$", PAGE, re.MULTILINE)
    versions = head.split(" | ")
    rows = re.findall(r"^\| `([\w/]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    assert {*versions} == {*REVISIONS}
    assert {name for name, _ in rows} == {*REQUESTS}
    for name, marks in rows:
        for version, mark in zip(versions, marks.split(" | "), strict=True):
            exists = version in REQUESTS[name].revisions
            # `initialize` has no handler, since it is not yet a request of a session.
            handled = name in HANDLERS or name == "initialize"
            served = exists and handled and version in SERVED_VERSIONS
            assert mark == ("●" if served else "○" if exists else NONE), (name, version)


def test_every_open_point_is_settled():
    topics = explained_topics()
    assert len(topics) == len(set(topics))
    named = {r.explained for r in requirements().values() if r.explained}
    assert named == {*topics}
    picks = [r for r in requirements().values() if r.level == "PICK"]
    unsettled = [r.id for r in picks if r.prefix in SECTIONS.split() and not r.explained]
    assert unsettled == []


def test_the_page_names_no_requirement_id():
    assert [
        requirement for requirement in requirements() if re.search(rf"\b{requirement}\b", PAGE)
    ] == []
