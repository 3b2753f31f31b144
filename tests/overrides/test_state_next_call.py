"""Overrides that the admin makes are in force in the next call of this process, without any wait.

They are made in the pages of the admin, after a first call that filled all caches. The process
never polls, so that it is the change itself that reaches the call. Clients of all mounts and
revisions call after each change, a different one first each time.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.test import Client
from django.urls import path

from mcp_django import MCPServer, server as servers
from mcp_django.auth.permissions import AllowAny
from mcp_django.models import Component, Server
from mcp_django.overrides.sync import sync_rows
from tests.admin.staff import superuser
from tests.kit.servers import person, token_for
from tests.transports.asgi import application, plain
from tests.transports.caller import REVISIONS, WSGI, Caller
from tests.transports.conftest import close_asgiref_connections
from tests.transports.mounts import in_thread

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("unpinned", "few_servers"),
]
ADMIN = "/admin/mcp_django/"
LIMITED, UNKNOWN = "-31429", "-32602"

cellar = MCPServer("cellar", permission=AllowAny, auth=["tokens"])
urlpatterns = [path("admin/", admin.site.urls), path("cellar/mcp", cellar.urls)]
MOUNTS = {"raw": cellar.asgi, "lane": application, "view": plain, "wsgi": WSGI}
# One for each way in which a call runs.
TOOLS = ("later", "now", "change_later", "change_now")


async def later() -> str:
    """Look on the event loop."""
    return "done"


def now() -> str:
    """Look in a thread."""
    return "done"


for name, function in zip(TOOLS, 2 * (later, now), strict=True):
    cellar.tool(name, read_only=not name.startswith("change"))(function)
# Without any tool, the server would not have the method.
cellar.tool("left_alone")(now)


class Owner:
    """A user of the admin, which runs in a thread."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def act(self, action: str) -> None:
        """Run an action of the list on all tools."""
        await in_thread(self._act, action)

    async def save_tools(self, **changes: Any) -> None:
        """Change every tool on its own page."""
        await in_thread(self._save, "component", _rows(), changes)

    async def save_server(self, **changes: Any) -> None:
        """Change the server on its page."""
        await in_thread(self._save, "server", Server.objects.filter(name="cellar"), changes)

    def _act(self, action: str) -> None:
        data = {"action": action, "_selected_action": [row.pk for row in _rows()], "index": 0}
        self._post(f"{ADMIN}component/", data)

    def _save(self, model: str, rows: Any, changes: dict[str, Any]) -> None:
        # The data of an unchanged form, except for empty choices.
        data = {name: value for name, value in {"is_enabled": "on", **changes}.items() if value}
        for row in rows:
            self._post(f"{ADMIN}{model}/{row.pk}/change/", data)

    def _post(self, page: str, data: dict[str, Any]) -> None:
        answer: Any = self._client.post(page, data)
        assert answer.status_code == 302, answer.context["adminform"].errors


def _rows() -> Any:
    return Component.objects.filter(server="cellar", key__in=TOOLS)


@pytest.fixture
def owner(settings):
    """Yield the owner of the site, signed in."""
    settings.ROOT_URLCONF = __name__
    servers._servers.add(cellar)
    close_asgiref_connections()
    Group.objects.create(name="clerks")
    sync_rows([cellar])
    yield Owner(superuser())
    close_asgiref_connections()
    cellar.overrides.reset()


