"""`MCP_DJANGO`: what is read, what is refused, and what the page about it says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import Icon
from mcp_django.conf import KEYS, Settings, get_settings, problems

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"

VALUES: dict[str, tuple[Any, Any]] = {
    "TITLE": ("Desk", "Desk"),
    "INSTRUCTIONS": ("Be kind.", "Be kind."),
    "ICONS": ([{"src": "/i.png", "sizes": ("any",)}], (Icon("/i.png", sizes=("any",)),)),
    "PROTOCOL_VERSIONS": (["2026-07-28"], ("2026-07-28",)),
    "BASE_URL": ("https://x.test", "https://x.test"),
    "ALLOWED_ORIGINS": (["https://y.test"], ("https://y.test",)),
    "MAX_BODY_BYTES": (1, 1),
    "AUTH": ([], ()),
    "SCOPE_IMPLIES": ({"a": ["b"]}, {"a": ("b",)}),
    "LIST_FILTER": ("scopes", "scopes"),
    "THREADS": (1, 1),
    "QUEUE": (0, 0),
    "QUEUE_SECONDS": (0.5, 0.5),
    "CALL_TIMEOUT": (1, 1),
    "MAX_RESULT_BYTES": (1000, 1000),
    "PAGE_SIZE": (1, 1),
    "KEEPALIVE_SECONDS": (1, 1),
    "DRAIN_SECONDS": (1, 1),
    "STREAMS_PER_PRINCIPAL": (1, 1),
}

WRONG: list[tuple[str, Any]] = [
    ("TITLE", 5),
    ("INSTRUCTIONS", None),
    ("ICONS", [{"src": "http://x.test/i.png"}]),
    ("ICONS", [{"source": "https://x.test/i.png"}]),
    ("ICONS", "https://x.test/i.png"),
    ("PROTOCOL_VERSIONS", []),
    ("PROTOCOL_VERSIONS", "2026-07-28"),
    ("PROTOCOL_VERSIONS", ["2025-11-25", "2026-07-28"]),
    ("PROTOCOL_VERSIONS", ["2099-01-01"]),
    ("BASE_URL", None),
    ("ALLOWED_ORIGINS", "https://y.test"),
    ("MAX_BODY_BYTES", 0),
    ("MAX_BODY_BYTES", "many"),
    ("AUTH", "tokens"),
    ("AUTH", None),
    ("SCOPE_IMPLIES", {"a": "b"}),
    ("LIST_FILTER", "everything"),
    ("THREADS", 0),
    ("QUEUE", -1),
    ("QUEUE_SECONDS", 0),
    ("CALL_TIMEOUT", -1),
    ("MAX_RESULT_BYTES", 999),
    ("PAGE_SIZE", 0),
    ("PAGE_SIZE", 1.5),
    ("KEEPALIVE_SECONDS", 0),
    ("DRAIN_SECONDS", None),
    ("STREAMS_PER_PRINCIPAL", 0),
]


def test_every_key_has_a_valid_and_a_wrong_value_here() -> None:
    assert set(VALUES) == {key for key, _ in WRONG} == set(KEYS)


def test_without_a_word_the_defaults_hold() -> None:
    with override_settings(MCP_DJANGO={}):
        assert get_settings() == Settings()


@pytest.mark.parametrize("key", VALUES)
def test_a_value_is_read_and_forgotten_with_its_setting(key: str) -> None:
    given, expected = VALUES[key]
    with override_settings(MCP_DJANGO={key: given}):
        assert problems({key: given}) == []
        assert getattr(get_settings(), key.lower()) == expected
    assert get_settings() == Settings()


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_named(key: str, value: Any) -> None:
    found = problems({key: value})
    assert found
    assert all(f"MCP_DJANGO[{key!r}]" in what and hint for what, hint in found)
    with override_settings(MCP_DJANGO={key: value}), pytest.raises(ImproperlyConfigured, match=key):
        get_settings()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("PAGESIZE", "Did you mean 'PAGE_SIZE'?"),
        ("page_size", "Did you mean 'PAGE_SIZE'?"),
        ("THREDS", "Did you mean 'THREADS'?"),
        ("XYZZY", "Known keys: TITLE, "),
        (5, "Known keys: TITLE, "),
    ],
)
def test_an_unknown_key_gets_the_nearest(key: Any, hint: str) -> None:
    ((what, found),) = problems({key: 1})
    assert what == f"MCP_DJANGO has no key {str(key)!r}."
    assert found.startswith(hint)


@pytest.mark.parametrize("values", [None, [], "x", 5])
def test_the_setting_is_a_dictionary(values: Any) -> None:
    assert problems(values) == [("MCP_DJANGO is not a dictionary.", "Write MCP_DJANGO = {}.")]


def test_a_nested_value_is_named_with_its_place() -> None:
    ((what, _),) = problems({"SCOPE_IMPLIES": {"orders": 5}})
    assert what.startswith("MCP_DJANGO['SCOPE_IMPLIES']['orders']")


def test_other_settings_do_not_matter() -> None:
    before = get_settings()
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        assert get_settings() is before


def test_the_page_lists_every_key_with_its_default() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(.+?)` \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    described = {key: default for key, default, meaning in rows if meaning}
    defaults = {field.name.upper(): field.default for field in fields(Settings)}
    assert [key for key, *_ in rows] == [*dict.fromkeys(key for key, *_ in rows)]
    assert {key: eval(default) for key, default in described.items()} == defaults
