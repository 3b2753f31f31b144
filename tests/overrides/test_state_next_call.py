"""What is decided in the admin is in force in the next call of this process, without any wait.

The decision is made in the pages of the admin, after a first call that left everything warm; the
process never looks by itself, so that it is the decision that reaches the call.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
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
    pytest.mark.every_mount,
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
    """Somebody who uses the admin, in a thread as the admin does."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def act(self, action: str) -> None:
        """Do an action of the list with all tools."""
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
        # What a form sends that is left alone, but for an empty choice.
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
    """The owner of the site, signed in."""
    settings.ROOT_URLCONF = __name__
    servers._servers.add(cellar)
    close_asgiref_connections()
    Group.objects.create(name="clerks")
    sync_rows([cellar])
    yield Owner(superuser())
    close_asgiref_connections()
    cellar.overrides.reset()


@pytest.fixture(params=MOUNTS)
def app(request):
    """The mounts that serve a call in different ways."""
    return MOUNTS[request.param]


@pytest.fixture(params=REVISIONS)
async def caller(request, owner, app):
    """A client that has used everything before."""
    found = Caller(app, "/cellar/mcp", request.param)
    await found.open()
    for _ in range(2):
        assert await found.texts(*TOOLS) == ["done"] * 4
        await found.titles()
    return found


async def statuses(caller: Caller) -> set[int]:
    """The statuses of the answers to calls."""
    return {(await caller.ask("tools/call", name=tool, arguments={})).status for tool in TOOLS}


async def test_tools_are_switched_off_and_on_in_the_list(owner, caller):
    for _ in range(2):
        await owner.act("disable")
        assert await caller.texts(*TOOLS) == [UNKNOWN] * 4
        await owner.act("enable")
        assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_tools_are_switched_off_and_on_on_their_pages(owner, caller):
    for _ in range(2):
        await owner.save_tools(is_enabled="")
        assert await caller.texts(*TOOLS) == [UNKNOWN] * 4
        await owner.save_tools()
        assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_the_server_is_switched_off_and_on(owner, caller):
    for _ in range(2):
        await owner.save_server(is_enabled="")
        assert await statuses(caller) == {403}
        await owner.save_server()
        assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_tools_get_a_rate(owner, caller):
    await owner.save_tools(rate="1/h")
    assert await caller.texts(*TOOLS) == ["done"] * 4
    assert await caller.texts(*TOOLS) == [LIMITED] * 4
    await owner.act("clear_overrides")
    assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_the_server_gets_a_rate(owner, caller):
    await owner.save_server(rate="1/h")
    assert await caller.texts("later", *TOOLS) == ["done", *[LIMITED] * 4]
    await owner.save_server()
    assert await caller.texts(*TOOLS) == ["done"] * 4


@pytest.mark.parametrize("needed", [{"groups": "clerks"}, {"permissions": "auth.view_group"}])
async def test_tools_and_the_server_require_something(owner, caller, needed):
    for save in (owner.save_tools, owner.save_server):
        await save(**needed)
        assert await statuses(caller) == {401}
        await save()
        assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_a_user_needs_a_group(owner, caller):
    def authorization() -> str:
        return f"Bearer {token_for(person())[1]}"

    caller.headers["authorization"] = await in_thread(authorization)
    await caller.open()
    assert await caller.texts(*TOOLS) == ["done"] * 4
    await owner.save_tools(groups="clerks")
    assert await caller.texts(*TOOLS) == [UNKNOWN] * 4
    await owner.save_tools()
    await owner.save_server(groups="clerks")
    assert await statuses(caller) == {403}
    await owner.save_server()
    assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_tools_need_an_approval(owner, caller):
    await owner.save_tools(approval="staff")
    assert await statuses(caller) == {401}
    await owner.save_tools()
    assert await caller.texts(*TOOLS) == ["done"] * 4


async def test_tools_and_the_server_get_other_titles(owner, caller):
    for title in ("First", "Second"):
        await owner.save_tools(title=title)
        assert await caller.titles() == {**dict.fromkeys(TOOLS, title), "left_alone": ""}
        await owner.save_server(title=title)
        assert (await caller.open())["title"] == title
    await owner.act("clear_overrides")
    assert set((await caller.titles()).values()) == {""}
