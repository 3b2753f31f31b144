"""What form fields and serializer fields have in common."""

import pytest
from django.db import models

from mcp_django.schema.django_forms import MAX_LABELS, choice_schema, key_schema


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (models.BigAutoField(), {"type": "integer"}),
        (models.UUIDField(), {"type": "string", "format": "uuid"}),
        (models.CharField(), {"type": "string"}),
    ],
)
def test_a_key_is_described_by_its_type(field, schema):
    assert key_schema(field) == schema


def test_a_long_list_of_labels_is_left_out():
    choices = [(str(number), f"Number {number}") for number in range(MAX_LABELS + 1)]
    assert choice_schema(choices) == {"enum": [value for value, _ in choices]}


def test_only_labels_that_say_more_are_shown():
    choices = [("half_day", "Half day"), ("full", "All day long")]
    assert choice_schema(choices)["description"] == 'Values: "full" = All day long.'
