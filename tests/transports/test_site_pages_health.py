"""The health check: yes or no, for any caller, on every mount, and only if HEALTH is set."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from channels.routing import URLRouter
from django.db import DatabaseError, connections
from django.test import Client
from django.urls import path, re_path, reverse

from mcp_django import mcp
from mcp_django.auth.authentication import caller_cache
from mcp_django.storage.cache import clear_caches
from mcp_django.transports import site_pages
from mcp_django.transports.consumer import MCPConsumer
from tests.kit.drivers import Answer, message, send
from tests.kit.servers import person, token_for
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import EVERY_MOUNT, in_thread

pytestmark = pytest.mark.django_db(transaction=True)

PLACE = r"^mcp/health/?$"
APPS = {
    **MOUNTS,
    "raw": URLRouter([re_path(PLACE, mcp.asgi)]),
    "consumer": URLRouter([re_path(PLACE, MCPConsumer.as_asgi(server=mcp))]),
}
OK, UNAVAILABLE = b'{"status":"ok"}', b'{"status":"unavailable"}'


@pytest.fixture(autouse=True)
def _nothing_is_known():
    site_pages.health_check.forget()
    yield
    site_pages.health_check.forget()


@pytest.fixture
def _on(settings):
    settings.MCP_DJANGO = {"HEALTH": True}


async def ask(
    mount: str, verb: str = "GET", address: str = "/mcp/health", **headers: Any
) -> Answer:
    """Send a request as a load balancer does: without credentials, body or types."""
    if mount != "wsgi":
        bare = {"content_type": None, "accept": None, "mcp_protocol_version": None, **headers}
        return await send(APPS[mount], address, b"", verb=verb, **bare)
    return await in_thread(_wsgi, verb, address, headers)


def _wsgi(verb: str, address: str, headers: dict[str, str]) -> Answer:
    response: Any = Client().generic(verb, address, headers={"host": "testserver", **headers})
    response_headers = {name.lower(): value for name, value in response.items()}
    return Answer(status=response.status_code, headers=response_headers, body=response.content)


@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_what_is_cached_is_counted_and_not_named(mount, settings):
    settings.MCP_DJANGO = {"HEALTH": True, "CONFIRM_SECONDS": 1}
    clear_caches()
    plaintext = await in_thread(issue)
    called = message("tools/call", {"name": "whoami"})
    bearer = f"Bearer {plaintext}"
    before = caller_cache.counters()
    for _ in range(2):
        answer = await send(mcp.asgi, "/mcp", called, authorization=bearer)
        assert answer.status == 200
    answer = await ask(mount)
    document = json.loads(answer.body)
    assert document["status"] == "ok"
    assert document["callers"] == "cached"
    counters = document["cache"]["callers"]
    assert counters["entries"] == 1
    assert counters["hits"] >= before["hits"] + 1
    assert counters["asked"] == before["asked"] + 1
    # The counters are numbers and nothing else.
    assert set(document) == {"status", "callers", "cache"}
    types = {type(value) for counts in document["cache"].values() for value in counts.values()}
    assert types == {int}


def issue() -> str:
    return token_for(person())[1]


@pytest.mark.parametrize("seconds", [0, None])
async def test_without_a_cache_nothing_is_said_of_it(settings, seconds):
    settings.MCP_DJANGO = {"HEALTH": True, "CONFIRM_SECONDS": seconds}
    assert (await ask("raw")).body == OK


async def test_callers_that_are_looked_up_are_told_of(settings):
    settings.MCP_DJANGO = {"HEALTH": True, "CONFIRM_SECONDS": 1, "AUTH": ["tokens", "session"]}
    assert json.loads((await ask("raw")).body)["callers"] == "looked up"


@pytest.fixture
def queries(monkeypatch):
    """One element for each query of the database."""
    questions: list[str] = []
    ask_database = site_pages.DatabaseProbe.run_query

    def noted(question: site_pages.DatabaseProbe) -> None:
        questions.append("asked")
        ask_database(question)

    monkeypatch.setattr(site_pages.DatabaseProbe, "run_query", noted)
    return questions


def broken(question: site_pages.DatabaseProbe) -> None:
    """Run a probe of a database that is not available."""

    class Away:
        features = connections["default"].features

        def cursor(self) -> Any:
            raise DatabaseError("secret.internal refused the password of 'root'")

        def close(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site_pages, "connections", {"default": Away()})
        ASK(question)


ASK = site_pages.DatabaseProbe.run_query


@pytest.mark.usefixtures("_on")
@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_every_mount_says_that_the_database_answers(mount):
    answer = await ask(mount)
    assert (answer.status, answer.body) == (200, OK)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert "www-authenticate" not in answer.headers


@pytest.mark.usefixtures("_on")
@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_a_database_that_is_away_is_503_without_a_detail(mount, monkeypatch, caplog):
    monkeypatch.setattr(site_pages.DatabaseProbe, "run_query", broken)
    answer = await ask(mount)
    assert (answer.status, answer.body) == (503, UNAVAILABLE)
    assert answer.headers["cache-control"] == "no-store"
    assert "secret" not in caplog.text
    assert "the database does not answer (DatabaseError)" in caplog.text


@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_without_the_setting_there_is_nothing(mount, queries):
    assert (await ask(mount)).status == 404
    assert queries == []


@pytest.mark.usefixtures("_on")
@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_head_answers_without_a_body_and_other_verbs_are_refused(mount):
    head = await ask(mount, "HEAD")
    assert (head.status, head.body) == (200, b"")
    for verb in ("POST", "DELETE", "OPTIONS"):
        refused = await ask(mount, verb)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.usefixtures("_on")
@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_a_foreign_host_is_refused_as_everywhere(mount, queries):
    assert (await ask(mount, host="rebound.example")).status == 400
    assert queries == []


@pytest.mark.usefixtures("_on")
def test_whoever_asks_often_does_not_reach_the_database(client, queries, monkeypatch):
    monkeypatch.setattr(site_pages, "FRESH_SECONDS", 3600)
    assert {client.get("/mcp/health").status_code for _ in range(20)} == {200}
    assert queries == ["asked"]


@pytest.mark.usefixtures("_on")
def test_an_answer_ages(client, queries, monkeypatch):
    monkeypatch.setattr(site_pages, "FRESH_SECONDS", 0)
    client.get("/mcp/health")
    client.get("/mcp/health")
    assert queries == ["asked", "asked"]


@pytest.mark.usefixtures("_on")
def test_a_database_that_hangs_holds_up_one_thread_and_nobody_for_long(client, monkeypatch):
    opened, begun = threading.Event(), []

    def hang(question: site_pages.DatabaseProbe) -> None:
        begun.append(question)
        opened.wait(5)
        ASK(question)

    monkeypatch.setattr(site_pages.DatabaseProbe, "run_query", hang)
    monkeypatch.setattr(site_pages, "QUERY_TIMEOUT_SECONDS", 0.01)
    assert [client.get("/mcp/health").status_code for _ in range(3)] == [503] * 3
    assert len(begun) == 1
    opened.set()
    assert begun[0].answered.wait(5)
    monkeypatch.setattr(site_pages, "QUERY_TIMEOUT_SECONDS", 5)
    assert client.get("/mcp/health").status_code == 200


def nothing(request: Any) -> Any:
    """A page of the site's own."""
    from django.http import HttpResponse

    return HttpResponse("mine")


urlpatterns = [path("", mcp.urls), path("health", nothing)]


def test_an_address_of_the_sites_own_stays_the_sites_own(client, settings):
    settings.ROOT_URLCONF = __name__
    assert client.get("/health").content == b"mine"
    settings.MCP_DJANGO = {"HEALTH": True}
    assert client.get("/health").content == OK


@pytest.mark.usefixtures("_on")
def test_the_address_is_reversed_by_its_name(client):
    assert reverse("mcp_django:health") == "/mcp/health"
    assert client.get(f"{reverse('mcp_django_staff:health')}/").content == OK
