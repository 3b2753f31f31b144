"""The libraries that validate hand-written schemas, each in turn, and none."""

import sys

import pytest

from mcp_django.schema.compiled import validation_engine


@pytest.fixture(params=["jsonschema_rs", "jsonschema"])
def engine(request, monkeypatch):
    if request.param == "jsonschema":
        monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    pytest.importorskip(request.param)
    assert validation_engine() == request.param
    return request.param


@pytest.fixture
def no_engine(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert validation_engine() is None
