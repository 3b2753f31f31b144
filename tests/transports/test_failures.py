"""What a mount does when something of the site's own gets in the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django import forms
from django.contrib.auth.models import Group

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from tests.drivers import Connection, headers_for, message, send
from tests.spec import spec
from tests.transports.asgi import MOUNTS
from tests.transports.mounts import ask
from tests.transports.stage import stage

PATH = "/stage/mcp"


class GroupForm(forms.Form):
    """A form that looks into the database to hold."""

    group = forms.ModelChoiceField(Group.objects.all(), to_field_name="name")


class HasGroups(BasePermission):
    """A permission that looks into the database."""

    def has_permission(self, principal: Principal) -> bool:
        return Group.objects.exists()


class Fails(BasePermission):
    """A permission with a bug."""

    def has_permission(self, principal: Principal) -> bool:
        raise RuntimeError("secret detail")


async def greet() -> str:
    """Say hello."""
    return "hello"


async def join(form: GroupForm) -> str:
    """Join a group."""
    return f"joined {form.cleaned_data['group'].name}"


@pytest.fixture
def guarded() -> Iterator[None]:
    stage.tool(name="guarded", permission=HasGroups)(greet)
    stage.tool(name="join", form=GroupForm)(join)
    yield
    stage.unregister(greet)
    stage.unregister(join)


@pytest.mark.usefixtures("guarded")
@pytest.mark.django_db(transaction=True)
async def test_permissions_and_forms_may_use_the_database(mount: str) -> None:
    await Group.objects.acreate(name="crew")
    listed = await ask(mount, PATH, message("tools/list"))
    assert "guarded" in [tool["name"] for tool in listed.json()["result"]["tools"]]
    body = message("tools/call", {"name": "join", "arguments": {"group": "crew"}})
    answer = await ask(mount, PATH, body)
    assert answer.json()["result"]["content"][0]["text"] == "joined crew"
    body = message("tools/call", {"name": "guarded", "arguments": {}})
    assert (await ask(mount, PATH, body)).json()["result"]["content"][0]["text"] == "hello"


@pytest.fixture
def failing() -> Iterator[None]:
    stage.tool(name="failing", permission=Fails)(greet)
    yield
    stage.unregister(greet)


@spec("ERR-5")
@pytest.mark.usefixtures("failing")
async def test_a_bug_in_a_permission_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("view", "lane"):
        answer = await send(MOUNTS[name], PATH, message("tools/list"))
        assert answer.status == 500
        assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("name", ["raw", "consumer"])
async def test_a_bug_outside_of_django_is_left_to_the_server(name: str) -> None:
    body = message("tools/list")
    connection = Connection(MOUNTS[name], PATH, _raw(body), headers_for(body), "POST")
    with pytest.raises((RuntimeError, ExceptionGroup), match=r"secret|unhandled"):
        await connection.start()
    assert connection.sent == []


def _raw(body: Any) -> bytes:
    return json.dumps(body).encode()


async def test_only_http_is_served() -> None:
    with pytest.raises(ValueError, match="websocket"):
        await stage.asgi({"type": "websocket"}, None, None)  # type: ignore[arg-type]
