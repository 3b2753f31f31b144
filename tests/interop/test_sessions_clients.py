"""Clients of others at every handshake revision, over every mount and over HTTP+SSE.

`clients/journey.py` defines what each client does; each test checks a part of what they saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tests.interop import clients, node
from tests.interop.session_server import MIGRATE_SECONDS, RESUMABLE, session_site, targets
from tests.interop.session_site import HANDSHAKES
from tests.interop.session_site.components import LEVELS, WATCHED
from tests.kit.processes import START_SECONDS
from tests.spec import spec

INVALID_PARAMS = -32602
LATEST = "2025-11-25"
# The targets of a client, and the revision that is negotiated there.
PLACES = {
    **dict.fromkeys(("raw", "view", "sse"), LATEST),
    **{version: version for version in HANDSHAKES},
}
BROKEN = [*(f"broken at {version}" for version in RESUMABLE), "closed"]
QUESTION, CONSENT, SUMMARY = "What is your name?", "Please agree.", "Summarize: Long."

Seen = dict[str, Any]
Run = Callable[[Any], dict[str, Any]]


def _python(script: str, environment: str | None) -> Run:
    return partial(clients.run, script, environment=environment)


def _typescript(project: Any) -> Run:
    def run(given: Any) -> dict[str, Any]:
        node.install(project)
        return node.run("sessions.mjs", given, project=project)

    return run


NODE = pytest.mark.requires("node", "npm")
CLIENTS = pytest.mark.requires("clients")
SHARED = pytest.mark.requires("shared")
# How each client is run, the number of processes that serve it, and the services that it needs.
WAYS: Mapping[str, tuple[Run, int, tuple[pytest.MarkDecorator, ...]]] = {
    "mcp 1": (_python("python1.py", "mcp1"), 1, (CLIENTS,)),
    "mcp 2": (_python("python2.py", None), 1, ()),
    "fastmcp": (_python("fast.py", "fastmcp"), 1, (CLIENTS,)),
    "sdk": (_typescript(node.OLDER_PROJECT), 1, (NODE,)),
    "client": (_typescript(node.PROJECT), 1, (NODE,)),
    "mcp 1, three workers": (_python("python1.py", "mcp1"), 3, (CLIENTS, SHARED)),
    "client, three workers": (_typescript(node.PROJECT), 3, (NODE, SHARED)),
}

pytestmark = [
    pytest.mark.outside,
    pytest.mark.timeout(
        MIGRATE_SECONDS + START_SECONDS + node.INSTALL_SECONDS + clients.SCRIPT_SECONDS
    ),
]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Yield a function that starts the site with a number of processes, once."""
    sites: dict[int, str] = {}
    with ExitStack() as stack:

        def start(workers: int) -> str:
            if workers not in sites:
                directory = tmp_path_factory.mktemp("sessions")
                sites[workers] = stack.enter_context(session_site(directory, workers=workers))
            return sites[workers]

        yield start


@pytest.fixture(scope="session")
def travel(site):
    """Return a function that runs a client once, and returns what it saw."""
    trips: dict[str, dict[str, Seen]] = {}

    def travel(way: str) -> dict[str, Seen]:
        if way not in trips:
            run, workers, _ = WAYS[way]
            trips[way] = run({"targets": targets(site(workers), way)})
        return trips[way]

    return travel


def everywhere(places: Any) -> pytest.MarkDecorator:
    """Parametrize a test with each client in each of these places."""
    return pytest.mark.parametrize(
        ("way", "place"),
        [
            pytest.param(way, place, marks=marks, id=f"{way} at {place}")
            for way, (_, _, marks) in WAYS.items()
            for place in places
        ],
    )


at_every_place = everywhere(PLACES)


@pytest.fixture
def seen(way, place, travel):
    return travel(way)[place]


def result(text: str) -> Seen:
    return {"text": text, "structured": None, "failed": False}


def number(value: int, version: str) -> Seen:
    """Return the result of a number: with structured content in revisions that have it."""
    structured = {"result": value} if version >= "2025-06-18" else None
    return {**result(str(value)), "structured": structured}


def needs(tool: str, capability: str) -> Seen:
    text = f"tool {tool!r} needs a client that declares {capability}."
    return {"text": text, "structured": None, "failed": True}


@spec("VER-13")
@at_every_place
def test_client_agrees_on_what_the_server_speaks(seen, place):
    assert seen["version"] == PLACES[place]
    assert seen["name"] == {"sse": "old"}.get(place, place)
    completions = ["completions"] if seen["version"] > "2024-11-05" else []
    assert seen["capabilities"] == [*completions, "logging", "prompts", "resources", "tools"]


@at_every_place
def test_client_uses_what_it_lists(seen):
    assert {"add", "count", "greet", "wait"} < set(seen["tools"])
    assert seen["added"] == number(5, seen["version"])
    assert seen["unknown"] == {"code": INVALID_PARAMS}
    assert seen["board"] == "Nothing new."
    assert seen["letter"] == "Write a letter about fog."
    assert seen["suggested"] == ["paris", "park", "party"]


@at_every_place
def test_client_hears_progress_in_order(seen, way, place):
    assert seen["counted"] == result("counted to 4")
    expected = [1, 2, 3, 4]
    if place == "sse" and way in TAKES_THE_RESPONSE_FIRST:
        expected = expected[: len(seen["progress"])]
    assert seen["progress"] == expected


# If messages arrive together over HTTP+SSE, the TypeScript clients handle the response before the
# progress that precedes it, and can then no longer assign the progress to its request.
TAKES_THE_RESPONSE_FIRST = ("sdk", "client", "client, three workers")


@at_every_place
def test_user_is_asked_where_the_revision_has_questions_to_him(seen):
    if seen["version"] < "2025-06-18":
        assert seen["greeted"] == seen["declined"] == needs("greet", "elicitation")
    else:
        assert seen["greeted"] == result("Hello, Ada.")
        assert seen["declined"] == result("Hello, stranger (decline).")


@at_every_place
def test_user_is_sent_to_a_page_where_the_revision_has_pages(seen):
    has_pages = seen["version"] == LATEST
    assert seen["agreed"] == (
        result("agreed") if has_pages else needs("consent", "elicitation.url")
    )


@at_every_place
def test_model_and_folders_are_asked_at_every_revision(seen):
    assert seen["summarized"] == result("small says: Short.")
    assert seen["folders"] == result("file:///home/ada")
    questions = [QUESTION] * 2 if seen["version"] >= "2025-06-18" else []
    questions += [CONSENT] if seen["version"] == LATEST else []
    assert seen["asked"] == [*questions, SUMMARY]


@at_every_place
def test_client_hears_as_much_of_the_log_as_it_set(seen):
    records = [[level, f"this is {level}"] for level in LEVELS]
    assert seen["logged_at_debug"] == records
    assert seen["logged_at_error"] == records[-1:]
    # Before a level is set, the server chooses it; an answer may then come without a stream.
    assert seen["logged"] in ([], records[1:])


@at_every_place
def test_client_hears_of_changes_while_it_wants_to(seen):
    assert seen["updated"] == WATCHED
    assert seen["updated_later"] == 0


@at_every_place
def test_call_that_is_cancelled_stops(seen):
    assert seen["stopped"] == "true"


@everywhere(BROKEN)
def test_client_comes_back_for_the_rest_of_an_answer(seen, place):
    assert seen["answered"] == result("here again")
    assert seen["progress"] == [1, 2, 3]
    assert seen["added"] == number(2, place.removeprefix("broken at "))
