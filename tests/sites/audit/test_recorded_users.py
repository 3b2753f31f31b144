"""Each package records the caller: for each kind of tool, on each transport, streamed or not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest

from tests.sites.audit.callers import HTTP, LOCAL, Caller, Outcome, ToolCall, call
from tests.sites.audit.models import Note
from tests.sites.audit.recorded import NOBODY, PACKAGES, recorded
from tests.transports.mounts import in_thread

ANONYMOUS = Caller()
_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of tool, and the tool that is called if the answer is to be streamed."""

    tool: str
    streamed: str = ""
    server: str = "notes"
    changes: bool = False
    key: str = "id"
    is_open: bool = True


KINDS = {
    "function": Kind(tool="write", streamed="report"),
    "async function": Kind(tool="write_later", streamed="report_later"),
    "slow function": Kind(tool="write_slowly"),
    "slow async function": Kind(tool="write_slowly_later"),
    "ModelTools create": Kind(tool="create_note", is_open=False),
    "ModelTools update": Kind(tool="update_note", changes=True, is_open=False),
    "view": Kind(tool="write_view"),
    "async view": Kind(tool="write_async_view"),
    "form view": Kind(tool="write_form"),
    "viewset create": Kind(tool="create_note", server="rest"),
    "viewset update": Kind(tool="update_note", server="rest", changes=True, key="pk"),
    "admin create": Kind(tool="create_note", server="staff", is_open=False),
    "admin update": Kind(tool="update_note", server="staff", changes=True, is_open=False),
}
# Commands print progress and nothing else is different.
TRANSPORTS = [
    *((mount, streams) for mount in HTTP for streams in (False, True)),
    *((mount, False) for mount in LOCAL),
    ("stdio", True),
]


async def write(
    mount: str, caller: Caller, kind: Kind, *, streams: bool
) -> tuple[dict[str, str], Outcome]:
    """Write a note with a kind of tool, and return what was recorded."""
    text = f"note {next(_numbers)}"
    arguments = {"text": text}
    if kind.changes:
        note = await in_thread(Note.objects.create, text="unchanged")
        arguments[kind.key] = note.pk
    tool = kind.streamed if streams and kind.streamed else kind.tool
    wanted = ToolCall(server=kind.server, tool=tool, arguments=arguments, streams=streams)
    outcome = await call(mount, caller, wanted)
    assert outcome.is_done, outcome.response
    return await in_thread(recorded, text), outcome


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("mount", "streams"),
    TRANSPORTS,
    ids=[f"{mount}, {'streamed' if streams else 'answered'}" for mount, streams in TRANSPORTS],
)
async def test_the_caller_is_recorded(mount, streams, kind, ada, bob, record_property):
    callers = {"ada": ada, "bob": bob}
    if KINDS[kind].is_open:
        callers[NOBODY] = ANONYMOUS
    failures = {}
    for name, caller in callers.items():
        users, outcome = await write(mount, caller, KINDS[kind], streams=streams)
        record_property(name, users)
        record_property("is_stream", outcome.is_stream)
        if users != dict.fromkeys(PACKAGES, name):
            failures[name] = users
    assert failures == {}
