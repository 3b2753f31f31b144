"""The page on which a call is decided: who sees it, what it shows, and that it cannot be forged."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import timedelta
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.urls import include, path
from django.utils import translation

from mcp_django.models import Approval
from mcp_django.test import MCPClient
from tests.execution.approval_site import URLS, decide, decider, gated, page_of, signed_in, waiting
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.overrides.site import a_second_later, decide_elsewhere

pytestmark = pytest.mark.django_db
NEVER = "no-such-code-at-all-00"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = URLS


@pytest.fixture
def ada():
    return person("ada")


def waiting_approval(user: Any, tool: str = "found_group", **arguments: Any) -> Approval:
    """Create a call that waits for an approval."""
    client = MCPClient(server=gated, user=user, protocol_version="2025-06-18")
    client.call_tool(tool, arguments or {"name": "crew"}, check=False)
    return Approval.objects.latest("pk")


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", response.content.decode()))


# Who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", "/"])
def test_the_caller_sees_what_his_assistant_wants(ada, end):
    row = waiting_approval(ada, name="<b>crew</b>", note="two\nlines", pin="1234")
    response = signed_in(ada).get(f"{page_of(row)}{end}")
    assert response.status_code == 200
    page, text = response.content.decode(), text_of(response)
    assert "Approve Found a group?" in text
    assert "Nothing has happened yet." in text
    assert "Make a group, once its founder has said yes." in text
    assert "The desk" in text
    assert "&lt;b&gt;crew&lt;/b&gt;" in page
    assert "<b>crew</b>" not in page
    assert "two\nlines" in page
    assert 'value="grant"' in page
    assert "<script" not in page
    assert "style=" not in page


@pytest.mark.usefixtures("unpinned")
def test_the_page_has_the_words_that_another_process_has_given_the_tool(ada):
    row = waiting_approval(ada)
    decide_elsewhere("gated", "found_group", title="Open a club", description="For members.")
    a_second_later()
    text = text_of(signed_in(ada).get(page_of(row)))
    assert "Approve Open a club?" in text
    assert "For members." in text


def test_who_is_not_signed_in_is_sent_to_the_login(ada):
    row = waiting_approval(ada)
    for address in (page_of(row), f"/gated/mcp/approvals/{NEVER}"):
        response = Client().get(address)
        assert response.status_code == 302
        assert response["Location"] == f"/accounts/login/?next={address}"
    assert Client().post(page_of(row), {"decision": "grant"}).status_code == 302
    assert waiting().state == "pending"


def test_the_page_of_another_user_is_not_there(ada):
    row = waiting_approval(ada)
    boss = decider(is_staff=True)
    for stranger in (person("grace"), boss, person("root", is_superuser=True, is_staff=True)):
        client = signed_in(stranger)
        assert client.get(page_of(row)).status_code == 404
        assert client.post(page_of(row), {"decision": "grant"}).status_code == 404
    assert waiting().state == "pending"


@pytest.mark.parametrize("code", [NEVER, "x", "a" * 32, "%00", "..", "a/b", "é"])
def test_a_code_that_was_made_up_leads_nowhere(code, ada):
    waiting_approval(ada)
    assert signed_in(ada).get(f"/gated/mcp/approvals/{code}").status_code == 404


def test_a_code_says_nothing_on_another_server(ada, settings):
    from mcp_django import mcp

    row = waiting_approval(ada)
    urls = ModuleType("urls")
    urls.urlpatterns = [path("mcp", mcp.urls)]
    settings.ROOT_URLCONF = urls
    assert signed_in(ada).get(f"/mcp/approvals/{row.code}").status_code == 404


def test_staff_decide_about_others_alone(ada):
    boss = decider()
    root = person("root", is_superuser=True)
    for caller in (boss, root, ada):
        row = waiting_approval(caller, "close_desk", desk=1)
        own = signed_in(caller)
        page = own.get(page_of(row))
        # Users may view their own call, and wait.
        assert page.status_code == 200
        assert "This call waits for approval by another user of this site." in text_of(page)
        assert b"<form" not in page.content
        assert own.post(page_of(row), {"decision": "grant"}).status_code == 404
        row.refresh_from_db()
        assert row.state == "pending"
    assert signed_in(person("grace", is_staff=True)).get(page_of(row)).status_code == 404
    assert decide(boss, row).status_code == 302
    row.refresh_from_db()
    assert (row.state, row.decided_by) == ("granted", "boss")


def test_who_was_switched_off_decides_nothing(ada):
    row = waiting_approval(ada)
    client = signed_in(ada)
    type(ada).objects.update(is_active=False)
    assert client.post(page_of(row), {"decision": "grant"}).status_code in (302, 404)
    assert waiting().state == "pending"


# How ------------------------------------------------------------------------------------------


def test_a_decision_is_written_down(ada):
    row = waiting_approval(ada)
    response = decide(ada, row, "refuse", reason="  Not now. ")
    assert (response.status_code, response["Location"]) == (302, page_of(row))
    row = waiting()
    assert (row.state, row.decided_by, row.reason) == ("refused", "ada", "Not now.")
    assert row.decided_at is not None
    log_entry = LogEntry.objects.get()
    assert (log_entry.user, log_entry.object_id, log_entry.change_message) == (
        ada,
        str(row.pk),
        "Rejected.",
    )
    shown = text_of(signed_in(ada).get(page_of(row)))
    assert "Rejected by ada. Nothing has happened." in shown
    assert "Not now." in shown


def test_who_decides_twice_is_told(ada):
    row = waiting_approval(ada)
    assert decide(ada, row).status_code == 302
    again = decide(ada, row, "refuse")
    assert again.status_code == 409
    assert "Nothing was changed" in text_of(again)
    assert waiting().state == "granted"
    assert LogEntry.objects.count() == 1


def test_after_its_time_there_is_nothing_to_decide(ada):
    row = waiting_approval(ada)
    Approval.objects.update(expires_at=Now() - timedelta(seconds=1))
    page = signed_in(ada).get(page_of(row))
    assert "The request for approval has expired." in text_of(page)
    assert b"<form" not in page.content
    assert decide(ada, row).status_code == 409
    assert waiting().state == "pending"


@pytest.mark.parametrize("form", [{}, {"decision": "maybe"}, {"decision": ""}])
def test_what_is_no_decision_decides_nothing(form, ada):
    row = waiting_approval(ada)
    assert signed_in(ada).post(page_of(row), form).status_code == 404
    assert waiting().state == "pending"


@pytest.mark.parametrize("verb", ["put", "delete", "patch"])
def test_nothing_but_a_post_decides(verb, ada):
    row = waiting_approval(ada)
    client = signed_in(ada)
    assert getattr(client, verb)(page_of(row)).status_code == 405
    client.get(page_of(row), {"decision": "grant"})
    assert waiting().state == "pending"


@pytest.mark.parametrize("has_middleware", [True, False])
def test_another_site_cannot_decide(has_middleware, ada, settings):
    if not has_middleware:
        settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "csrf" not in name.lower()]
    row = waiting_approval(ada)
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    refused = client.post(page_of(row), {"decision": "grant"})
    assert refused.status_code == 403
    assert refused["X-Frame-Options"] == "DENY"
    assert waiting().state == "pending"
    form = client.get(page_of(row)).content.decode()
    match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert match is not None
    sent = {"decision": "grant", "csrfmiddlewaretoken": match[1]}
    assert client.post(page_of(row), sent).status_code == 302
    assert waiting().state == "granted"


def test_under_debug_the_page_holds_its_style(ada, settings):
    settings.DEBUG = True
    response = signed_in(ada).get(page_of(waiting_approval(ada)))
    styles = re.findall(r"<style>(.*?)</style>", response.content.decode(), re.DOTALL)
    assert len(styles) == 2
    for style in styles:
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in response["Content-Security-Policy"]


def test_the_page_is_nobody_elses_to_frame_or_keep(ada):
    response = signed_in(ada).get(page_of(waiting_approval(ada)))
    policy = response["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response["X-Frame-Options"] == "DENY"
    assert response["Cache-Control"] == "no-store"
    assert response["Referrer-Policy"] == "same-origin"


def test_the_page_reads_from_right_to_left(ada):
    row = waiting_approval(ada)
    client = signed_in(ada)
    with translation.override("ar"), override_settings(LANGUAGE_CODE="ar"):
        page = client.get(page_of(row)).content.decode()
    assert '<html lang="ar" dir="rtl">' in page


def test_every_field_has_a_label_and_every_heading_a_scope(ada):
    page = signed_in(ada).get(page_of(waiting_approval(ada))).content.decode()
    inputs = re.findall(r'<input type="text" id="([^"]+)"', page)
    assert inputs == re.findall(r'<label for="([^"]+)"', page)
    assert all(
        "scope=" in heading for heading in re.findall(r"<th[^>]*>", page) if heading != "<thead>"
    )


def test_a_page_costs_few_queries(ada, django_assert_max_num_queries):
    row = waiting_approval(ada)
    client = signed_in(ada)
    # The session, the user, the approval, and whether the call is still possible.
    with django_assert_max_num_queries(5):
        client.get(page_of(row))


# Where ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mount", ["mcp", "mcp/", "", "<slug:tenant>/mcp"])
def test_the_page_is_below_every_mount(mount, ada, settings):
    inner = ModuleType("inner")
    inner.urlpatterns = [path(mount, gated.urls)]
    urls = ModuleType("urls")
    urls.urlpatterns = [path("desk/", include(inner))]
    settings.ROOT_URLCONF = urls
    row = waiting_approval(ada)
    below = mount.replace("<slug:tenant>", "acme").strip("/")
    address = f"/desk/{below}/approvals/{row.code}".replace("//", "/")
    assert signed_in(ada).get(address).status_code == 200
    # The caller gets the same URL.
    body = message("tools/call", {"name": "found_group", "arguments": {"name": "crew"}})
    token = token_for(ada)[1]
    endpoint = f"/desk/{mount.replace('<slug:tenant>', 'acme')}"
    text = post(endpoint, body, token=token).json()["result"]["content"][0]["text"]
    assert re.search(rf"http://testserver/desk/{below}/?approvals/[\w-]{{22}} and", text)


def test_the_site_may_be_without_the_admin(ada, settings):
    row = waiting_approval(ada)
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if app != "django.contrib.admin"
    ]
    urls = ModuleType("urls")
    urls.urlpatterns = [path("gated/mcp", gated.urls)]
    settings.ROOT_URLCONF = urls
    assert decide(ada, row).status_code == 302
    assert waiting().state == "granted"


def test_a_site_behind_login_middleware_has_the_page(ada, settings):
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE,
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
    ]
    row = waiting_approval(ada)
    assert decide(ada, row).status_code == 302
    response = Client().get(page_of(row))
    assert urlsplit(response["Location"]).path == "/accounts/login/"
