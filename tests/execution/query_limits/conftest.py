"""The states of a connection when a call begins: outside of a transaction, or within one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from django.db import transaction

from tests.execution.query_limits.reading import atomic_requests

SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "autocommit": nullcontext,
    "atomic requests": atomic_requests,
    "a transaction": transaction.atomic,
}


@pytest.fixture(params=SURROUNDINGS)
def _surroundings(request):
    with SURROUNDINGS[request.param]():
        yield
