"""Users in the schemas of tenants: the same key is another user in each, and rows of this package,
which are shared, cannot tell them apart.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.sites.tenants.fill import SECRET
from tests.sites.tenants.load import AT_ONCE, HANDSHAKE, MODERN, Client
from tests.sites.tenants.sites import HTTP_MOUNTS, served

pytestmark = [pytest.mark.outside, pytest.mark.requires("shared")]

USERS = {"alpha": "alice", "beta": "bob"}


@pytest.fixture(scope="module", params=HTTP_MOUNTS)
def site(request, tmp_path_factory):
    with served("users", request.param, tmp_path_factory.mktemp("users")) as server:
        yield server


@pytest.mark.parametrize(("tenant", "user"), [*USERS.items(), ("alpha", "carol")])
def test_a_caller_is_the_user_of_the_tenant(site, tenant, user):
    with closing(Client(site, tenant, x_user=user)) as client:
        result = client.call("whoami").response["result"]
        assert result["content"][0]["text"] == user
        assert client.call("async_items").rows == {f"{tenant}-{number}" for number in (1, 2, 3)}


def test_callers_of_both_tenants_at_once(site):
    def call(tenant: str) -> bool:
        with closing(Client(site, tenant, x_user=USERS[tenant])) as client:
            content = client.call("whoami").response["result"]["content"]
            return bool(content[0]["text"] == USERS[tenant])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert all(pool.map(call, random.choices([*USERS], k=6 * AT_ONCE)))


@pytest.mark.parametrize("tenant", USERS)
def test_a_session_of_a_user_is_refused(site, tenant):
    with closing(Client(site, tenant, x_user=USERS[tenant])) as client:
        reply = client.open()
        assert "django_tenants" in reply.refusal
        assert "mcp-session-id" not in reply.headers


def test_a_session_of_no_user_reads_the_rows_of_its_tenant(site):
    for tenant in USERS:
        with closing(Client(site, tenant)) as client:
            reply = client.call("async_items", version=HANDSHAKE)
            assert reply.rows == {f"{tenant}-{number}" for number in (1, 2, 3)}, reply


@pytest.mark.parametrize("tenant", USERS)
@pytest.mark.parametrize("version", [MODERN, HANDSHAKE])
def test_a_token_is_refused(site, tenant, version):
    """At beta too, where the key of alice is the key of bob."""
    with closing(Client(site, tenant, authorization=f"Bearer mcp_{SECRET}")) as client:
        reply = client.call("whoami", version=version)
        assert not any(user in reply.text for user in USERS.values()), reply.text
        assert reply.status != 200 or "error" in reply.response
        assert "django_tenants" in reply.text
