"""What a mount does when something of the site's own gets in the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django import forms
from django.contrib.auth.models import Group

from mcp_django.auth.permissions import BasePermission
from mcp_django.auth.principal import Principal
from mcp_django.protocol.errors import INTERNAL_ERROR
from tests.drivers import message
from tests.spec import spec
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


@spec("ERR-3", "ERR-5", "RPC-10", "VER-21")
@pytest.mark.usefixtures("failing")
async def test_a_bug_in_a_permission_is_an_error_that_tells_nothing(
    mount: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await ask(mount, PATH, message("tools/list", id="a"))
    assert answer.status == 500
    assert answer.json()["id"] == "a"
    assert answer.json()["error"]["code"] == INTERNAL_ERROR
    assert b"secret" not in answer.body
    assert "secret detail" in caplog.text


async def test_only_http_is_served() -> None:
    with pytest.raises(ValueError, match="websocket"):
        await stage.asgi({"type": "websocket"}, None, None)  # type: ignore[arg-type]
