"""Each request is answered as recorded, on each mount, at each revision and as each caller.

To record anew, after a change that is wanted:

    MCP_RECORD=1 python -m pytest -n 0 --ring all tests/matrix/test_record.py

and read the difference of the files before it is committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from django.test import override_settings

from tests.matrix import cases_http, cases_protocol, cases_resources, cases_tools
from tests.matrix.callers import CALLERS
from tests.matrix.cases import ALL, MOUNTS, Case
from tests.matrix.links_local import make_link
from tests.matrix.observing import Watch
from tests.matrix.recording import (
    COMMAND,
    Values,
    compare,
    read_group,
    replace_place,
    write_group,
)
from tests.matrix.rules import sort_batch
from tests.matrix.site import SETTINGS

GROUPS: Mapping[str, Mapping[str, Case]] = {
    "calls": cases_tools.CALLS,
    "header_parameters": cases_tools.HEADER_PARAMETERS,
    "talks": cases_tools.TALKS,
    "limited": cases_tools.LIMITED,
    "resources": cases_resources.RESOURCES,
    "prompts": cases_resources.PROMPTS,
    "catalog": cases_resources.CATALOG,
    "methods": cases_protocol.METHODS,
    "sessions": cases_protocol.SESSIONS,
    "tasks": cases_protocol.TASKS,
    "access": cases_protocol.ACCESS,
    "bodies": cases_http.BODIES,
    "headers": cases_http.HEADERS,
}
# Together these take all paths of the HTTP core: with and without streams, sessions and middleware.
IN_FAST_RING = {
    ("raw", "2026-07-28"),
    ("raw", "2025-11-25"),
    ("raw", "2025-03-26"),
    ("wsgi", "2026-07-28"),
    ("wsgi", "2025-06-18"),
}
IS_RECORDING = bool(os.environ.get("MCP_RECORD"))


def places() -> list[Any]:
    return [
        pytest.param(
            mount,
            version,
            group,
            id=f"{mount}-{version}-{group}",
            marks=(
                [pytest.mark.every_mount]
                if (mount, version) in IN_FAST_RING
                else [pytest.mark.outside, pytest.mark.heavy]
            ),
        )
        for group, cases in GROUPS.items()
        for mount in MOUNTS
        for version in ALL
        if any(case.applies(mount, version) for case in cases.values())
    ]


@pytest.mark.parametrize(("mount", "version", "group"), places())
async def test_answers_are_as_recorded(mount, version, group, watch):
    cases = GROUPS[group]
    seen: Values = {name: {} for name in cases}
    named_cases = [(n, c) for n, c in cases.items() if c.applies(mount, version)]
    for caller in CALLERS:
        link = make_link(mount, version, CALLERS[caller])
        for name, case in named_cases:
            if caller not in case.callers_at(mount):
                continue
            observation = await observe(
                watch, link, case, mount=mount, version=version, caller=caller
            )
            for part, value in observation.items():
                seen[name].setdefault(part, {})[mount, version, caller] = value
        await link.close()
    if IS_RECORDING:
        # Workers would overwrite each other's files.
        assert "PYTEST_XDIST_WORKER" not in os.environ, f"Record in one process: {COMMAND}"
        write_group(group, replace_place(read_group(group), mount, version, seen))
        return
    recorded = read_group(group, mount=mount, version=version)
    different = compare(recorded, mount, version, seen)
    assert not different, "\n\n".join([*different, f"If this is wanted: {COMMAND}"])


async def observe(watch: Watch, link: Any, case: Case, **context: str) -> dict[str, Any]:
    """Send the request of a case, after the one before it; return the values to record."""
    changed = case.settings and override_settings(MCP_DJANGO={**SETTINGS, **case.settings})
    with changed or nullcontext():
        if await link.prepare(case):
            await watch.forget(is_reset=True)
        before = None
        if case.first is not None:
            before = await link.ask(case.first)
            await watch.forget(is_reset=False)
        answer = await link.ask(case, before)
        if case.is_batch:
            answer.body = sort_batch(answer.body)
        observation = await watch.observe(answer, **context)
    # In the form in which it will be read from the file.
    return dict(json.loads(json.dumps(observation)))
