"""Revoked access ends immediately: for requests, for refreshing and for open streams."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_refresh_token_model

from mcp_django.models import AuthEvent
from mcp_django.oauth.revoking import revoke_access, revoke_client, revoke_family
from mcp_django.transports import stream_access
from tests.kit.drivers import connect, message
from tests.oauth import parties, vault
from tests.oauth.asking import ask, redirect_parameters
from tests.oauth.exchanges import REVOKE, call, error_of, make_code, post, redeem, refresh, sign_in
from tests.overrides.site import decide_of_server_elsewhere
from tests.spec import spec
from tests.transports.conftest import close_asgiref_connections
from tests.transports.mounts import in_thread

pytestmark = pytest.mark.django_db(transaction=True)
LISTEN = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})


@pytest.fixture(autouse=True)
def _no_minute_is_over(monkeypatch):
    monkeypatch.setattr(stream_access, "RECHECK_SECONDS", 3600)
    close_asgiref_connections()
    yield
    close_asgiref_connections()


class SignedIn:
    """A user, a client, and the client's tokens."""

    def __init__(self) -> None:
        self.user, self.app = parties.make_user(), parties.make_app()
        answer = sign_in(self.user, self.app, scope="mcp")
        self.access, self.refresh = answer["access_token"], answer["refresh_token"]


def deactivate(signed_in: SignedIn) -> None:
    signed_in.user.is_active = False
    signed_in.user.save()


def end(signed_in: SignedIn) -> None:
    revoke_family(get_refresh_token_model().objects.get().token_family)


WAYS = {
    "user deactivated": deactivate,
    "user deleted": lambda signed_in: signed_in.user.delete(),
    "revoked by the client": lambda signed_in: post(
        {"token": signed_in.refresh, "client_id": signed_in.app.client_id}, path=REVOKE
    ),
    "revoked by the user": lambda signed_in: revoke_access(signed_in.user, signed_in.app.client_id),
    "client revoked": lambda signed_in: revoke_client(signed_in.app.client_id),
    "family ended": end,
}


@pytest.mark.parametrize("way", WAYS)
@spec("AUT-1", "AUT-3", "AUT-23")
def test_threat_17_nothing_works_any_more(way):
    signed_in = SignedIn()
    assert call(signed_in.access).status_code == 200
    WAYS[way](signed_in)
    answer = call(signed_in.access)
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer["WWW-Authenticate"]
    assert error_of(refresh(signed_in.app, signed_in.refresh)) == (400, "invalid_grant")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mount", ["lane", "view"])
@spec("AUT-1")
async def test_threat_17_an_open_stream_ends_at_once(way, mount):
    signed_in = await in_thread(SignedIn)
    bearer = f"Bearer {signed_in.access}"
    async with connect(vault.MOUNTS[mount], "/mcp", LISTEN, authorization=bearer) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        await in_thread(WAYS[way], signed_in)
        assert "result" in await connection.event()


@pytest.mark.parametrize("mount", ["lane", "view"])
@spec("AUT-1", "AUT-23")
async def test_a_stream_outlives_a_refresh_of_its_token(mount):
    signed_in = await in_thread(SignedIn)
    bearer = f"Bearer {signed_in.access}"
    async with connect(vault.MOUNTS[mount], "/mcp", LISTEN, authorization=bearer) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        answer = await in_thread(refresh, signed_in.app, signed_in.refresh)
        assert answer.status_code == 200
        # The stream is notified to check its access; a live token exists, so it stays open.
        from mcp_django.storage.revocations import notify_user
        from tests.oauth.servers import orders

        await in_thread(notify_user, signed_in.user.pk)
        orders.notify_list_changed("tools")
        assert (await connection.event())["method"] == "notifications/tools/list_changed"


@spec("AUT-1")
async def test_threat_17_a_stream_ends_when_its_token_expires(monkeypatch):
    signed_in = await in_thread(SignedIn)
    almost = timezone.now() + timedelta(seconds=3599.9)
    # Before the stream opens, because it may read the time immediately.
    monkeypatch.setattr(stream_access, "timezone", SimpleNamespace(now=lambda: almost))
    async with connect(
        vault.MOUNTS["lane"], "/mcp", LISTEN, authorization=f"Bearer {signed_in.access}"
    ) as connection:
        assert "acknowledged" in (await connection.event())["method"]
        assert "result" in await connection.event()


@spec("AUT-11")
def test_threat_17_a_permission_that_is_taken_away_hides_its_tool_in_the_next_call():
    signed_in = SignedIn()
    signed_in.user.user_permissions.add(Permission.objects.get(codename="change_user"))
    assert call(signed_in.access, tool="hire", name="Bo").json()["result"]["content"]
    signed_in.user.user_permissions.clear()
    answer = call(signed_in.access, tool="hire", name="Bo")
    refusal = call(signed_in.access, tool="fire", name="Bo").json()["error"]
    assert answer.json()["error"] == refusal | {"message": answer.json()["error"]["message"]}
    assert "WWW-Authenticate" not in answer


@spec("AUT-6")
def test_more_scopes_that_were_asked_for_are_in_the_security_log():
    signed_in = SignedIn()
    assert call(signed_in.access, tool="place", item="tea").status_code == 403
    event = AuthEvent.objects.get(kind="step_up")
    assert (event.user, event.client_id, event.server) == (
        signed_in.user,
        signed_in.app.client_id,
        "orders",
    )
    assert "mcp:write" in event.details["scopes"]
    for _ in range(20):
        call(signed_in.access, tool="place", item="tea")
    assert AuthEvent.objects.filter(kind="step_up").count() == 5


# The owner of the site decides, in another process -----------------------------------------------


def _redeemed(signed_in: SignedIn, code: tuple[str, str]) -> Any:
    return error_of(redeem(signed_in.app, *code))


def _refreshed(signed_in: SignedIn, code: tuple[str, str]) -> Any:
    return error_of(refresh(signed_in.app, signed_in.refresh))


def _authorized(signed_in: SignedIn, code: tuple[str, str]) -> Any:
    browser = Client()
    browser.force_login(signed_in.user)
    return redirect_parameters(ask(browser, signed_in.app, prompt="none"))["error"]


@pytest.mark.usefixtures("unpinned")
@pytest.mark.parametrize(
    "decision", [{"is_enabled": False}, {"groups": ["editors"]}, {"permissions": ["auth.add_user"]}]
)
@pytest.mark.parametrize(
    ("ask_for_a_token", "refusal"),
    [
        (_redeemed, (400, "invalid_grant")),
        (_refreshed, (400, "invalid_grant")),
        (_authorized, "access_denied"),
    ],
)
def test_no_token_is_issued_for_a_server_that_another_process_has_closed(
    ask_for_a_token, refusal, decision
):
    signed_in = SignedIn()
    code = make_code(signed_in.user, signed_in.app)
    decide_of_server_elsewhere("orders", **decision)
    assert ask_for_a_token(signed_in, code) == refusal
