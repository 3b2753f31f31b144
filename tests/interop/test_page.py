"""What a person sees who opens the address of the demo's endpoint in a browser."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx
import pytest

pytestmark = pytest.mark.outside

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize("staff", [False, True])
def test_page_says_how_to_connect_and_gives_nothing_away(demo_server, staff):
    url = demo_server.staff_url if staff else demo_server.url
    page = open_page(url)
    title = "Airport operations desk (staff)" if staff else "Airport operations desk"
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert f"<title>{title}</title>" in page.text
    assert f"<code>{url}</code>" in page.text
    assert re.search(rf"claude mcp add --transport http \S+ {re.escape(url)}[\s<]", page.text)
    for secret in (demo_server.token, demo_server.staff_token, "mcp_", "publish_notice"):
        assert secret not in page.text
    # The site is its own authorization server.
    assert "sign in to this site" in page.text
    assert '<a href="/oauth/connections/">' in page.text
    assert "Supported revisions of the protocol: 2026-07-28, " in page.text
    assert "2024-11-05." in page.text
    assert "Authorization" not in page.text


def test_page_runs_nothing_and_is_not_kept(demo_server):
    page = open_page(demo_server.url)
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert f"style-src 'sha256-{digest}'" in policy
    assert page.headers["cache-control"] == "no-store"
    assert "<script" not in page.text
    assert "set-cookie" not in page.headers


def test_who_asks_for_events_gets_no_page(demo_server):
    response = httpx.get(demo_server.url, headers={"Accept": "text/event-stream"}, trust_env=False)
    # This would be the GET stream of a session, which needs a session id and a token.
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/json"


def open_page(url: str) -> httpx.Response:
    return httpx.get(url, headers={"Accept": BROWSER}, trust_env=False)
