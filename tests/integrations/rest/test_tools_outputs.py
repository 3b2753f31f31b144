"""Schemas of answers: what is true of every row, and no schema where nothing is certain."""

from __future__ import annotations

from datetime import date, time, timedelta
from typing import Any

import jsonschema
import pytest
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.integrations.rest import odd, views
from tests.integrations.rest.conftest import give_address
from tests.sites.shop.models import Product


def schema_of(view: Any) -> Any:
    server = MCPServer("output", permission=AllowAny)
    server.register_api_view(view, name="tool")
    output = server.tools["tool"].output
    return None if output is None else output.json_schema


def changed(view: Any, **members: Any) -> Any:
    return type("Changed", (view,), members)


def fill_a_row() -> None:
    Product.objects.filter(slug="apple").update(
        weight=1.5,
        released=date(2026, 1, 1),
        sold_from=time(8),
        lead_time=timedelta(days=2),
        details={"a": [None]},
        address="::1",
        manual="manuals/x.pdf",
        photo="photos/x.png",
        # A value that is no longer a choice.
        size="q",
        rating=9,
    )


@pytest.mark.parametrize("view", [odd.EverythingView, odd.DeepView, views.ProductListView])
def test_every_row_fits_the_schema(client_of, settings, view):
    give_address(settings, view)
    fill_a_row()
    server = MCPServer("output", permission=AllowAny)
    server.register_api_view(view, name="tool")
    client = client_of("", server)
    (tool,) = client.list_tools()
    assert tool["outputSchema"]
    result = client.call_tool("tool")
    assert not result.is_error, result.text
    jsonschema.validate(result.structured, tool["outputSchema"])


def test_a_list_is_described_with_its_envelope():
    schema = schema_of(views.LedgerView)
    assert schema["properties"]["results"]["items"]["properties"] == {
        "iban": {"type": "string"},
        "owner": {"type": "string"},
    }
    assert {"type": "null"} in schema["properties"]["next"]["anyOf"]


def own_list(self: Any, request: Any) -> Response:
    return Response([])


class Shouting(JSONRenderer):
    """Writes names in its own way."""


class OwnPages(views.LedgerPages):
    def get_paginated_response(self, data: Any) -> Response:
        return Response({"data": data})


class OwnWords(views.LedgerSerializer):
    def to_representation(self, instance: Any) -> Any:
        return str(instance)


@pytest.mark.parametrize(
    "view",
    [
        changed(views.LedgerView, list=own_list),
        changed(views.LedgerView, renderer_classes=[Shouting]),
        changed(views.LedgerView, pagination_class=OwnPages),
        changed(views.LedgerView, serializer_class=OwnWords),
        changed(views.LedgerView, get_serializer_class=lambda self: self.request.serializer),
        changed(views.LedgerView, finalize_response=lambda self, *args, **kwargs: Response([])),
        views.AddView,
    ],
)
def test_nothing_uncertain_has_a_schema(view):
    assert schema_of(view) is None


async def test_an_asynchronous_caller_gets_the_same(client_of):
    result = await client_of().acall_tool("get_add", {"a": 1, "b": 2})
    assert result.structured["sum"] == 3
