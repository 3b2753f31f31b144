"""Users and tokens of a tenant, which are not valid at the other tenant's host."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.sites.tenants.fill import SECRETS, TENANTS, USERS
from tests.sites.tenants.load import AT_ONCE, HANDSHAKE, MODERN, Client
from tests.sites.tenants.sites import MOUNTS, served

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]


@pytest.fixture(
    scope="module",
    params=[*(("users", mount) for mount in MOUNTS), ("schemas", "fast handler")],
    ids=", ".join,
)
def site(request, tmp_path_factory):
    name, mount = request.param
    with served(name, mount, tmp_path_factory.mktemp("users")) as server:
        yield server
        assert "Traceback" not in server.output, server.output


def bearer(tenant: str) -> str:
    return f"Bearer mcp_{SECRETS[tenant]}"


@pytest.mark.parametrize("version", [MODERN, HANDSHAKE])
@pytest.mark.parametrize("tenant", TENANTS)
def test_a_token_is_that_of_the_user_of_its_tenant(site, tenant, version):
    with closing(Client(site, tenant, authorization=bearer(tenant))) as client:
        result = client.call("whoami", version=version).response["result"]
        assert result["content"][0]["text"] == USERS[tenant]


def test_a_token_of_another_tenant_is_unknown(site):
    """The same key is another user there, and the answer does not reveal that the token exists."""
    answers = []
    for presented in (bearer("alpha"), "Bearer mcp_" + "x" * 43):
        with closing(Client(site, "beta", authorization=presented)) as client:
            reply = client.call("whoami")
            answers.append((reply.status, reply.text, reply.headers["www-authenticate"]))
    assert answers[0] == answers[1]
    assert answers[0][0] == 401


def test_callers_of_both_tenants_at_once(site):
    def call(tenant: str) -> bool:
        with closing(Client(site, tenant, authorization=bearer(tenant))) as client:
            version = random.choice([MODERN, HANDSHAKE])
            content = client.call("whoami", version=version).response["result"]["content"]
            rows = client.call("async_items", version=version).rows
            own = {f"{tenant}-{number}" for number in (1, 2, 3)}
            return bool(content[0]["text"] == USERS[tenant]) and rows == own

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert all(pool.map(call, random.choices(TENANTS, k=6 * AT_ONCE)))


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_task_runs_as_the_user_of_its_tenant(site, tenant):
    with closing(Client(site, tenant, authorization=bearer(tenant))) as client:
        for version in (MODERN, HANDSHAKE):
            reply = client.run_task({"name": "required_task", "arguments": {}}, version=version)
            assert reply.rows == {f"{tenant}-{number}" for number in (1, 2, 3)}, reply.text
