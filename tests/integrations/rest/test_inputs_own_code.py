"""Serializers that run code of the site when they are created: rows, the request, the caller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from rest_framework import generics, serializers, viewsets

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.checks import components as checks
from mcp_django.schema import deferred
from tests.integrations.rest.conftest import give_address
from tests.kit.servers import person
from tests.sites.shop.models import Tag


class FieldsOfRows(serializers.Serializer[Any]):
    """Has a field for each row, as sites with custom fields have."""

    name = serializers.CharField()
    is_migrated = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_migrated:
            raise OperationalError("no such table: shop_tag")
        for tag in Tag.objects.order_by("pk"):
            self.fields[f"tag_{tag.word}"] = serializers.IntegerField(required=False)

    def create(self, validated_data: Any) -> Any:
        """Keep nothing."""
        return validated_data


class RowsView(generics.CreateAPIView[Any]):
    """Takes these fields."""

    serializer_class = FieldsOfRows


class OfCaller(serializers.Serializer[Any]):
    """Reads its request, as serializers of sites do."""

    name = serializers.CharField()
    cost = serializers.IntegerField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.context["request"].user.is_staff:
            self.fields.pop("cost")

    def create(self, validated_data: Any) -> Any:
        """Keep nothing."""
        return validated_data


class CallerView(generics.CreateAPIView[Any]):
    """Takes what its caller may set."""

    serializer_class = OfCaller
    queryset = Tag.objects.all()


class ByQuery(serializers.ModelSerializer[Tag]):
    """Chooses its fields by the query string."""

    class Meta:
        """Its model."""

        model = Tag
        fields = ("word", "secret")

    def get_fields(self) -> Any:
        """Return some of them."""
        fields = super().get_fields()
        if "short" in self.context["request"].query_params:
            fields.pop("secret")
        return fields


class ByQueryViewSet(viewsets.ModelViewSet[Tag]):
    """With these."""

    serializer_class = ByQuery
    queryset = Tag.objects.all()


class Impossible(serializers.Serializer[Any]):
    """Needs what no request has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shop = self.context["request"].current_shop


class ImpossibleView(generics.CreateAPIView[Any]):
    """Takes it."""

    serializer_class = Impossible


@pytest.fixture
def server():
    """Return a server for everybody."""
    return MCPServer("code", permission=AllowAny)


def names(client: Any) -> list[str]:
    return [tool["name"] for tool in client.list_tools()]


def test_fields_of_rows_are_not_read_when_the_tool_is_declared(server, client_of, monkeypatch):
    monkeypatch.setattr(FieldsOfRows, "is_migrated", False)
    server.register_api_view(RowsView, methods=["post"], name="rows")
    server.tool("other")(lambda: "here")
    client = client_of("", server)
    assert names(client) == ["other"]
    refused = client.call_tool("rows", {"name": "a"}, check=False)
    assert refused.is_error
    assert "not available" in refused.text
    assert "shop_tag" not in refused.text
    assert not [message for message in checks.check_left_out(None) if message.obj is server]
    messages = checks.check_left_out(None, databases=["default"])
    (warning,) = [message for message in messages if message.obj is server]
    assert warning.id == "mcp_django.W026"
    assert "no such table: shop_tag" in warning.msg


def test_fields_of_rows_are_those_of_now(server, client_of, monkeypatch, settings):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(deferred, "time", SimpleNamespace(monotonic=lambda: clock.now))
    give_address(settings, RowsView)
    Tag.objects.all().delete()
    server.register_api_view(RowsView, methods=["post"], name="rows", url_name="own")
    client = client_of("", server)

    def known() -> list[str]:
        (tool,) = client.list_tools()
        return list(tool["inputSchema"]["properties"])

    assert known() == ["name"]
    Tag.objects.create(word="weight")
    clock.now += deferred.MAX_AGE + 1
    assert known() == ["name", "tag_weight"]
    done = client.call_tool("rows", {"name": "a", "tag_weight": 3})
    assert done.structured == {"name": "a", "tag_weight": 3}
    wrong = client.call_tool("rows", {"name": "a", "tag_weight": "heavy"}, check=False)
    assert "tag_weight" in wrong.text


