"""What a registration refuses, with which message, and what unregistering removes."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from rest_framework.decorators import action
from rest_framework.generics import ListAPIView
from rest_framework.parsers import FileUploadParser
from rest_framework.response import Response
from rest_framework.serializers import CharField, IntegerField, JSONField, Serializer
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet, ViewSet

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny, IsStaff
from mcp_django.checks import components
from mcp_django.exceptions import AlreadyRegistered, NotRegistered
from tests.integrations.rest import odd, views, viewsets
from tests.integrations.rest.conftest import give_address
from tests.integrations.rest.serializers import FeedbackSerializer, LedgerSerializer
from tests.sites.shop.models import Ledger


@pytest.fixture
def server():
    return MCPServer("declared", permission=AllowAny)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"actions": ["lst"]}, "OrderViewSet has no action 'lst'; did you mean 'list'?"),
        ({"actions": ["delete"]}, "did you mean 'destroy'?"),
        ({"actions": ["approve"]}, "it has list, create, retrieve"),
        ({"actions": "list"}, "write actions=['list']"),
        ({"names": {"lst": "x"}}, "names contains 'lst', which is not registered; did you mean"),
        ({"serializers": {"pay": 1}}, "serializers contains 'pay', which is not registered"),
        ({"scopes": "read"}, "write scopes=['read']"),
        ({"url_kwargs": {"x": list}}, "url_kwargs['x'] is <class 'list'>; write int, str, UUID"),
        ({"url_kwargs": {"x": int}, "fixed": {"x": 1}}, "'x' is in fixed and in url_kwargs"),
        ({"fixed": ["x"]}, "fixed must be a dictionary"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(server, options, text):
    with pytest.raises(ImproperlyConfigured) as caught:
        server.register_viewset(viewsets.OrderViewSet, basename="order", **options)
    assert text in str(caught.value)
    assert not server.tools


def test_an_option_that_is_none_is_left_out(server):
    left_out = dict.fromkeys(["name", "url_kwargs", "fixed", "scopes", "version", "names"])
    server.register_viewset(viewsets.OrderViewSet, basename="order", actions=["list"], **left_out)
    (tool,) = server.tools.values()
    assert tool.scopes == ()


def test_a_schema_that_a_serializer_checks_needs_no_library(server, monkeypatch):
    monkeypatch.setattr(components, "validation_engine", lambda: None)
    server.register_viewset(viewsets.OrderViewSet, basename="order", actions=["retrieve", "create"])
    assert any(tool.output is not None for tool in server.tools.values())
    assert not [message for message in components.check_validation(None) if "order" in message.msg]


@pytest.mark.parametrize(
    ("view", "options", "text"),
    [
        (views.AddView, {"methods": ["put"]}, "AddView has no method 'put'; it has get, post."),
        (views.AddView, {"methods": "get"}, "write methods=['get']"),
        (viewsets.MoodViewSet, {}, "MoodViewSet is a viewset; write register_viewset(MoodViewSet"),
        (print, {}, "register_view takes the URL name of any other"),
        (odd.UploadOnly, {"methods": ["post"]}, "file is a file, which arguments cannot contain"),
        (odd.BulkView, {"methods": ["post"]}, "takes a ListSerializer, which has no named fields"),
        (views.AddView, {"input_schema": {"type": "array"}}, '"type": "object" at its root'),
    ],
)
def test_a_view_that_cannot_be_called_is_refused(server, view, options, text):
    with pytest.raises(ImproperlyConfigured) as caught:
        server.register_api_view(view, **options)
    assert text in str(caught.value)


def test_no_viewset_is_no_viewset(server):
    with pytest.raises(ImproperlyConfigured, match="register_api_view takes other views"):
        server.register_viewset(views.AddView, basename="x")
    with pytest.raises(ImproperlyConfigured, match="pass basename='…', as for the router"):
        server.register_viewset(viewsets.MoodViewSet)


def test_a_method_that_the_viewset_closes_is_closed(server):
    closed: Any = type("Closed", (viewsets.OrderViewSet,), {"http_method_names": ["get"]})
    with pytest.raises(ImproperlyConfigured, match="Closed has no action 'create'"):
        server.register_viewset(closed, basename="order", actions=["create"])


def test_a_viewset_that_neither_lists_nor_retrieves_says_what_it_has(server):
    class Doing(ViewSet):
        def create(self, request: Any) -> Response:
            return Response()

    with pytest.raises(ImproperlyConfigured, match=r"with some of its actions: create"):
        server.register_viewset(Doing, basename="doing")


def test_a_view_that_takes_raw_files_is_refused(server):
    class Raw(APIView):
        parser_classes = [FileUploadParser]

        def put(self, request: Any) -> Response:
            return Response()

    with pytest.raises(ImproperlyConfigured, match=r"accepts \*/\*"):
        server.register_api_view(Raw, methods=["put"], serializer=FeedbackSerializer)


def test_a_serializer_that_depends_on_the_request_is_that_of_a_superuser_or_named(
    server, client_of
):
    server.register_api_view(odd.RequestDependent, methods=["post"], name="bare")
    assert "word" in server.tools["bare"].arguments.json_schema["properties"]
    server.register_api_view(
        odd.RequestDependent, methods=["post"], name="told", serializer=FeedbackSerializer
    )
    assert "stars" in server.tools["told"].arguments.json_schema["properties"]
    assert server.tools["told"].output is None


def test_a_schema_written_by_hand_is_checked(server, client_of):
    schema = {
        "type": "object",
        "properties": {"stars": {"type": "integer", "maximum": 5}},
        "required": ["stars"],
    }
    server.register_api_view(views.AddView, methods=["post"], name="add", input_schema=schema)
    client = client_of("", server)
    assert client.call_tool("add", {"a": 1, "b": 2, "stars": 4}).structured["plus"] == {"stars": 4}
    assert "stars: " in client.call_tool("add", {"a": 1, "b": 2, "stars": 6}, check=False).text
    assert client.call_tool("add", {"a": 1, "b": 2}, check=False).text == "stars: is required"


def test_what_a_get_reads_of_its_query_can_be_said(server, client_of):
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    server.register_api_view(views.SurroundingsView, input_schema=schema)
    client = client_of("", server)
    assert client.call_tool("surroundings", {"x": 3}).structured["query"] == {"x": "3"}
    assert client.call_tool("surroundings", check=False).text == "x: is required"


def test_names_can_be_chosen(server):
    server.register_viewset(
        viewsets.OrderViewSet,
        basename="order",
        name="purchase",
        plural="all purchases",
        actions=["list", "retrieve", "pay"],
        names={"pay": "settle"},
        descriptions={"pay": "Settle a bill."},
    )
    assert list(server.tools) == ["list_all_purchases", "get_purchase", "settle"]
    assert server.tools["settle"].description == "Settle a bill."
    assert server.tools["list_all_purchases"].description == "List orders.\n\nOrders of the shop."


@pytest.mark.parametrize("key", ["update", "partial_update"])
@pytest.mark.parametrize("action", ["update", "partial_update"])
def test_both_updates_name_one_tool(server, key, action):
    server.register_viewset(
        viewsets.OrderViewSet,
        basename="order",
        actions=[action],
        names={key: "amend_order"},
        descriptions={key: "Amend an order."},
    )
    assert server.tools["amend_order"].description == "Amend an order."
    assert list(server.tools) == ["amend_order"]


def test_one_tool_has_one_name(server):
    names = {"update": "replace_order", "partial_update": "amend_order"}
    with pytest.raises(ImproperlyConfigured, match="are one tool; keep one"):
        server.register_viewset(
            viewsets.OrderViewSet, basename="order", actions=["update"], names=names
        )


def test_an_action_that_is_not_registered_has_no_name(server):
    with pytest.raises(ImproperlyConfigured, match="names contains 'update', which is not regist"):
        server.register_viewset(
            viewsets.OrderViewSet, basename="order", actions=["list"], names={"update": "x"}
        )


def test_hints_follow_the_verb_and_nothing_is_governed(server):
    server.register_viewset(
        viewsets.OrderViewSet,
        basename="order",
        actions=["list", "create", "update", "destroy", "ship"],
    )
    hints = {name: tool.hints for name, tool in server.tools.items()}
    changing = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True}
    assert hints == {
        "list_orders": {"readOnlyHint": True},
        "create_order": {"readOnlyHint": False, "destructiveHint": False},
        "update_order": changing,
        "delete_order": changing,
        "ship_order": {"readOnlyHint": False},
    }
    assert not any(tool.has_read_only_limits or tool.atomic for tool in server.tools.values())


def test_permission_and_scopes_narrow_the_server(server, client_of):
    server.register_viewset(
        viewsets.MoodViewSet, basename="mood", permission=IsStaff, scopes=["moods"]
    )
    assert client_of("ada", server).list_tools() == []
    assert {tool.scopes for tool in server.tools.values()} == {("moods",)}


def test_all_or_nothing_is_registered(server):
    server.register_api_view(views.FriendView, name="get_mood")
    with pytest.raises(AlreadyRegistered):
        server.register_viewset(viewsets.MoodViewSet, basename="mood")
    assert list(server.tools) == ["get_mood"]


def test_what_as_view_was_given_holds(server, client_of, settings):
    made = ListAPIView.as_view(
        queryset=Ledger.objects.filter(iban="DE3"), serializer_class=LedgerSerializer
    )
    give_address(settings, made)
    server.register_api_view(made, name="one_ledger")
    assert server.tools["one_ledger"].description == "List ledgers."
    answer = client_of("", server).call_tool("one_ledger").structured
    assert answer == [{"iban": "DE3", "owner": "Owner 3"}]


def test_a_serializer_that_only_writes_the_answer_is_no_argument(server):
    class Copying(GenericViewSet):
        queryset = Ledger.objects.all()
        serializer_class = LedgerSerializer

        @action(detail=True, methods=["post"])
        def copy(self, request: Any, pk: str) -> Response:
            return Response(self.get_serializer(self.get_object()).data)

    server.register_viewset(Copying, basename="ledger", actions=["copy"])
    schema = server.tools["copy_ledger"].arguments.json_schema
    assert schema["properties"] == {"pk": {"type": "string"}}


@pytest.mark.parametrize("view", [views.greet, views.AddView])
def test_a_view_is_taken_away_with_its_tools(server, view):
    server.register_api_view(view)
    server.register_viewset(viewsets.MoodViewSet, basename="mood")
    server.unregister(view)
    assert list(server.tools) == ["list_moods", "get_mood"]
    server.unregister(viewsets.MoodViewSet)
    assert not server.tools
    with pytest.raises(NotRegistered):
        server.unregister(viewsets.MoodViewSet)


def test_registering_asks_the_database_nothing(server, django_assert_num_queries):
    with django_assert_num_queries(0):
        server.register_api_view(views.ProductListView, methods=["get", "post"])
        server.register_viewset(viewsets.ProductViewSet, basename="ware", actions=["create"])


class Settled(Serializer):
    """Has every way to be nothing."""

    must = CharField(allow_null=True)
    may = CharField(allow_null=True, required=False)
    blank = CharField(allow_blank=True, required=False)
    any = JSONField(allow_null=True, required=False)
    clear = IntegerField(allow_null=True, required=False)
    five = IntegerField(allow_null=True, default=5)


class SettledView(APIView):
    def post(self, request: Any) -> Response:
        return Response(request.data)

    put = patch = post


@pytest.fixture
def settled(server, client_of, settings):
    give_address(settings, SettledView)
    methods = ["post", "put", "patch"]
    server.register_api_view(SettledView, methods=methods, serializer=Settled, name="it")
    return client_of("", server)


NOTHING = dict.fromkeys(["must", "may", "blank", "any", "clear", "new_clear", "five"])


def test_null_is_what_the_schema_says(settled):
    schemas = {tool["name"]: tool["inputSchema"] for tool in settled.list_tools()}
    assert "clear" not in schemas["post_it"]["properties"].get("clear", {}).get("items", {})
    for verb, emptied in (
        ("put", ["may", "blank", "any", "new_clear", "five"]),
        ("patch", ["must", "may", "blank", "any", "new_clear", "five"]),
    ):
        properties = schemas[f"{verb}_it"]["properties"]
        assert properties["clear"]["items"]["enum"] == emptied
    assert {"type": "null"} in schemas["put_it"]["properties"]["must"]["anyOf"]
    sent = {name: None for name in NOTHING if name != "new_clear"}
    # For fields with a default and for JSON fields, null differs from leaving the argument out.
    assert settled.call_tool("post_it", sent).structured == {
        "must": None,
        "any": None,
        "five": None,
    }
    assert settled.call_tool("put_it", NOTHING).structured["must"] is None
    assert settled.call_tool("patch_it", NOTHING).structured == {}


def test_clear_says_what_null_cannot(settled):
    cleared = settled.call_tool("patch_it", {"clear": ["must", "blank", "new_clear", "any"]})
    assert cleared.structured == {"must": None, "blank": "", "clear": None, "any": None}
    whole = settled.call_tool("put_it", {"must": "x", "clear": ["may"], "new_clear": 2})
    assert whole.structured == {"must": "x", "may": None, "clear": 2}
    assert "must: is required" not in whole.text