class Clients:
    """The clients by name, each of which is the first to call after some of the decisions."""

    def __init__(self, callers: dict[str, Caller]) -> None:
        self.callers = deque(callers.items())

    async def open(self, **headers: str) -> None:
        """Let all clients fill their caches, with these headers."""
        for name, caller in self.callers:
            caller.headers |= headers
            await caller.open()
            for _ in range(2):
                assert await caller.texts(*TOOLS) == ["done"] * 4, name
                await caller.titles()

    async def texts_are(self, text: str) -> None:
        """Assert the text of a call of each tool."""
        for name, caller in self.callers:
            assert await caller.texts(*TOOLS) == [text] * 4, name

    async def statuses_are(self, status: int) -> None:
        """Assert the status of the answer to a call of each tool."""
        for name, caller in self.callers:
            for tool in TOOLS:
                answer = await caller.ask("tools/call", name=tool, arguments={})
                assert answer.status == status, f"{name}, {tool}"

    async def may_call_again(self) -> None:
        """Assert that each tool works again; the next change reaches another client first."""
        await self.texts_are("done")
        self.callers.rotate(-1)


@pytest.fixture
async def clients(owner):
    """Return clients at the mounts that serve a call in different ways, with filled caches."""
    clients = Clients(
        {
            f"{mount}, {revision}": Caller(app, "/cellar/mcp", revision)
            for mount, app in MOUNTS.items()
            for revision in REVISIONS
        }
    )
    await clients.open()
    return clients


def forget_calls() -> None:
    """Let the next client call as often as if it had another address."""
    cache.clear()


async def test_tools_and_the_server_are_switched_off_and_on(owner, clients):
    # As often as there are clients, so that each is the first after a switch off and on.
    for _ in range(3):
        await owner.act("disable")
        await clients.texts_are(UNKNOWN)
        await owner.act("enable")
        await clients.may_call_again()
    for _ in range(2):
        await owner.save_tools(is_enabled="")
        await clients.texts_are(UNKNOWN)
        await owner.save_tools()
        await clients.may_call_again()
    for _ in range(3):
        await owner.save_server(is_enabled="")
        await clients.statuses_are(403)
        await owner.save_server()
        await clients.may_call_again()


async def test_tools_get_a_rate(owner, clients):
    for name, caller in clients.callers:
        await owner.save_tools(rate="1/h")
        assert await caller.texts(*TOOLS) == ["done"] * 4, name
        assert await caller.texts(*TOOLS) == [LIMITED] * 4, name
        await owner.act("clear_overrides")
        assert await caller.texts(*TOOLS) == ["done"] * 4, name
        forget_calls()


async def test_the_server_gets_a_rate(owner, clients):
    for name, caller in clients.callers:
        await owner.save_server(rate="1/h")
        assert await caller.texts("later", *TOOLS) == ["done", *[LIMITED] * 4], name
        await owner.save_server()
        assert await caller.texts(*TOOLS) == ["done"] * 4, name
        forget_calls()


async def test_tools_and_the_server_require_something(owner, clients):
    for needed in ({"groups": "clerks"}, {"permissions": "auth.view_group"}):
        for save in (owner.save_tools, owner.save_server):
            await save(**needed)
            await clients.statuses_are(401)
            await save()
            await clients.may_call_again()
    await owner.save_tools(approval="staff")
    await clients.statuses_are(401)
    await owner.save_tools()
    await clients.may_call_again()


async def test_a_user_needs_a_group(owner, clients):
    def authorization() -> str:
        return f"Bearer {token_for(person())[1]}"

    await clients.open(authorization=await in_thread(authorization))
    await owner.save_tools(groups="clerks")
    await clients.texts_are(UNKNOWN)
    await owner.save_tools()
    await owner.save_server(groups="clerks")
    await clients.statuses_are(403)
    await owner.save_server()
    await clients.may_call_again()


async def test_tools_and_the_server_get_other_titles(owner, clients):
    for title in ("First", "Second"):
        await owner.save_tools(title=title)
        for name, caller in clients.callers:
            titles = await caller.titles()
            assert titles == {**dict.fromkeys(TOOLS, title), "left_alone": ""}, name
        await owner.save_server(title=title)
        for name, caller in clients.callers:
            assert (await caller.open())["title"] == title, name
        clients.callers.rotate(-1)
    await owner.act("clear_overrides")
    for name, caller in clients.callers:
        assert set((await caller.titles()).values()) == {""}, name
