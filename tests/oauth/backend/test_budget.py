"""The queries that a bearer of the site's authorization server costs at each mount (threat 29)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from django.db.backends.utils import CursorWrapper
from oauth2_provider.models import get_refresh_token_model

from mcp_django.oauth.revoking import revoke_family
from tests.kit.drivers import message
from tests.oauth import vault
from tests.oauth.vault_asking import LIST, VAULT, ask, call
from tests.spec import spec
from tests.transports import asgi
from tests.transports.http_session.handshakes import D, opened
from tests.transports.mounts import in_thread

QUERIES = ("SELECT", "INSERT", "UPDATE", "DELETE")


@pytest.fixture
def statements():
    """The queries that any thread sends; statements that begin transactions are not counted."""
    seen: list[str] = []
    execute = CursorWrapper.execute

    def counted(self: Any, sql: str, params: Any = None) -> Any:
        if sql.startswith(QUERIES):
            seen.append(sql)
        return execute(self, sql, params)

    with patch.object(CursorWrapper, "execute", counted):
        yield seen


@pytest.mark.parametrize(
    ("body", "count"),
    # One of the tools requires a Django permission, which costs two more queries.
    [(message("server/discover"), 1), (call("whoami"), 1), (LIST, 3)],
)
async def test_threat_29_a_call_costs_one_query_at_every_mount(ada, mount, statements, body, count):
    bearer = await ada.bearer()
    assert (await ask(mount, "/mcp", body, authorization=bearer)).status == 200
    statements.clear()
    assert (await ask(mount, "/mcp", body, authorization=bearer)).status == 200
    assert len(statements) == count, statements


async def test_threat_29_a_refusal_for_want_of_scopes_costs_one_query(ada, mount, statements):
    bearer = await ada.bearer("mcp vault", VAULT)
    body = call("change", name="x")
    for _ in range(6):  # after five in a minute, they are no longer rows of the security log
        statements.clear()
        assert (await ask(mount, "/vault/mcp", body, authorization=bearer)).status == 403
    assert len(statements) == 1, statements


@spec("AUT-1", "AUT-3")
@pytest.mark.parametrize("name", vault.MOUNTS)
async def test_threat_17_no_stream_is_opened_with_a_revoked_token(ada, name, monkeypatch):
    for mount, app in vault.MOUNTS.items():
        monkeypatch.setitem(asgi.MOUNTS, mount, app)
    token = await ada.token()
    peer = await opened(name, "/mcp", version=D, token=f"Bearer {token}")
    async with peer.standing():
        pass
    await in_thread(_revoke)
    for answer in (await peer.get(), await peer.delete()):
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]


def _revoke() -> None:
    revoke_family(get_refresh_token_model().objects.get().token_family)
