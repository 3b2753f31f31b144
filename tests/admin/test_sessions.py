"""Sessions in the admin: who may look, what there is to see, and how one is terminated."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mcp_django.models import Session, Stream, Subscription
from mcp_django.storage import sessions
from mcp_django.storage.databases import rows, seconds_ago, seconds_from_now
from tests.admin.reading import has_inline_code, text_of
from tests.admin.staff import staff, superuser
from tests.spec import spec

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/mcp_django/session/"
POSSIBLE = (LIST, f"{LIST}{{}}/change/", f"{LIST}{{}}/terminate/")


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


def opened(server: str = "shop", **changes: Any) -> Session:
    """A session of a client."""
    values: dict[str, Any] = {
        "user_pk": None,
        "protocol_version": "2025-11-25",
        "client_info": {"name": "Robin <b>", "version": "7"},
        "capabilities": {"elicitation": {}},
        **changes,
    }
    return sessions.open_session(server, values.pop("principal", "anonymous"), **values)[0]


def stream(session: Session, number: int, **changes: Any) -> Stream:
    """A stream of a session."""
    return Stream.objects.create(id=number, session=session, kind="post", owner=1, **changes)


def terminate(client: Client, *chosen: Session) -> Any:
    data = {
        "action": "terminate",
        "post": "yes",
        "_selected_action": [session.pk for session in chosen],
    }
    return client.post(LIST, data)


def is_live(session: Session) -> bool:
    return rows(Session).filter(pk=session.pk, expires_at__gt=seconds_ago(0)).exists()


@pytest.mark.parametrize(
    ("permissions", "statuses"),
    [
        ((), [403, 403, 403]),
        (("view_session",), [200, 200, 403]),
        (("delete_session",), [403, 403, 403]),
        (("view_call", "view_accesstoken"), [403, 403, 403]),
        (("view_session", "delete_session"), [200, 200, 200]),
    ],
)
def test_who_may_look_and_who_may_terminate(permissions, statuses):
    session, client = opened(), staff(*permissions)
    assert [client.get(page.format(session.pk)).status_code for page in POSSIBLE] == statuses
    may = statuses[2] == 200
    assert client.post(POSSIBLE[2].format(session.pk)).status_code == (302 if may else 403)
    assert is_live(session) is not may


def test_nobody_adds_edits_or_deletes_one():
    session, client = opened(), superuser()
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{session.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(f"{LIST}{session.pk}/change/", {"server": "other"}).status_code == 403
    client.post(LIST, {"action": "delete_selected", "_selected_action": [session.pk], "post": "y"})
    session.refresh_from_db()
    assert session.server == "shop"
    page = client.get(f"{LIST}{session.pk}/change/").content.decode()
    assert "deletelink" not in page
    assert session.digest not in page


def test_the_list_says_who_has_what_open():
    ada = get_user_model().objects.create_user("ada")
    session = opened(user_pk=ada.pk, principal="user:1@token:3")
    stream(session, 1)
    stream(session, 2)
    stream(session, 3, state="done")
    Subscription.objects.create(session=session, uri="shop://clock", digest="c")
    opened("shop/sse", protocol_version="2024-11-05", client_info={})
    client = superuser()
    response = client.get(LIST)
    page = text_of(response)
    assert "Robin &lt;b&gt; 7 ada shop 2025-11-25 2 1 " in page
    assert "unknown - shop 2024-11-05 0 0 " in page
    assert "subscriptions/listen" in page
    listed = next(row for row in response.context["cl"].result_list if row.pk == session.pk)
    assert (listed.subscription_count, listed.stream_count, listed.is_live) == (1, 2, True)
    assert "ada" not in text_of(client.get(f"{LIST}?q=bob")).partition("Filter")[0].split()
    detail = text_of(client.get(f"{LIST}{session.pk}/change/"))
    assert "Transport: Streamable HTTP" in detail
    assert "shop://clock" in detail
    assert detail.count("response to a request") == 3
    assert "elicitation" in detail


@spec("EXT-5")
def test_what_is_deprecated_is_marked():
    client = superuser()
    old = opened("shop/sse", capabilities={"sampling": {}, "roots": {}, "elicitation": {}})
    page = text_of(client.get(f"{LIST}{old.pk}/change/"))
    assert "HTTP+SSE (deprecated)" in page
    assert "Deprecated by revision 2026-07-28, but still supported: roots, sampling" in page
    new = opened(capabilities={"elicitation": {}})
    assert "eprecated" not in text_of(client.get(f"{LIST}{new.pk}/change/"))


def test_a_session_without_anything_open_says_so():
    page = text_of(superuser().get(f"{LIST}{opened().pk}/change/"))
    assert "Streams: none" in page
    assert "Subscriptions: none" in page


def test_long_lists_of_one_session_are_cut():
    session = opened()
    Subscription.objects.bulk_create(
        Subscription(session=session, uri=f"shop://{n}", digest=str(n)) for n in range(150)
    )
    page = text_of(superuser().get(f"{LIST}{session.pk}/change/"))
    assert "shop://99 " in page
    assert "shop://100 " not in page
    assert "and more" in page


def test_what_a_client_says_of_itself_fills_no_page():
    session, client = opened(capabilities={"x": "y" * 100_000}), superuser()
    for page in POSSIBLE[:2]:
        html = client.get(page.format(session.pk)).content.decode()
        assert "y" * 20_000 not in html
    with CaptureQueriesContext(connection) as queries:
        client.get(LIST)
    assert not any('"capabilities"' in query["sql"] for query in queries)


def test_terminating_ends_it_with_a_line_in_its_history():
    session, client = opened(), superuser()
    question = client.get(f"{LIST}{session.pk}/terminate/")
    assert "starts a new session" in text_of(question)
    assert is_live(session)
    answer = client.post(f"{LIST}{session.pk}/terminate/", follow=True)
    assert "Terminated." in text_of(answer)
    assert not is_live(session)
    log_entry = LogEntry.objects.get()
    assert (log_entry.object_id, log_entry.get_change_message()) == (str(session.pk), "Terminated.")
    again = client.get(f"{LIST}{session.pk}/terminate/")
    assert "This has already ended." in text_of(again)
    client.post(f"{LIST}{session.pk}/terminate/")
    assert LogEntry.objects.count() == 1


def test_several_are_terminated_at_once_and_those_that_are_over_are_left_alone():
    first, second, over = opened(), opened(), opened()
    sessions.end_sessions([over.pk])
    client = superuser()
    assert "2 sessions were terminated." in text_of(
        client.post(
            LIST,
            {
                "action": "terminate",
                "post": "yes",
                "_selected_action": [first.pk, second.pk, over.pk],
            },
            follow=True,
        )
    )
    assert not is_live(first)
    assert not is_live(second)
    assert LogEntry.objects.count() == 2


def test_the_action_is_offered_to_nobody_who_may_only_look():
    session, client = opened(), staff("view_session")
    assert "terminate" not in client.get(LIST).content.decode()
    terminate(client, session)
    assert is_live(session)
    assert "terminate" not in client.get(f"{LIST}{session.pk}/change/").content.decode()


def test_a_session_that_is_gone_is_no_error():
    client = superuser()
    assert client.get(f"{LIST}99/terminate/").status_code == 302
    assert client.post(f"{LIST}99/terminate/").status_code == 302
    assert client.get(f"{LIST}nothing/change/").status_code == 302


def test_the_states_are_told_apart():
    live, silent, over = opened(), opened(), opened()
    rows(Session).filter(pk=silent.pk).update(
        seen_at=seconds_ago(10**6), expires_at=seconds_from_now(10**6)
    )
    sessions.end_sessions([over.pk])
    client = superuser()

    def keys(query: str) -> set[int]:
        return {row.pk for row in client.get(f"{LIST}{query}").context["cl"].result_list}

    assert keys("?state=live") == {live.pk}
    assert keys("?state=over") == {silent.pk, over.pk}
    assert keys("") == {live.pk, silent.pk, over.pk}


def test_the_list_costs_the_same_for_one_and_for_many(django_assert_max_num_queries):
    client = superuser()
    for number in range(12):
        user = get_user_model().objects.create_user(f"user-{number}")
        session = opened(user_pk=user.pk, principal=f"user:{number}")
        stream(session, number)
    with django_assert_max_num_queries(8):
        assert client.get(LIST).status_code == 200


def test_a_user_with_a_session_can_be_deleted():
    ada = get_user_model().objects.create_user("ada")
    stream(opened(user_pk=ada.pk), 1)
    superuser().post(f"/admin/auth/user/{ada.pk}/delete/", {"post": "yes"})
    assert not get_user_model().objects.filter(username="ada").exists()


@pytest.mark.parametrize("address", POSSIBLE)
def test_no_page_has_anything_inline(address):
    assert not has_inline_code(superuser().get(address.format(opened().pk)))


@pytest.mark.parametrize("address", POSSIBLE)
def test_the_pages_ask_for_a_login(client, address):
    response = client.get(address.format(opened().pk))
    assert (response.status_code, "/login/" in response["Location"]) == (302, True)