@pytest.mark.parametrize("declared", [None, OfCaller])
def test_a_serializer_that_reads_its_caller_has_the_fields_of_the_caller(
    server, client_of, settings, declared
):
    give_address(settings, CallerView)
    server.register_api_view(
        CallerView, methods=["post"], name="take", url_name="own", serializer=declared
    )
    person("manager", is_staff=True)
    for username, fields in (("", ["name"]), ("manager", ["name", "cost"])):
        client = client_of(username, server)
        (tool,) = client.list_tools()
        assert list(tool["inputSchema"]["properties"]) == fields
        sent = dict.fromkeys(fields, 3)
        assert client.call_tool("take", {**sent, "name": "a"}).structured == {**sent, "name": "a"}
    refused = client_of("", server).call_tool("take", {"name": "a", "cost": 3}, check=False)
    assert 'unknown argument "cost"' in refused.text
    # The owner of the site sees what a superuser may set.
    assert list(server.tools["take"].arguments.json_schema["properties"]) == ["name", "cost"]


class OwnTags(serializers.Serializer[Any]):
    """Lets its caller choose among rows of their own."""

    tag = serializers.ChoiceField(choices=[])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name = self.context["request"].user.get_username()
        rows = Tag.objects.filter(secret=name)
        self.fields["tag"].choices = [(tag.word, tag.word) for tag in rows]

    def create(self, validated_data: Any) -> Any:
        """Keep nothing."""
        return validated_data


def test_no_rows_of_others_are_published(server, client_of, settings):
    class OwnView(generics.CreateAPIView[Any]):
        """Takes it."""

        serializer_class = OwnTags

    give_address(settings, OwnView)
    server.register_api_view(OwnView, methods=["post"], name="own", url_name="own")
    for name in ("alice", "bob"):
        person(name)
        Tag.objects.create(word=f"of-{name}", secret=name)
    for name, other in (("alice", "bob"), ("bob", "alice")):
        client = client_of(name, server)
        listed = str(client.list_tools())
        assert f"of-{name}" in listed
        assert f"of-{other}" not in listed
        assert not client.call_tool("own", {"tag": f"of-{name}"}).is_error
        refused = client.call_tool("own", {"tag": f"of-{other}"}, check=False)
        assert "is not a valid choice" in refused.text


def test_what_cannot_be_created_for_one_caller_is_left_out_for_this_one(server, client_of):
    class ForStaff(OfCaller):
        """Fails for others."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            assert self.context["request"].user.is_staff, "nobody else"

    class StaffView(generics.CreateAPIView[Any]):
        """Takes it."""

        serializer_class = ForStaff

    server.register_api_view(StaffView, methods=["post"], name="staff")
    person("manager", is_staff=True)
    assert names(client_of("manager", server)) == ["staff"]
    assert names(client_of("", server)) == []


def test_a_serializer_that_reads_the_query_string_is_registered(server, client_of):
    server.register_viewset(ByQueryViewSet, basename="tag", actions=["list", "create", "update"])
    shown = {tool["name"]: tool for tool in client_of("", server).list_tools()}
    assert list(shown["create_tag"]["inputSchema"]["properties"]) == ["word", "secret"]
    # A serializer that depends on the request makes no promise about results.
    assert "outputSchema" not in shown["list_tags"]


def test_what_cannot_be_created_is_left_out_and_the_rest_stands(server, client_of, caplog):
    server.register_api_view(ImpossibleView, methods=["post"], name="impossible")
    server.tool("other")(lambda: "here")
    assert names(client_of("", server)) == ["other"]
    (warning,) = [message for message in checks.check_left_out(None) if message.obj is server]
    assert "current_shop" in warning.msg
    assert any("ImpossibleView" in record.getMessage() for record in caplog.records)


def test_a_serializer_that_fails_without_code_in_its_constructor_is_left_out_too(server, client_of):
    class Failing(generics.CreateAPIView[Any]):
        """Chooses by what there is not."""

        def get_serializer_class(self) -> Any:
            """Fail."""
            return self.request.current_shop.serializer

    server.register_api_view(Failing, methods=["post"], name="failing")
    assert names(client_of("", server)) == []


def test_functions_with_such_a_serializer_are_built_when_they_are_used(
    server, client_of, monkeypatch
):
    monkeypatch.setattr(FieldsOfRows, "is_migrated", False)

    @server.tool(serializer=FieldsOfRows)
    def keep(serializer: Any) -> str:
        """Keep it."""
        return str(sorted(serializer.validated_data))

    monkeypatch.setattr(FieldsOfRows, "is_migrated", True)
    Tag.objects.all().delete()
    Tag.objects.create(word="weight")
    client = client_of("", server)
    assert client.call_tool("keep", {"name": "a", "tag_weight": 1}).text == "['name', 'tag_weight']"
