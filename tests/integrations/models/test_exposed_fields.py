"""`ExposedFields`: one allow-list for all uses of fields."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.integrations.models.exposed_fields import ExposedFields
from tests.integrations.models.building import serve
from tests.sites.shop.models import Category, Customer, Order, Product


def exposed(model: Any, *fields: str) -> ExposedFields:
    return serve(model, fields=list(fields)).declarations_of(model)[0].exposed


def test_the_schema_has_a_member_for_each_field():
    assert exposed(Order, "id", "status", "paid_at", "customer", "lines__quantity").schema == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "status": {
                "type": "string",
                "description": "open: Open, paid: Paid, shipped: On its way",
            },
            "paid_at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
            "customer": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "label": {"type": "string", "description": "Present only if you may view it."},
                },
                "required": ["id"],
            },
            "lines": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"quantity": {"type": "integer"}},
                    "required": ["quantity"],
                },
            },
            "lines_cut": {
                "type": "boolean",
                "description": "There are more than the 100 shown.",
            },
        },
        "required": ["id", "status", "paid_at", "customer", "lines"],
    }


def test_the_columns_are_the_models_own():
    exposed_fields = exposed(Order, "number", "customer", "customer_id", "customer__name", "lines")
    assert list(exposed_fields.columns) == ["number", "customer_id"]


@pytest.mark.parametrize(
    ("model", "fields", "path"),
    [
        (Order, ["number", "customer__name"], "customer__name"),
        (Order, ["number", "customer"], "customer_id"),
        (Order, ["number", "customer_id"], "customer"),
        (Product, ["slug", "tags"], "tags"),
        (Customer, ["id", "referred__name"], "referred__name"),
        (Category, ["code", "parent__parent__title"], "parent__parent__title"),
    ],
)
def test_what_is_in_fields_may_be_used(model, fields, path):
    assert exposed(model, *fields).require_path(path, option="x").text == path


@pytest.mark.parametrize(
    ("model", "fields", "path"),
    [
        (Order, ["number", "customer__name"], "customer__password"),
        (Order, ["number", "customer__name"], "customer"),
        (Order, ["number", "customer"], "customer__name"),
        (Order, ["number", "customer"], "customer__id"),
        (Order, ["number", "lines__quantity"], "lines"),
        (Order, ["number", "customer"], "customer__user__password"),
        (Order, ["number"], "internal_note"),
        (Order, ["number"], "id"),
        (Order, ["number", "customer__referrer__name"], "customer__name"),
    ],
)
def test_what_is_not_in_fields_may_not(model, fields, path):
    with pytest.raises(ImproperlyConfigured, match="not in fields and would be revealed"):
        exposed(model, *fields).require_path(path, option="x")
