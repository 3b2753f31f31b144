"""`MCP_DJANGO`: what is read, what is refused, and what the page about it says."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import Icon
from mcp_django.conf import (
    KEYS,
    IntrospectionIssuer,
    JWTIssuer,
    Limits,
    OAuth,
    Rate,
    Retention,
    Settings,
    find_problems,
    get_settings,
    parse_rates,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ref" / "settings.md"

ISSUER = "https://login.example"
VALUES: dict[str, tuple[Any, Any]] = {
    "TITLE": ("Desk", "Desk"),
    "INSTRUCTIONS": ("Be kind.", "Be kind."),
    "ICONS": ([{"src": "/i.png", "sizes": ("any",)}], (Icon("/i.png", sizes=("any",)),)),
    "PROTOCOL_VERSIONS": (["2026-07-28"], ("2026-07-28",)),
    "BASE_URL": ("https://x.test", "https://x.test"),
    "ALLOWED_ORIGINS": (["https://y.test"], ("https://y.test",)),
    "MAX_BODY_BYTES": (1, 1),
    "AUTH": ([], ()),
    "SCOPES": ({"a": "Do it"}, {"a": "Do it"}),
    "SCOPE_IMPLIES": ({"a": ["b"]}, {"a": ("b",)}),
    "BACKGROUND": ("inline", "inline"),
    "CONFIRM_SECONDS": (2, 2),
    "PROXIES": (1, 1),
    "OAUTH": ({"DCR": "off"}, OAuth(dcr="off")),
    "JWT": ([{"ISSUER": ISSUER}], (JWTIssuer(issuer=ISSUER),)),
    "INTROSPECTION": (
        [{"ISSUER": ISSUER, "URL": f"{ISSUER}/i", "CLIENT_ID": "c", "CLIENT_SECRET": "s"}],
        (IntrospectionIssuer(issuer=ISSUER, url=f"{ISSUER}/i", client_id="c", client_secret="s"),),
    ),
    "DRF": (["a.b.C"], ("a.b.C",)),
    "LIST_FILTER": ("scopes", "scopes"),
    "CHALLENGE_SCOPES": ("granted", "granted"),
    "THREADS": (1, 1),
    "QUEUE": (0, 0),
    "QUEUE_SECONDS": (0.5, 0.5),
    "KEEP_CONNECTIONS": (False, False),
    "THREAD_CONTEXT": ("tests.nowhere.Context", "tests.nowhere.Context"),
    "BODY_SECONDS": (1, 1),
    "CALL_TIMEOUT": (1, 1),
    "CLIENT_REQUEST_TIMEOUT": (60, 60),
    "MAX_RESULT_BYTES": (1000, 1000),
    "MAX_EVENT_BYTES": (65_536, 65_536),
    "LARGE_KEYS": (True, True),
    "PAGE_SIZE": (1, 1),
    "CHANNEL_LAYER": ("bell", "bell"),
    "POLL_SECONDS": (0.1, 0.1),
    "KEEPALIVE_SECONDS": (1, 1),
    "PING_SECONDS": (0, 0),
    "DRAIN_SECONDS": (1, 1),
    "SESSION_IDLE": (60, 60),
    "SESSION_MAX_AGE": (60, 60),
    "SESSIONS_PER_PRINCIPAL": (1, 1),
    "SESSION_RATE": ((), ()),
    "STREAMS_PER_PRINCIPAL": (1, 1),
    "STREAMS_PER_USER": (1, 1),
    "ANONYMOUS_FACTOR": (1, 1),
    "RETENTION": ({"streams": 60}, Retention(streams=60)),
    "TASK_BACKEND": ("slow", "slow"),
    "TASK_THREADS": (1, 1),
    "TASK_TTL": (60, 60),
    "TASK_MAX_TTL": (60, 60),
    "TASK_POLL_SECONDS": (0.5, 0.5),
    "TASKS_PER_PRINCIPAL": (1, 1),
    "LIMITS": ({"rows": 5}, Limits(rows=5)),
    "RATE": (["100/h", "all: 5/30s"], (Rate(100, 3600), Rate(5, 30, "all"))),
    "THROTTLE_AS": ("result", "result"),
    "LOG_CALLS": (False, False),
    "LOG_ARGUMENTS": (True, True),
    "AUDIT_STRICT": (False, False),
    "AUDIT_CONTEXT": ("a.b.caller_context", "a.b.caller_context"),
    "TELEMETRY": (False, False),
    "TRACE_URL": ("https://t.test/{trace_id}", "https://t.test/{trace_id}"),
    "APPROVAL_SECONDS": (60, 60),
    "HEALTH": (True, True),
    "ADMIN_BASE_CLASS": ("a.b.C", "a.b.C"),
}

WRONG: list[tuple[str, Any]] = [
    ("TITLE", 5),
    ("INSTRUCTIONS", None),
    ("ICONS", [{"src": "http://x.test/i.png"}]),
    ("ICONS", [{"source": "https://x.test/i.png"}]),
    ("ICONS", "https://x.test/i.png"),
    ("PROTOCOL_VERSIONS", []),
    ("PROTOCOL_VERSIONS", "2026-07-28"),
    ("PROTOCOL_VERSIONS", ["2025-11-26", "2026-07-28"]),
    ("PROTOCOL_VERSIONS", ["2099-01-01"]),
    ("BASE_URL", None),
    ("BASE_URL", "shop.example"),
    ("BASE_URL", "//shop.example"),
    ("BASE_URL", "https://"),
    ("ALLOWED_ORIGINS", "https://y.test"),
    ("MAX_BODY_BYTES", 0),
    ("MAX_BODY_BYTES", "many"),
    ("AUTH", "tokens"),
    ("AUTH", None),
    ("SCOPES", ["mcp"]),
    ("SCOPES", {"mcp": None}),
    ("SCOPES", {"orders read": "See orders"}),
    ("SCOPES", {"": "Nothing"}),
    ("SCOPE_IMPLIES", {"a": "b"}),
    ("BACKGROUND", "celery"),
    ("CONFIRM_SECONDS", -1),
    ("CONFIRM_SECONDS", 11),
    ("PROXIES", -1),
    ("PROXIES", "one"),
    ("OAUTH", {"DCR": "anybody"}),
    ("OAUTH", {"CIMD_HOSTS": ["https://vendor.example/"]}),
    ("OAUTH", {"CIMD_HOSTS": ["*.vendor.example"]}),
    ("OAUTH", {"dcr": "off"}),
    ("OAUTH", {"REGISTRATION": "off"}),
    ("OAUTH", None),
    ("JWT", [{}]),
    ("JWT", [{"ISSUER": "http://login.example"}]),
    ("INTROSPECTION", [{"ISSUER": ISSUER}]),
    ("DRF", "a.b.C"),
    ("LIST_FILTER", "everything"),
    ("CHALLENGE_SCOPES", "everything"),
    ("THREADS", 0),
    ("QUEUE", -1),
    ("QUEUE_SECONDS", 0),
    ("KEEP_CONNECTIONS", "sometimes"),
    ("THREAD_CONTEXT", True),
    ("THREAD_CONTEXT", "not a path"),
    ("BODY_SECONDS", 0),
    ("CALL_TIMEOUT", -1),
    ("CLIENT_REQUEST_TIMEOUT", 0),
    ("MAX_RESULT_BYTES", 999),
    ("MAX_EVENT_BYTES", 65_535),
    ("LARGE_KEYS", "perhaps"),
    ("PAGE_SIZE", 0),
    ("PAGE_SIZE", 1.5),
    ("CHANNEL_LAYER", None),
    ("POLL_SECONDS", 0),
    ("KEEPALIVE_SECONDS", 0),
    ("PING_SECONDS", -1),
    ("DRAIN_SECONDS", None),
    ("SESSION_IDLE", 0),
    ("TASK_BACKEND", None),
    ("TASK_THREADS", 0),
    ("TASK_TTL", 0),
    ("TASK_MAX_TTL", "long"),
    ("TASK_POLL_SECONDS", 0),
    ("TASKS_PER_PRINCIPAL", 0),
    ("SESSION_MAX_AGE", "a day"),
    ("SESSIONS_PER_PRINCIPAL", 0),
    ("SESSION_RATE", "often"),
    ("STREAMS_PER_PRINCIPAL", 0),
    ("STREAMS_PER_USER", 0),
    ("ANONYMOUS_FACTOR", 0),
    ("RETENTION", {"streams": 0}),
    ("RETENTION", {"events": 60}),
    ("LIMITS", {"rows": 0}),
    ("LIMITS", {"queries": 60}),
    ("RETENTION", 60),
    ("RATE", 5),
    ("RATE", [5]),
    ("RATE", "often"),
    ("RATE", "1/0s"),
    ("RATE", "1/31d"),
    ("THROTTLE_AS", "text"),
    ("LOG_CALLS", "perhaps"),
    ("LOG_ARGUMENTS", None),
    ("AUDIT_STRICT", None),
    ("AUDIT_CONTEXT", "a.b:caller_context"),
    ("TELEMETRY", "otlp"),
    ("TRACE_URL", "https://t.test/"),
    ("TRACE_URL", "javascript:alert('{trace_id}')"),
    ("APPROVAL_SECONDS", 0),
    ("HEALTH", "/health"),
    ("ADMIN_BASE_CLASS", None),
]


def test_every_key_has_a_valid_and_a_wrong_value_here():
    assert set(VALUES) == {key for key, _ in WRONG} == set(KEYS)


def test_without_a_word_the_defaults_hold():
    with override_settings(MCP_DJANGO={}):
        assert get_settings() == Settings()


@pytest.mark.parametrize("key", VALUES)
def test_a_value_is_read_and_forgotten_with_its_setting(key):
    given, expected = VALUES[key]
    with override_settings(MCP_DJANGO={key: given}):
        assert find_problems({key: given}) == []
        assert getattr(get_settings(), key.lower()) == expected
    assert get_settings() == Settings()


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_is_named(key, value):
    problems = find_problems({key: value})
    assert problems
    assert all(f"MCP_DJANGO[{key!r}]" in what and hint for what, hint in problems)
    with override_settings(MCP_DJANGO={key: value}), pytest.raises(ImproperlyConfigured, match=key):
        get_settings()


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("PAGESIZE", "Did you mean 'PAGE_SIZE'?"),
        (
            "TOKEN_CACHE_SECONDS",
            "Write 'CONFIRM_SECONDS', for how long a process uses what the database confirmed.",
        ),
        ("page_size", "Did you mean 'PAGE_SIZE'?"),
        ("THREDS", "Did you mean 'THREADS'?"),
        ("XYZZY", "Known: TITLE, "),
        (5, "Known: TITLE, "),
        ("DCR", "Write MCP_DJANGO = {'OAUTH': {'DCR': …}}."),
    ],
)
def test_an_unknown_key_gets_the_nearest(key, hint):
    ((what, way_out),) = find_problems({key: 1})
    assert what == f"MCP_DJANGO has no key {str(key)!r}."
    assert way_out.startswith(hint)


@pytest.mark.parametrize("values", [None, [], "x", 5])
def test_the_setting_is_a_dictionary(values):
    assert find_problems(values) == [("MCP_DJANGO is not a dictionary.", "Write MCP_DJANGO = {}.")]


def test_a_nested_value_is_named_with_its_place():
    ((what, _),) = find_problems({"SCOPE_IMPLIES": {"orders": 5}})
    assert what.startswith("MCP_DJANGO['SCOPE_IMPLIES']['orders']")


@pytest.mark.parametrize(
    ("values", "what", "hint"),
    [
        ({"OAUTH": {"DRC": "off"}}, "['OAUTH']['DRC']", "Did you mean 'DCR'?"),
        ({"OAUTH": {"dcr": "off"}}, "['OAUTH']['dcr']", "Did you mean 'DCR'?"),
        (
            {"OAUTH": {"TRUSTED_ISSUERS": [{"ISSUER": ISSUER, "JWK_URL": ""}]}},
            "['OAUTH']['TRUSTED_ISSUERS'][0]['JWK_URL']",
            "Did you mean 'JWKS_URL'?",
        ),
        ({"JWT": [{"ISSUER": ISSUER, "AUDIENCE": ["x"]}]}, "['AUDIENCE']", "'AUDIENCES'?"),
        ({"RETENTION": {"stream": 60}}, "['RETENTION']['stream']", "Did you mean 'streams'?"),
        ({"LIMITS": {"xyzzy": 60}}, "['LIMITS']['xyzzy']", "Known: rows, statements, seconds."),
        ({"OAUTH": {"DCR": "closed"}}, "'initial-token' or 'off', not 'closed'", "settings.html"),
        ({"AUTH": "oauth"}, "['AUTH']: Input should be a list or a tuple, not str", "settings"),
        (
            {"SCOPES": {"a b": "x"}},
            "['SCOPES']['a b']: 'a b' is not a valid scope",
            "settings.html",
        ),
        ({"BASE_URL": "shop.example"}, "'shop.example' has no scheme", "settings.html"),
        ({"AUTH": [".auth.Backend"]}, "'.auth.Backend' is not a dotted path", "settings.html"),
        (
            {"DRF": ["a..Token"]},
            "'a..Token' is not a dotted path; write 'package.",
            "settings.html",
        ),
        ({"OAUTH": {"CAN_CONNECT": ".rule"}}, "'.rule' is not a dotted path", "settings.html"),
        (
            {"JWT": [{"ISSUER": ISSUER, "USER": "a b.c"}]},
            "'a b.c' is not a dotted",
            "settings.html",
        ),
    ],
)
def test_a_mistake_is_told_with_the_way_out(values, what, hint):
    ((problem, way_out),) = find_problems(values)
    assert what in problem
    assert hint in way_out


def test_a_secret_of_the_wrong_kind_is_not_repeated():
    ((problem, hint),) = find_problems({"OAUTH": {"FIELD_KEYS": "sssecret"}})
    assert "sssecret" not in problem + hint


@pytest.mark.parametrize("host", ["*", "vendor.example", ".vendor.example", "localhost"])
def test_a_host_of_documents_is_read(host):
    assert find_problems({"OAUTH": {"CIMD_HOSTS": [host]}}) == []


def test_the_settings_are_the_same_object_until_any_setting_changes():
    before = get_settings()
    assert get_settings() is before
    with override_settings(ROOT_URLCONF="tests.kit.urls_of_nothing"):
        during = get_settings()
        assert during is not before
        assert during == before
    assert get_settings() is not during


def test_the_page_lists_every_key_with_its_default():
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(.+?)` \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    described = {key: default for key, default, meaning in rows if meaning}
    defaults = {field.name.upper(): field.default for field in fields(Settings)}
    assert [key for key, *_ in rows] == [*dict.fromkeys(key for key, *_ in rows)]
    defaults["RETENTION"] = asdict(Retention())
    defaults["LIMITS"] = asdict(Limits())
    assert parse_rates("60/m") == defaults["SESSION_RATE"]
    defaults["SESSION_RATE"] = "60/m"
    defaults["SCOPES"] = Settings().scopes
    defaults["OAUTH"] = {key.upper(): value for key, value in asdict(OAuth()).items()}
    assert {key: eval(default) for key, default in described.items()} == defaults
