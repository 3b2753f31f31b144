"""Mistakes that would fail in every call are reported at the declaration."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.db.models import QuerySet
from django.test import modify_settings

from mcp_django import MCPServer, mcp
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.models import AccessToken
from mcp_django.test import MCPClient
from tests.kit.servers import open_to_all, person, real_client
from tests.spec import spec


def gives_model() -> Group:
    raise AssertionError


def gives_models() -> list[Group]:
    raise AssertionError


def gives_values() -> QuerySet[Group, dict[str, Any]]:
    """Give the names."""
    return Group.objects.values("name")


@pytest.mark.parametrize("function", [gives_model, gives_models])
def test_a_tool_that_declares_a_model_as_its_result_is_refused(function):
    with pytest.raises(ImproperlyConfigured, match=r"returns the model Group.*\.values\("):
        open_to_all().tool(function)


class Opaque:
    """What JSON cannot represent."""


def gives_opaque() -> Opaque | None:
    raise AssertionError


def gives_opaques() -> list[Opaque]:
    raise AssertionError


@pytest.mark.parametrize("function", [gives_opaque, gives_opaques])
def test_a_tool_that_declares_what_is_no_data_as_its_result_is_refused(function):
    text = rf"^{function.__name__}\(\): The result type .*Opaque.* cannot be written as JSON"
    with pytest.raises(ImproperlyConfigured, match=text):
        open_to_all().tool(function)


@pytest.mark.django_db
def test_a_query_for_values_is_a_result():
    server = open_to_all()
    server.tool(gives_values)
    Group.objects.create(name="crew")
    assert "crew" in MCPClient(server=server).call_tool("gives_values").text


def test_a_bare_ctx_is_refused():
    def tool(ctx) -> str:
        return "x"

    with pytest.raises(ImproperlyConfigured, match="ctx: Context"):
        open_to_all().tool(tool)


def test_a_second_component_of_a_name_says_where_the_first_is():
    def twice() -> str:
        return "x"

    server = open_to_all()
    server.tool(twice)
    with pytest.raises(AlreadyRegistered, match=f"from {__name__}"):
        server.tool(twice)


def test_a_variable_without_parameter_names_the_function():
    def product(number: str) -> str:
        return number

    with pytest.raises(ImproperlyConfigured, match=r"'pk'.*product\(\).*it has number"):
        open_to_all().resource("shop://things/{pk}")(product)


@modify_settings(INSTALLED_APPS={"remove": ["mcp_django"]})
def test_urls_of_an_app_that_is_not_installed_are_refused():
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        _ = MCPServer("homeless").urls


def test_a_missing_table_says_to_migrate(monkeypatch):
    def missing(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("no such table: mcp_django_accesstoken")

    monkeypatch.setattr(AccessToken.objects, "using", missing)
    with pytest.raises(CommandError, match=r"manage\.py migrate"):
        call_command("mcp", "token", "list")


@spec("AUT-11")
@pytest.mark.django_db
def test_the_owner_can_read_why_a_component_is_hidden(caplog):
    caplog.set_level(logging.INFO, logger="mcp_django")
    user = person()
    server = MCPServer("inline", permission=mcp.permission)
    server.tool("guarded", permission="auth.view_group")(gives_values)
    with pytest.raises(Exception, match="No tool named"):
        real_client(server=server, user=user).call_tool("guarded")
    assert f"The tool 'guarded' is hidden from user:{user.pk} by auth.view_group." in caplog.text
