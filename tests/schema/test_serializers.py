"""Arguments that a REST framework serializer declares and validates."""

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.lint import lint
from tests.spec import spec

pytest.importorskip("rest_framework")

from rest_framework import serializers

from mcp_django.schema.serializers import SerializerArguments
from tests.schema.samples import refusal


class Line(serializers.Serializer):
    sku = serializers.CharField(max_length=8)
    quantity = serializers.IntegerField(min_value=1, default=1)

    def validate(self, attrs):
        if attrs["sku"] == "none":
            raise serializers.ValidationError("There is no such thing.")
        return attrs


class Order(serializers.Serializer):
    number = serializers.CharField(read_only=True)
    user = serializers.HiddenField(default="somebody")
    lines = Line(many=True, allow_empty=False)
    gift = Line(required=False, allow_null=True)
    note = serializers.CharField(
        required=False, allow_blank=True, label="Remark", help_text="For us"
    )
    secret = serializers.CharField(required=False, style={"input_type": "password"}, min_length=9)

    def validate(self, attrs):
        if attrs.get("note") == "fail":
            raise serializers.ValidationError("Nothing fits.")
        if attrs.get("note") == "second":
            raise serializers.ValidationError({"lines": [{}, {"sku": "Not this one."}]})
        return attrs


def one_field(field):
    return type("OneSerializer", (serializers.Serializer,), {"x": field})


def published(field):
    return SerializerArguments(one_field(field)).json_schema["properties"]["x"]


LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string", "minLength": 1, "maxLength": 8},
        "quantity": {"type": "integer", "minimum": 1, "default": 1},
    },
    "required": ["sku"],
    "additionalProperties": False,
}


@spec("TOOL-2")
def test_a_serializer_becomes_a_plain_object_schema():
    schema = SerializerArguments(Order).json_schema
    assert schema == {
        "type": "object",
        "properties": {
            "lines": {"type": "array", "items": LINE, "minItems": 1},
            "gift": LINE,
            "note": {"type": "string", "description": "Remark. For us"},
            "secret": {"type": "string", "minLength": 9, "writeOnly": True},
        },
        "required": ["lines"],
        "additionalProperties": False,
    }
    assert lint(schema) == []


def test_the_function_receives_the_valid_serializer():
    arguments = SerializerArguments(Order).parse(b'{"lines": [{"sku": "a"}], "gift": null}')
    serializer = arguments["serializer"]
    assert isinstance(serializer, Order)
    assert serializer.validated_data == {
        "user": "somebody",
        "lines": [{"sku": "a", "quantity": 1}],
        "gift": None,
    }


def test_null_for_an_optional_member_means_that_it_was_left_out():
    arguments = SerializerArguments(Order).parse(
        b'{"lines": [{"sku": "a", "quantity": null}], "note": null}'
    )
    assert arguments["serializer"].validated_data["lines"] == [{"sku": "a", "quantity": 1}]


@spec("TOOL-8")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{}", "lines: is required"),
        (b'{"lines": null}', "lines: This field may not be null (got null)"),
        (b'{"lines": []}', "lines: This list may not be empty"),
        (
            b'{"lines": 5}',
            'lines: Expected a list of items but got type "int" (got 5)',
        ),
        (
            b'{"lines": [{"sku": "a"}, {"sku": "123456789", "quantity": 0}]}',
            (
                'lines[1].sku: Ensure this field has no more than 8 characters (got "123456789")\n'
                "lines[1].quantity: Ensure this value is greater than or equal to 1 (got 0)"
            ),
        ),
        (b'{"lines": [{}]}', "lines[0].sku: is required"),
        (
            b'{"lines": [7]}',
            "lines[0]: Invalid data. Expected a dictionary, but got int (got 7)",
        ),
        (b'{"lines": [{"sku": "none"}]}', "lines[0]: There is no such thing"),
        (b'{"lines": [{"sku": "a"}], "note": "fail"}', "Nothing fits"),
        (
            b'{"lines": [{"sku": "a"}, {"sku": "b"}], "note": "second"}',
            'lines[1].sku: Not this one (got "b")',
        ),
        (
            b'{"lines": [{"sku": "a"}], "secret": "short"}',
            "secret: Ensure this field has at least 9 characters",
        ),
        (
            b'{"lines": [{"sku": "a", "qty": 1}], "number": "1"}',
            (
                'lines[0]: unknown member "qty"; known: sku, quantity\n'
                'unknown argument "number"; known: lines, gift, note, secret'
            ),
        ),
        (b"[]", "the arguments must be an object (got [])"),
    ],
)
def test_a_refusal_names_field_rule_and_value(raw, text):
    assert refusal(SerializerArguments(Order), raw) == text


