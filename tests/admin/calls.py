"""Lines of the call log that a test makes up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from mcp_django.models import Call


def called(
    component: str = "look", outcome: str = "ok", *, times: int = 1, ago: float = 60, **fields: Any
) -> list[Call]:
    """So many calls of a tool of the shelf, so many seconds ago."""
    values = {"server": "shelf", "kind": "tool", "user_key": "user:1", **fields}
    at = values.pop("at", timezone.now() - timedelta(seconds=ago))
    assert isinstance(at, datetime)
    rows = [Call(component=component, outcome=outcome, at=at, **values) for _ in range(times)]
    return Call.objects.bulk_create(rows)
