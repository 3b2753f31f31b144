"""The address of a client, in the formats that proxies write."""

import pytest
from django.test import RequestFactory

from mcp_django.auth.credentials import client_ip


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("10.0.0.1, 203.0.113.7:4711", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[203.0.113.7", None),
        ("203.0.113.7:", None),
        ("unknown", None),
        (f"fe80::1%{'x' * 100}", None),
        ("", None),
    ],
)
def test_threat_27_a_port_beside_the_address_hides_nobody(settings, written, expected):
    settings.MCP_DJANGO = {"PROXIES": 1}
    request = RequestFactory().get("/", headers={"X-Forwarded-For": written})
    assert client_ip(request) == expected
