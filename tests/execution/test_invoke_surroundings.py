"""The language and time zone of the request apply in the call, and only there."""

from __future__ import annotations

import pytest
from django.test import override_settings
from django.utils import timezone, translation

from mcp_django.test import MCPClient
from tests.kit.servers import call, open_to_all


def surroundings() -> dict[str, str]:
    return {
        "language": translation.get_language(),
        "yes": translation.gettext("Yes"),
        "zone": timezone.get_current_timezone_name(),
    }


async def surroundings_later() -> dict[str, str]:
    return surroundings()


@pytest.mark.parametrize("function", [surroundings, surroundings_later])
def test_language_and_zone_of_the_caller_hold(function):
    with translation.override("de"), timezone.override("Asia/Tokyo"):
        result = call(function)
    assert result.structured == {"language": "de", "yes": "Ja", "zone": "Asia/Tokyo"}


@override_settings(LANGUAGE_CODE="fr", TIME_ZONE="Europe/Paris")
def test_else_those_of_the_site_hold():
    with translation.override(None), timezone.override(None):
        translation.activate("fr")
        assert call(surroundings).structured["yes"] == "Oui"


async def test_what_a_call_activates_does_not_reach_another():
    server = open_to_all()

    @server.tool
    async def switch() -> str:
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        return translation.gettext("Yes")

    server.tool(surroundings_later)
    client = MCPClient(server=server)
    before = surroundings()
    import asyncio

    assert (await asyncio.create_task(client.acall_tool("switch"))).text == "Ja"
    assert (await client.acall_tool("surroundings_later")).structured == before
