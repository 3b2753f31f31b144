"""The official clients with their own OAuth against a live site, headless, at every revision.

Each goes the whole way once (`clients/oauth.py`, `clients/oauth.mjs`): discovery, registration or
metadata document, consent, call, step-up, refresh, revocation. Each test checks a part of it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("oauth2_provider")

from tests.interop import clients, node
from tests.oauth.live import documents
from tests.oauth.live.person import person_at
from tests.oauth.live.site import Site, running_site
from tests.spec import spec

HANDSHAKES = ("2025-03-26", "2025-06-18", "2025-11-25")
JULY = "2026-07-28"
# The revisions at which each client is tested; the older versions know only the handshakes.
SPOKEN = {
    "python2": (*HANDSHAKES, JULY),
    "python1": HANDSHAKES,
    "typescript2": (*HANDSHAKES, JULY),
    "typescript1": HANDSHAKES,
}
NEEDS = {
    "python2": (),
    "python1": ("clients",),
    "typescript2": ("node", "npm"),
    "typescript1": ("node", "npm"),
}
REGISTRATIONS = ("document", "registered")

pytestmark = [
    pytest.mark.outside,
    pytest.mark.timeout(node.INSTALL_SECONDS + 3 * node.SCRIPT_SECONDS),
]
Seen = dict[str, Any]


@pytest.fixture(scope="session")
def site_of(tmp_path_factory):
    """Yield a function that returns the live site of a revision, started at its first use."""
    sites: dict[str, Site] = {}
    with ExitStack() as stack:

        def site_of(revision: str) -> Site:
            if revision not in sites:
                directory = tmp_path_factory.mktemp("revision")
                sites[revision] = stack.enter_context(running_site(directory, revision=revision))
            return sites[revision]

        yield site_of


@pytest.fixture(scope="session")
def journey(site_of):
    """Return a function that returns what a client saw at a revision, by kind of registration."""
    seen: dict[tuple[str, str], Seen] = {}

    def journey(client: str, revision: str) -> Seen:
        if (client, revision) not in seen:
            seen[client, revision] = _travel(client, revision, site_of(revision))
        return seen[client, revision]

    return journey


def _travel(client: str, revision: str, site: Site) -> Seen:
    mode = revision if revision == JULY else "legacy"
    if client == "typescript2" and revision == JULY:
        mode = {"pin": JULY}
    with person_at(site) as person:
        common = {"url": site.mcp, "person": person, "mode": mode}
        given = {
            "targets": {
                "document": {**common, "document": documents.SDK},
                "registered": common,
            }
        }
        if client.startswith("python"):
            environment = "mcp1" if client == "python1" else None
            return clients.run("oauth.py", given, environment=environment)
        project = node.PROJECT if client == "typescript2" else node.OLDER_PROJECT
        node.install(project)
        return node.run("oauth.mjs", given, project=project)


@pytest.fixture(
    params=[
        pytest.param(
            (client, revision, way),
            id=f"{client} at {revision}, {way}",
            marks=[pytest.mark.requires(*NEEDS[client])] if NEEDS[client] else [],
        )
        for client, revisions in SPOKEN.items()
        for revision in revisions
        for way in REGISTRATIONS
    ]
)
def sign_in(request, journey):
    """Return the revision, the way of registering, and what the client saw."""
    client, revision, way = request.param
    return revision, way, journey(client, revision)[way]


@spec("AUT-15", "AUT-16", "AUT-24", "AUT-25", "AUT-26")
def test_official_client_signs_in_and_calls(sign_in):
    revision, way, seen = sign_in
    assert seen["version"] == revision
    assert seen["first"] == "ada"
    assert seen["registered"] == (way == "registered")
    assert (seen["client_id"] == documents.SDK) == (way == "document")


@spec("AUT-6")
def test_official_client_asks_for_more_when_a_tool_needs_it(sign_in):
    _, _, seen = sign_in
    assert "orders:refund" not in seen["granted"].split()
    assert seen["more"] == "Refunded 7."
    assert {"mcp:write", "orders:refund"} <= {*seen["granted_more"].split()}


@spec("AUT-23")
def test_official_client_refreshes_an_expired_token(sign_in):
    _, _, seen = sign_in
    assert seen["later"] == "ada"
    assert seen["later_grants"] == ["refresh_token"]


@spec("AUT-3")
def test_official_client_has_to_ask_the_user_again_after_a_revocation(sign_in):
    _, _, seen = sign_in
    assert seen["again"] == "ada"
    assert seen["asked_again"] == 1