class Bare(serializers.BaseSerializer):
    def to_internal_value(self, data):
        return data


class WithBare(serializers.Serializer):
    bare = Bare()


def test_a_serializer_without_fields_is_no_source_of_arguments():
    with pytest.raises(ImproperlyConfigured, match="Bare: Arguments have names"):
        SerializerArguments(Bare)
    assert published(Bare()) == {}


def test_a_field_that_json_cannot_fill_is_refused_with_its_place():
    class Inner(serializers.Serializer):
        picture = serializers.FileField()

    class Outer(serializers.Serializer):
        inner = Inner()

    with pytest.raises(ImproperlyConfigured, match=r"Outer: inner: picture: a FileField cannot"):
        SerializerArguments(Outer)


class Related(serializers.Serializer):
    key = serializers.PrimaryKeyRelatedField(queryset=Group.objects.all())
    keys = serializers.PrimaryKeyRelatedField(queryset=Group.objects.all(), many=True)
    named = serializers.SlugRelatedField(queryset=Group.objects.all(), slug_field="name")
    linked = serializers.HyperlinkedRelatedField(
        queryset=Group.objects.all(), view_name="group", required=False
    )
    typed = serializers.PrimaryKeyRelatedField(
        queryset=Group.objects.all(), pk_field=serializers.IntegerField(min_value=1), required=False
    )


class LaterKey(serializers.PrimaryKeyRelatedField):
    def get_queryset(self):
        return Group.objects.all()


class LaterSlug(serializers.SlugRelatedField):
    def get_queryset(self):
        return Group.objects.all()


def test_rows_are_described_by_their_keys_without_asking_the_database():
    assert SerializerArguments(Related).json_schema["properties"] == {
        "key": {"type": "integer"},
        "keys": {"type": "array", "items": {"type": "integer"}},
        "named": {"type": "string"},
        "linked": {"type": "string", "format": "uri"},
        "typed": {"type": "integer", "minimum": 1},
    }
    assert published(LaterKey()) == {}
    assert published(LaterSlug(slug_field="name")) == {}


class UserSerializer(serializers.ModelSerializer):
    class Meta:
        model = User
        fields = ["id", "username", "groups"]


@pytest.mark.django_db
def test_rows_are_found_by_their_keys():
    group = Group.objects.create(name="one")
    raw = f'{{"key": {group.pk}, "keys": [{group.pk}], "named": "one"}}'.encode()
    data = SerializerArguments(Related).parse(raw)["serializer"].validated_data
    assert (data["key"], data["keys"], data["named"]) == (group, [group], group)
    assert refusal(SerializerArguments(Related), b'{"key": 0, "keys": [0], "named": "two"}') == (
        'key: Invalid pk "0" - object does not exist (got 0)\n'
        'keys: Invalid pk "0" - object does not exist\n'
        'named: Object with name=two does not exist (got "two")'
    )


@pytest.mark.django_db
def test_a_model_serializer_can_be_saved():
    arguments = SerializerArguments(UserSerializer)
    properties = arguments.json_schema["properties"]
    assert list(properties) == ["username", "groups"]
    assert properties["groups"]["items"] == {"type": "integer"}
    serializer = arguments.parse(b'{"username": "ada"}')["serializer"]
    assert serializer.save() == User.objects.get(username="ada")
