"""Sessions and the locks of rows: `test_other_databases.py` runs this file on PostgreSQL."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from mcp_django.models import Session
from tests.drivers import PATIENCE
from tests.sessions.test_opening import SessionGate, _serving, gate, issue  # noqa: F401 - fixtures
from tests.transports.mounts import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_serving")]


@pytest.mark.parametrize("mount", ["raw", "lane"])
async def test_who_locks_the_row_of_a_user_delays_sessions_of_others_for_a_moment(
    mount: str,
    gate: SessionGate,  # noqa: F811
) -> None:
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
