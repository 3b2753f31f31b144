"""Sessions and row locks: `test_other_databases.py` runs this file on PostgreSQL."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from mcp_django.models import AccessToken, Session
from mcp_django.storage.writer import row_writer
from tests.kit.drivers import PATIENCE
from tests.storage.test_sessions_opening import _serving, gate, issue  # noqa: F401 - fixtures
from tests.transports.http_session.handshakes import D, Peer, initialize
from tests.transports.mounts import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_serving")]


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_who_locks_the_row_of_a_user_delays_sessions_of_others_for_a_moment(mount, gate):  # noqa: F811
    user, token = await in_thread(issue)
    opening = await gate.open(mount, 9, token)
    is_held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            User.objects.select_for_update().get(pk=user.pk)
            is_held.set()
            assert go.wait(PATIENCE)

    holding = asyncio.create_task(in_thread(hold))
    assert await asyncio.to_thread(is_held.wait, PATIENCE)
    gate.may_write.set()
    *others, mine = await asyncio.gather(*opening)
    go.set()
    await holding
    assert [answer.status for answer in others] == [200] * 9
    assert mine.status == 503
    assert await Session.objects.acount() == 9


async def test_a_locked_token_delays_the_last_uses_of_no_other():
    tokens = [(await in_thread(issue, name))[1] for name in ("ada", "grace")]
    is_held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            AccessToken.objects.select_for_update(of=("self",)).get(user__username="ada")
            is_held.set()
            assert go.wait(PATIENCE)

    async def use() -> set[str]:
        for token in tokens:
            assert (await Peer("raw", token=token).send(initialize(D))).status == 200
        assert await asyncio.to_thread(row_writer.flush)
        used = AccessToken.objects.exclude(last_used_at=None)
        return {name async for name in used.values_list("user__username", flat=True)}

    holding = asyncio.create_task(in_thread(hold))
    assert await asyncio.to_thread(is_held.wait, PATIENCE)
    assert await use() == {"grace"}
    go.set()
    await holding
    assert await use() == {"ada", "grace"}
