"""Calls that require an approval: the messages to the model, and what an approval permits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core import mail
from django.db.models.functions import Now
from django.utils import timezone

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import Principal, key_of, principal_for
from mcp_django.components.tool import Tool
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.execution import approval_guard, approval_guard as shown, invoke
from mcp_django.execution.approval_guard import mail_approvers
from mcp_django.execution.call import Call
from mcp_django.models import Approval
from mcp_django.protocol.revisions import LATEST
from mcp_django.schema.secrets import PERSON
from mcp_django.signals import approval_decided, approval_requested
from mcp_django.storage import approval_rows
from mcp_django.storage.cleanup import delete_expired
from mcp_django.test import ACCEPT, DECLINE, CallResult, ErrorResponse, MCPClient
from mcp_django.transports.memory import LocalClient
from tests.execution.approval_site import (
    URLS,
    GroupMCP,
    decide,
    decider,
    gated,
    narrow,
    page_of,
    signed_in,
    waiting,
)
from tests.kit.drivers import message
from tests.kit.servers import open_to_all, person

pytestmark = pytest.mark.django_db
BASE = "https://desk.example"
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]
NEWER = ["2025-11-25", "2026-07-28"]
FOUND = {"name": "crew"}


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = URLS
    settings.MCP_DJANGO = {"BASE_URL": BASE}


@pytest.fixture
def ada():
    return person("ada")


def client_for(user: Any, version: str = "2025-06-18", **options: Any) -> MCPClient:
    return MCPClient(server=gated, user=user, protocol_version=version, **options)


def client_of(caller: Principal) -> LocalClient:
    return LocalClient(gated, caller, revision=LATEST, client_info={"name": "test"})


def call(user: Any, tool: str = "found_group", **arguments: Any) -> CallResult:
    """Call a tool with a client that cannot open URLs."""
    return client_for(user).call_tool(tool, arguments or FOUND, check=False)


def is_waiting(result: CallResult) -> bool:
    return result.is_error and result.text.startswith("Nothing was done yet")


def age(row: Approval) -> None:
    """Let an approval expire."""
    Approval.objects.filter(pk=row.pk).update(expires_at=Now() - timedelta(seconds=1))


# In band --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["found_group", "found_group_later"])
@pytest.mark.parametrize("version", [*OLDER, "2025-11-25", "2026-07-28"])
def test_a_client_that_opens_no_pages_is_told_where_the_page_is(version, tool, ada):
    client = client_for(ada, version, capabilities={})
    result = client.call_tool(tool, FOUND, check=False)
    row = waiting()
    assert result.is_error
    assert result.text == (
        f"Nothing was done yet: this call of {tool} waits for approval by the user. Ask the user "
        f"to open {BASE}{page_of(row)} and decide there, and then call again with the same "
        "arguments."
    )
    # A second call adds no second approval.
    assert is_waiting(client.call_tool(tool, FOUND, check=False))
    assert waiting() == row
    assert not Group.objects.exists()
    assert decide(ada, row).status_code == 302
    assert client.call_tool(tool, FOUND).text == "Founded crew."
    assert Group.objects.get().name == "crew"
    row.refresh_from_db()
    assert (row.state, row.decided_by) == ("used", "ada")


def test_a_yes_is_good_for_one_call(ada):
    call(ada)
    decide(ada, waiting())
    assert not call(ada).is_error
    assert is_waiting(call(ada))
    assert Group.objects.count() == 1
    assert sorted(Approval.objects.values_list("state", flat=True)) == ["pending", "used"]


def test_a_yes_is_good_for_the_arguments_that_were_shown(ada):
    call(ada)
    decide(ada, waiting())
    assert is_waiting(call(ada, name="crew", note="x"))
    assert is_waiting(call(ada, name="Crew"))
    # The order of the arguments does not matter.
    call(ada, name="other", note="b")
    decide(ada, Approval.objects.get(arguments={"name": "other", "note": "b"}))
    assert not call(ada, note="b", name="other").is_error
    assert not call(ada).is_error


def test_a_yes_is_good_for_whom_it_was_given(ada):
    call(ada)
    decide(ada, waiting())
    assert is_waiting(call(person("grace")))
    key = principal_for(ada).key
    another_client = principal_for(ada, key=f"{key}@phone", client_id="phone")
    body = message("tools/call", {"name": "found_group", "arguments": FOUND})
    answer = client_of(another_client).send(body)
    assert answer["result"]["isError"]
    assert not Group.objects.exists()


def test_a_yes_is_good_for_its_tool_and_its_kind_of_person(ada):
    narrow("found_group_later", "caller")
    call(ada)
    decide(ada, waiting())
    assert is_waiting(call(ada, "found_group_later", **FOUND))
    # The site owner now requires another user to decide.
    narrow("found_group", "staff")
    assert "another user" in call(ada).text


def test_a_no_is_told_with_its_reason_and_holds(ada):
    call(ada)
    decide(ada, waiting(), "refuse", reason="Too many groups.")
    expected = (
        "Nothing was done: this call of found_group was not approved. The reason given: "
        "Too many groups."
    )
    assert [call(ada).text, call(ada).text] == [expected, expected]
    age(waiting())
    assert is_waiting(call(ada))


def test_nobody_waits_longer_than_the_site_lets_him(ada, settings):
    call(ada)
    first = waiting()
    age(first)
    assert decide(ada, first).status_code == 409
    assert is_waiting(call(ada))
    second = Approval.objects.exclude(pk=first.pk).get()
    assert second.code != first.code
    decide(ada, second)
    age(second)
    assert is_waiting(call(ada))
    assert not Group.objects.exists()


def test_the_time_of_a_yes_begins_with_it(ada, settings):
    call(ada)
    settings.MCP_DJANGO = {"BASE_URL": BASE, "APPROVAL_SECONDS": 90_000}
    decide(ada, waiting())
    assert waiting().expires_at > timezone.now() + timedelta(seconds=80_000)


def test_a_call_that_fails_has_used_its_yes(ada):
    call(ada, "fail", name="x")
    decide(ada, waiting())
    assert call(ada, "fail", name="x").text == "No x."
    assert waiting().state == "used"
    assert is_waiting(call(ada, "fail", name="x"))


def test_wrong_arguments_wait_for_nobody(ada):
    assert "name" in call(ada, "found_group", nothing=1).text
    assert not Approval.objects.exists()


def test_an_argument_that_is_named_twice_is_shown_to_nobody(ada):
    """Parsers differ in which of the two they use, so the page might show another value."""
    request = message("tools/call", {"name": "found_group", "arguments": {"name": "X"}})
    opened = client_of(principal_for(ada)).open(request)
    assert isinstance(opened, Call)
    assert isinstance(opened.component, Tool)
    raw = b'{"name": "a", "name": "b"}'
    gate = approval_guard.ApprovalGuard(opened.component, raw)
    result = invoke.run(replace(opened, approval_guard=gate))
    assert result["content"][0]["text"] == "An argument is named twice; name each once."
    assert not Approval.objects.exists()


def test_more_than_a_person_can_read_is_refused(ada):
    result = call(ada, name="crew", note="x" * shown.MAX_BYTES)
    assert "A person has to approve this call" in result.text
    assert not Approval.objects.exists()


def test_a_caller_keeps_a_bounded_number_of_calls_waiting(ada, monkeypatch):
    monkeypatch.setattr(approval_guard, "MAX_WAITING", 2)
    for n in range(4):
        last = call(ada, name=f"group {n}")
    assert Approval.objects.count() == 2
    assert last.text == "2 calls wait for approval already; wait until those are decided."
    assert is_waiting(call(person("grace")))


def test_nobody_approves_for_somebody_who_is_nobody():
    server = MCPServer("free", permission=AllowAny)
    server.tool("go", approval="staff")(lambda: "went")
    with pytest.raises(AuthenticationRequired):
        MCPClient(server=server).call_tool("go")
    assert not Approval.objects.exists()


def test_of_two_calls_at_once_one_gets_the_yes(ada, monkeypatch):
    call(ada)
    decide(ada, waiting())
    use, seen = approval_rows.use_approval, []

    def late(row: Approval) -> bool:
        """Run another call between the lookup of the approval and its use."""
        monkeypatch.setattr(approval_rows, "use_approval", use)
        seen.append(call(ada))
        return use(row)

    monkeypatch.setattr(approval_rows, "use_approval", late)
    second = call(ada)
    assert not seen[0].is_error
    assert is_waiting(second)
    assert Group.objects.count() == 1


def test_whoever_may_not_any_more_is_refused_in_spite_of_a_yes(ada):
    server = MCPServer("rights")

    @server.tool(approval="caller", permission="auth.add_group")
    def add() -> str:
        return "added"

    add_group = Permission.objects.get(codename="add_group")
    ada.user_permissions.add(add_group)
    client = MCPClient(server=server, user=type(ada).objects.get(pk=ada.pk))
    assert client.call_tool("add", check=False).is_error
    Approval.objects.update(state="granted")
    ada.user_permissions.remove(add_group)
    with pytest.raises(ErrorResponse, match="No tool named"):
        MCPClient(server=server, user=type(ada).objects.get(pk=ada.pk)).call_tool("add")
    assert waiting().state == "granted"


# Pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["found_group", "found_group_later"])
@pytest.mark.parametrize("version", NEWER)
def test_a_client_that_opens_pages_is_asked_to(version, tool, ada):
    question = client_for(ada, version).call_tool(tool, FOUND).questions[0]
    row = waiting()
    assert question["method"] == "elicitation/create"
    params = question["params"]
    assert params["mode"] == "url"
    assert params["url"] == f"{BASE}{page_of(row)}"
    # The user opened the page but has not decided: the model is told, and is not asked again.
    result = client_for(ada, version).call_tool(tool, FOUND, answers=[ACCEPT], check=False)
    assert is_waiting(result)
    decide(ada, row)
    assert client_for(ada, version).call_tool(tool, FOUND).text == "Founded crew."


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize("verdict", ["grant", "refuse"])
def test_the_call_goes_on_once_the_page_was_answered(version, verdict, ada, monkeypatch):
    client = client_for(ada, version)
    read = approval_guard.ApprovalPageQuestion.read_answer

    def after_the_page(self: Any, answer: Any) -> None:
        decide(ada, waiting(), verdict)
        read(self, answer)

    monkeypatch.setattr(approval_guard.ApprovalPageQuestion, "read_answer", after_the_page)
    result = client.call_tool("found_group", FOUND, answers=[ACCEPT], check=False)
    if verdict == "grant":
        assert result.text == "Founded crew."
    else:
        assert result.text == "Nothing was done: this call of found_group was not approved."
    assert Group.objects.exists() is (verdict == "grant")


@pytest.mark.parametrize("version", NEWER)
def test_who_does_not_want_to_go_there_approves_nothing(version, ada):
    result = client_for(ada, version).call_tool(
        "found_group", FOUND, answers=[DECLINE], check=False
    )
    assert result.is_error
    assert "declined" in result.text
    assert waiting().state == "pending"


@pytest.mark.parametrize("version", NEWER)
def test_a_tool_that_asks_keeps_its_yes_until_it_has_run(version, ada):
    client_for(ada, version).call_tool("ask_first", FOUND)
    decide(ada, waiting())
    client = client_for(ada, version)
    assert client.call_tool("ask_first", FOUND).questions
    # The question was sent, nothing was done, and the approval remains for the next round.
    assert waiting().state == "granted"
    assert client.call_tool("ask_first", FOUND, answers=["red"]).text == "Founded red crew."
    assert waiting().state == "used"


def test_a_round_that_is_played_again_needs_a_yes_of_its_own(ada):
    client = client_for(ada, "2026-07-28")
    client.call_tool("ask_first", FOUND)
    decide(ada, waiting())
    params = {"name": "ask_first", "arguments": FOUND}
    result = client.request("tools/call", params)
    (key,) = result["inputRequests"]
    content = {"action": "accept", "content": {"value": "red"}}
    retry = {
        **params,
        "requestState": result["requestState"],
        "inputResponses": {key: content},
    }
    assert "Founded" in client.request("tools/call", retry)["content"][0]["text"]
    again = client.request("tools/call", retry)
    assert again["resultType"] == "input_required"
    assert Group.objects.count() == 1


@pytest.mark.parametrize("base", ["", "http://desk.example"])
def test_where_nobody_may_be_sent_the_text_says_it(base, ada, settings):
    settings.MCP_DJANGO = {"BASE_URL": base}
    result = client_for(ada, "2026-07-28").call_tool("found_group", FOUND, check=False)
    assert is_waiting(result)
    assert f"{base}{page_of(waiting())}" in result.text


def test_a_server_without_a_page_says_so_much(ada):
    server = open_to_all()
    server.tool("go", approval="caller")(lambda: "went")
    server.tool("come", approval="staff")(lambda: "came")
    client = MCPClient(server=server, user=ada)
    assert (
        "Ask the user to open this site and decide there"
        in client.call_tool("go", check=False).text
    )
    assert (
        "waits for approval by another user of this site."
        in client.call_tool("come", check=False).text
    )


# Staff ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [*OLDER, *NEWER])
def test_a_call_that_somebody_else_decides_keeps_no_connection_waiting(version, ada):
    client = client_for(ada, version)
    result = client.call_tool("close_desk", {"desk": 3}, check=False)
    row = waiting()
    assert result.text == (
        "Nothing was done yet: this call of close_desk waits for approval by another user of "
        f"this site, at {BASE}{page_of(row)}. Tell the user; once it is approved, call again with "
        "the same arguments."
    )
    assert decide(decider(), row).status_code == 302
    assert client.call_tool("close_desk", {"desk": 3}).text == '{"desk":3}'


def test_the_owner_may_let_a_tool_wait_and_never_let_it_go(ada):
    narrow("close_desk", "caller")
    assert "another user" in call(ada, "close_desk", desk=3).text
    assert waiting().by == "staff"


# What is kept ---------------------------------------------------------------------------------


def test_secrets_in_a_list_are_kept_nowhere(ada):
    call(ada, "close_desk", desk=3, codes=["hunter2"])
    assert waiting().arguments == {"desk": 3, "codes": ["[hidden]"]}


def test_secrets_are_kept_nowhere_and_count_all_the_same(ada):
    call(ada, "close_desk", desk=3, reason="my reason", password="hunter2")
    row = waiting()
    assert row.arguments == {"desk": 3, "reason": "[hidden]", "password": "[hidden]"}
    boss = decider()
    page = signed_in(boss).get(page_of(row)).content.decode()
    assert "hunter2" not in page
    assert "my reason" not in page
    decide(boss, row)
    other = call(ada, "close_desk", desk=3, reason="my reason", password="hunter3")
    assert is_waiting(other)
    result = call(ada, "close_desk", desk=3, reason="my reason", password="hunter2")
    assert not result.is_error


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("a\u202eb", "a\\u{202e}b"),
        ("a\u200bb", "a\\u{200b}b"),
        ("a\x00b", "a\\u{0}b"),
        ("a\u2028b", "a\\u{2028}b"),
        ("two\nlines\tand \u0633", "two\nlines\tand \u0633"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    ],
)
def test_what_cannot_be_seen_is_written_out(sent, seen, ada):
    call(ada, name=sent)
    assert waiting().arguments == {"name": seen}


@pytest.mark.parametrize(
    ("written", "seen"),
    [("1", 1), ("1.50", "1.50"), ("12345678901234567890", "12345678901234567890"), ("1e2", "1E+2")],
)
def test_a_number_keeps_its_digits(written, seen):
    tool = gated.tools["found_group"]
    read = shown.parse_arguments(b'{"n": %b}' % written.encode())
    assert tool.mask(read, limits=PERSON) == {"n": seen}
    other = shown.parse_arguments(b'{"n": %b0}' % written.encode())
    assert shown.approval_digest("s", "t", read) != shown.approval_digest("s", "t", other)


@pytest.mark.parametrize(
    ("left", "right"), [(b"[]", b"{}"), (b"[[]]", b"[{}]"), (b'["a"]', b'"a"'), (b"1", b'"1"')]
)
def test_arguments_of_different_types_have_different_digests(left, right):
    first, second = (shown.parse_arguments(b'{"n": %b}' % value) for value in (left, right))
    assert shown.approval_digest("s", "t", first) != shown.approval_digest("s", "t", second)


def test_the_client_is_shown_as_it_calls_itself(ada):
    call(ada)
    assert waiting().client
    assert waiting().user_name == "ada"


# Previews -------------------------------------------------------------------------------------


def test_what_a_write_would_change_is_shown_and_not_done(ada):
    ada.is_superuser = True
    ada.save()
    group = Group.objects.create(name="night")
    narrow("update_group", "staff")
    arguments = {"id": group.pk, "name": "day"}
    # A preview needs no approval.
    preview = call(ada, "update_group", **arguments, preview=True)
    assert preview.structured["changes"] == {"name": {"from": "night", "to": "day"}}
    assert not Approval.objects.exists()
    assert is_waiting(call(ada, "update_group", **arguments))
    row = waiting()
    assert row.preview == {
        "preview": True,
        "changes": {"name": {"from": "night", "to": "day"}},
    }
    group.refresh_from_db()
    assert group.name == "night"
    boss = decider()
    page = signed_in(boss).get(page_of(row)).content.decode()
    assert "night" in page
    assert "day" in page
    decide(boss, row)
    assert not call(ada, "update_group", **arguments).is_error
    group.refresh_from_db()
    assert group.name == "day"


def test_a_preview_that_changes_its_user_in_memory_does_not_change_who_waits(ada, monkeypatch):
    ada.is_superuser = True
    ada.save()
    group = Group.objects.create(name="night")
    narrow("update_group", "staff")

    def perform_update(self, ctx, form):
        ctx.user.username = "boss"
        ctx.user.pk = None
        return form.save()

    monkeypatch.setattr(GroupMCP, "perform_update", perform_update)
    key = key_of(ada)
    call(ada, "update_group", id=group.pk, name="day")
    row = Approval.objects.get()
    assert (row.user_key, row.user_name) == (key, "ada")


def test_a_write_that_would_fail_waits_for_nobody(ada):
    ada.is_superuser = True
    ada.save()
    Group.objects.create(name="night")
    narrow("create_group", "staff")
    result = call(ada, "create_group", name="night")
    assert result.is_error
    assert "is already taken" in result.text
    assert not Approval.objects.exists()


def test_a_preview_that_fills_pages_is_left_out(monkeypatch):
    monkeypatch.setattr(shown, "MAX_PREVIEW_BYTES", 20)
    tool = gated.tools["found_group"]
    assert shown.stored_preview(tool, {"structuredContent": {"a": 1}}) == {"a": 1}
    assert shown.stored_preview(tool, {"structuredContent": {"a": "x" * 20}}) == {"too_large": True}
    assert shown.stored_preview(tool, {"content": [{"type": "text", "text": "hi"}]}) == "hi"


# Signals and time -----------------------------------------------------------------------------


@pytest.fixture
def heard():
    """The signals that were sent."""
    events: list[Any] = []

    def requested(sender: Any, *, approval: Any, url: str, **kwargs: Any) -> None:
        events.append(("asked", approval.pk, url))

    def decided(sender: Any, *, approval: Any, user: Any, **kwargs: Any) -> None:
        events.append((approval.state, approval.pk, user.get_username()))

    def failing(**kwargs: Any) -> None:
        raise ValueError

    connected = [(approval_requested, requested), (approval_decided, decided)]
    connected += [(approval_requested, failing), (approval_decided, failing)]
    for signal, receiver in connected:
        signal.connect(receiver)
    yield events
    for signal, receiver in connected:
        signal.disconnect(receiver)


def test_who_wants_to_know_is_told_once(ada, heard):
    call(ada)
    call(ada)
    row = waiting()
    decide(ada, row)
    decide(ada, row)
    assert heard == [("asked", row.pk, f"{BASE}{page_of(row)}"), ("granted", row.pk, "ada")]


def test_a_mail_goes_to_whoever_may_decide(ada):
    decider("boss", email="boss@desk.example")
    decider("silent")
    decider("gone", email="gone@desk.example", is_active=False)
    person("root", email="root@desk.example", is_superuser=True)
    person("other", email="other@desk.example")
    caller = decider("grace", email="grace@desk.example")
    approval_requested.connect(mail_approvers)
    try:
        call(caller, "close_desk", desk=3)
        row = waiting()
        call(ada)
    finally:
        approval_requested.disconnect(mail_approvers)
    (sent,) = mail.outbox
    assert sorted(sent.bcc) == ["boss@desk.example", "root@desk.example"]
    assert (sent.to, sent.subject) == ([], "close_desk waits for approval")
    assert f"{BASE}{page_of(row)}" in sent.body


def test_old_ones_are_swept_up(ada, settings):
    settings.MCP_DJANGO = {"RETENTION": {"approvals": 60}}
    call(ada)
    call(ada, name="other")
    Approval.objects.filter(arguments=FOUND).update(expires_at=Now() - timedelta(seconds=61))
    delete_expired()
    assert waiting().arguments == {"name": "other"}
