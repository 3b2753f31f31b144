"""Simultaneous calls of two tenants get only their own rows, for each site, mount and function.

`python -m tests.sites.tenants` prints a table of them all with 400 calls each.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.sites.tenants.load import KINDS, PATH, Client, Load
from tests.sites.tenants.sites import SITES, served
from tests.transports.http_session.handshakes import B

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

# On a mount that mixes tenants, half of all calls are wrong, so a few calls detect that, too.
MANY, SOME = 400, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server, its clients, and how often they call."""

    load: Load
    clients: list[Client]
    calls: int


@pytest.fixture(
    scope="module",
    params=[
        *((site, mount) for site in SITES for mount in ("fast handler", "view under ASGI")),
        *(("schemas", mount) for mount in ("WSGI", "raw", "consumer")),
        ("files", "raw"),
    ],
    ids=", ".join,
)
def site(request, tmp_path_factory):
    name, mount = request.param
    with served(name, mount, tmp_path_factory.mktemp("rows")) as server:
        with (
            closing(Load(server, can_stream=mount != "WSGI")) as load,
            closing(Client(server, "alpha")) as alpha,
            closing(Client(server, "beta")) as beta,
        ):
            calls = MANY if request.param == ("schemas", "fast handler") else SOME
            yield Site(load=load, clients=[alpha, beta], calls=calls)
        assert "Traceback" not in server.output, server.output


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_reads_all_rows_of_its_tenant_and_no_other(site, kind):
    outcome = site.load.run(kind, site.calls)
    assert outcome.calls == site.calls
    assert (outcome.foreign, outcome.wrong) == (0, 0), outcome.example


def test_a_batch_reads_the_rows_of_its_tenant(site):
    requests = [
        (method, params)
        for kind, (path, method, params) in KINDS.items()
        if path == PATH and kind != "task"
    ]
    batch = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(requests)
    ]
    for client in site.clients:
        reply = client.ask_in_session(batch, version=B)
        assert reply.rows == {f"{client.tenant}-{number}" for number in (1, 2, 3)}
        results = [answer["result"] for answer in reply.messages if "id" in answer]
        assert len(results) == len(batch)
        assert not any(result.get("isError") for result in results), reply.text
