"""Overrides that the admin of one process makes reach every live client of another.

Without a channel layer, a process polls the database; with one, it is notified.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mcp_django.protocol import sse
from tests.kit import databases
from tests.kit.drivers import headers_for, message
from tests.kit.processes import Server, serving
from tests.overrides.live_owner import NAME, PASSWORD
from tests.transports.http_session.client import Client, connections, events, request

PATIENCE = 90
SETTINGS = "tests.overrides.live_settings"
ADMIN = "/admin/mcp_django"
PLACES = [
    pytest.param(("sqlite", False), marks=pytest.mark.outside, id="sqlite-polling"),
    pytest.param(
        ("postgres", True),
        marks=pytest.mark.requires("shared"),
        id="postgres-redis",
    ),
]


@dataclass(frozen=True, slots=True)
class Site:
    """Two processes: clients hold their streams `here`, the admin is used `there`."""

    here: Server
    there: Server

    def any(self) -> Server:
        """Return the server of a client for which any server will do."""
        return self.here

    @contextmanager
    def handing(self, server: Server) -> Iterator[str]:
        """Yield the address of a server, which is there all the time."""
        yield f"{server.url}/mcp"


@pytest.fixture(scope="module", params=PLACES)
def site(request, tmp_path_factory):
    """Yield two processes that share a database, of one kind after the other."""
    kind, has_bell = request.param
    directory: Path = tmp_path_factory.mktemp(kind)
    app = "tests.transports.http_session.asgi:application"
    with databases.shared(kind, directory, redis=has_bell) as environ:
        databases.run({**environ, "DJANGO_SETTINGS_MODULE": SETTINGS}, "tests.overrides.live_owner")
        with (
            serving("uvicorn", app, directory, settings=SETTINGS, **environ) as here,
            serving("uvicorn", app, directory, settings=SETTINGS, **environ) as there,
        ):
            yield Site(here, there)
            for server in (here, there):
                assert "Traceback" not in server.output, server.output


class Owner:
    """A user of the admin."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def sign_in(self) -> None:
        """Sign in."""
        await self.post("/admin/login/", username=NAME, password=PASSWORD, next="/admin/")

    async def post(self, path: str, **data: Any) -> None:
        """Fill in a form and send it."""
        page = await self._http.get(self._url + path)
        (token, *_) = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
        answer = await self._http.post(
            self._url + path, data={"csrfmiddlewaretoken": token, **data}
        )
        assert answer.status_code == 302, answer.text

    async def key_of(self, screen: str, name: str) -> str:
        """Return the key of the row of this name."""
        page = await self._http.get(f"{self._url}{ADMIN}/{screen}/?q={name}")
        keys = re.findall(rf"{ADMIN}/{screen}/(\d+)/change/[^>]*>{name}</a>", page.text)
        return str(keys[0])

    async def act(self, action: str, tool: str) -> None:
        """Run an action on a tool."""
        key = await self.key_of("component", tool)
        await self.post(f"{ADMIN}/component/", action=action, _selected_action=key, index="0")

    async def switch(self, server: str, *, on: bool) -> None:
        """Enable or disable a whole server."""
        key = await self.key_of("server", server)
        await self.post(f"{ADMIN}/server/{key}/change/", **({"is_enabled": "on"} if on else {}))


@asynccontextmanager
async def owner(site: Site) -> AsyncIterator[Owner]:
    """Yield the owner of the site, signed in."""
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
        site_owner = Owner(http, site.there.url)
        await site_owner.sign_in()
        yield site_owner


async def ask(server: Server, method: str, **params: Any) -> httpx.Response:
    """Send a request as a client of 2026-07-28 does, and return the response."""
    body = message(method, params)
    async with connections() as http:
        headers = headers_for(body, host=None)
        return await http.post(f"{server.url}/mcp", json=body, headers=headers)


async def tools(server: Server) -> set[str]:
    """Return the names of the tools in the list of a process."""
    answer = await ask(server, "tools/list")
    return {tool["name"] for tool in answer.json()["result"]["tools"]}


@asynccontextmanager
async def listening(site: Site) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the messages of a `subscriptions/listen` stream that was acknowledged."""
    body = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with connections() as http:
        opening = http.stream(
            "POST", f"{site.here.url}/mcp", json=body, headers=headers_for(body, host=None)
        )
        async with opening as response, aclosing(_messages(response)) as coming:
            assert (await anext(coming))["method"].endswith("/acknowledged")
            yield coming


async def _messages(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    decoder = sse.EventDecoder()
    async for part in response.aiter_raw():
        for event in decoder.feed(part):
            yield json.loads(event.data)


@asynccontextmanager
async def standing(site: Site) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Yield the messages of the GET stream of a session of 2025-11-25."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(connections())
        client = Client(http, site)
        await client.initialize()
        response = await stack.enter_async_context(client.get(at=site.here))
        coming = await stack.enter_async_context(aclosing(events(response)))
        # The event that opens the stream.
        await anext(coming)
        yield (notification async for _, notification in coming if notification is not None)


async def test_a_tool_that_is_switched_off_leaves_every_list_and_every_client_hears_of_it(site):
    async with (
        asyncio.timeout(PATIENCE),
        owner(site) as admin,
        listening(site) as first,
        standing(site) as second,
    ):
        for server in (site.here, site.there):
            assert "who" in await tools(server)
        await admin.act("disable", "who")
        for coming in (first, second):
            await until_told(site, coming, is_there=False)
        for server in (site.here, site.there):
            errors = [
                (await ask(server, "tools/call", name=name, arguments={})).json()["error"]
                for name in ("who", "why")
            ]
            assert errors[0]["code"] == errors[1]["code"] == -32602
            assert errors[0]["message"] == errors[1]["message"].replace("why", "who")
        await admin.act("enable", "who")
        for coming in (first, second):
            await until_told(site, coming, is_there=True)


async def until_told(site: Site, coming: AsyncIterator[dict[str, Any]], *, is_there: bool) -> None:
    """Wait for the notification after which every process has the tool `who`, or none has it.

    The client may also be notified of a change that was made right before it connected.
    """
    while True:
        method = (await anext(coming))["method"]
        assert method.endswith("/list_changed")
        if method == "notifications/tools/list_changed":
            tool_lists = [await tools(server) for server in (site.here, site.there)]
            if all(("who" in names) == is_there for names in tool_lists):
                return


async def test_a_server_that_is_switched_off_refuses_in_every_process(site):
    async with asyncio.timeout(PATIENCE), owner(site) as admin, connections() as http:
        client = Client(http, site)
        await client.initialize()
        async with listening(site) as coming:
            await admin.switch("sessions", on=False)
            # Notified that the list has changed, a client requests it and is refused.
            is_off = False
            while not is_off:
                assert (await anext(coming))["method"] == "notifications/tools/list_changed"
                answers = [await ask(server, "tools/list") for server in (site.here, site.there)]
                is_off = all(answer.status_code == 403 for answer in answers)
            try:
                for server in (site.here, site.there):
                    assert (await ask(server, "tools/list")).status_code == 403
                    answer = await client.post(request("tools/list"), at=server)
                    assert answer.status_code == 403
            finally:
                await admin.switch("sessions", on=True)
        # A process takes up to a second to notice that the server is enabled.
        while (await ask(site.here, "tools/list")).status_code != 200:  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.1)
