"""The issuers in `MCP_DJANGO`: which values are accepted, and how errors are reported."""

import pytest

from mcp_django.conf import ALGORITHMS, find_problems, is_loopback

JWT = {"ISSUER": "https://id.example"}
SECRET = "hush-hush"
ASKED = {**JWT, "URL": "https://id.example/i", "CLIENT_ID": "a", "CLIENT_SECRET": SECRET}


@pytest.mark.parametrize(
    "values",
    [
        {"JWT": []},
        {"JWT": [JWT]},
        {"JWT": [{"ISSUER": "https://id.example/"}, JWT]},
        {"JWT": [{**JWT, "SERVERS": ["a"]}, {**JWT, "SERVERS": ["b"]}]},
        {"JWT": [{**JWT, "JWKS_URL": "http://localhost:8080/keys"}]},
        {"JWT": [{**JWT, "JWKS_URL": "http://[::1]/keys"}]},
        {"JWT": [{**JWT, "ALGORITHMS": ["ES384"], "LEEWAY": 0, "SCOPES": {"a": ["b", "c"]}}]},
        {"INTROSPECTION": [ASKED]},
        {"INTROSPECTION": [ASKED], "JWT": [JWT]},
    ],
)
def test_issuers_are_read(values):
    assert find_problems(values) == []


@pytest.mark.parametrize(
    ("key", "issuer", "named"),
    [
        ("JWT", {}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": ""}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": "id.example"}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": "http://id.example"}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": "https://user@id.example"}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": "https://id.example?x=1"}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": "https://id.example#x"}, "[0]['ISSUER']"),
        ("JWT", {"ISSUER": "https://id.example/" + "x" * 255}, "[0]['ISSUER']"),
        ("JWT", {**JWT, "JWKS_URL": "http://10.0.0.1/keys"}, "[0]['JWKS_URL']"),
        ("JWT", {**JWT, "JWKS_URL": "file:///keys"}, "[0]['JWKS_URL']"),
        ("JWT", {**JWT, "ALGORITHMS": []}, "[0]['ALGORITHMS']"),
        ("JWT", {**JWT, "ALGORITHMS": ["HS256"]}, "[0]['ALGORITHMS'][0]"),
        ("JWT", {**JWT, "ALGORITHMS": ["none"]}, "[0]['ALGORITHMS'][0]"),
        ("JWT", {**JWT, "LEEWAY": 3600}, "[0]['LEEWAY']"),
        ("JWT", {**JWT, "UNKNOWN_USERS": "anybody"}, "[0]['UNKNOWN_USERS']"),
        ("JWT", {**JWT, "SCOPES": {"a": "b"}}, "[0]['SCOPES']['a']"),
        ("JWT", {**JWT, "AUDIENCE": "x"}, "[0]['AUDIENCE']"),
        ("JWT", {**JWT, "AUDIENCES": "x"}, "[0]['AUDIENCES']"),
        ("INTROSPECTION", JWT, "[0]['URL']"),
        ("INTROSPECTION", {**ASKED, "URL": "http://id.example/i"}, "[0]['URL']"),
        ("INTROSPECTION", {**ASKED, "CLIENT_SECRET": [SECRET]}, "[0]['CLIENT_SECRET']"),
        ("INTROSPECTION", {**ASKED, "CACHE_SECONDS": 3600}, "[0]['CACHE_SECONDS']"),
        ("INTROSPECTION", {**ASKED, "ALGORITHMS": ["RS256"]}, "[0]['ALGORITHMS']"),
    ],
)
def test_what_is_wrong_with_an_issuer_is_named_without_its_secret(key, issuer, named):
    problems = find_problems({key: [issuer]})
    assert any(f"MCP_DJANGO[{key!r}]{named}" in what for what, _ in problems), problems
    assert SECRET not in str(problems)


@pytest.mark.parametrize(
    "entries", [[JWT, JWT], [{**JWT, "SERVERS": ["a", "b"]}, {**JWT, "SERVERS": ["b"]}]]
)
def test_an_issuer_that_is_listed_twice_is_found(entries):
    ((what, hint),) = find_problems({"JWT": entries})
    assert what == "MCP_DJANGO['JWT'] lists the issuer 'https://id.example' twice."
    assert "SERVERS" in hint


def test_no_algorithm_shares_its_secret_with_whoever_checks():
    assert not any(name.startswith("HS") or name == "none" for name in ALGORITHMS)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("localhost", True), ("127.9.9.9", True), ("::1", True)),
        *(
            ("10.0.0.1", False),
            ("a.b", False),
            ("127.0.0.1.a.b", False),
            ("", False),
            (None, False),
        ),
    ],
)
def test_loopback_is_this_machine(host, expected):
    assert is_loopback(host) is expected
