"""Access tokens in the admin: made and shown once, looked at without the secret, revoked."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.sessions.models import Session as Login
from django.utils import timezone

from mcp_django import admin_base
from mcp_django.models import AccessToken, AuthEvent, token_digest
from mcp_django.storage import revocations
from tests.admin.reading import has_inline_code, text_of
from tests.admin.staff import staff, superuser
from tests.overrides.site import a_second_later, decide_elsewhere

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/mcp_django/accesstoken/"
ADD = f"{LIST}add/"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


def person(name: str = "ada", **details: Any) -> Any:
    return get_user_model().objects.create_user(name, **details)


def issued(**details: Any) -> tuple[AccessToken, str]:
    user = details.pop("user", None) or person()
    return AccessToken.objects.issue(user, **{"name": "laptop", **details})


def form(**changes: Any) -> dict[str, Any]:
    return {"username": "ada", "name": "laptop", **changes}


def plaintext_of(response: Any) -> str:
    shown = re.findall(r">(mcp_[\w-]{20,})<", response.content.decode())
    assert len(shown) == 1
    return str(shown[0])


@pytest.mark.parametrize(
    ("permissions", "statuses"),
    [
        ((), [403, 403, 403, 403]),
        (("view_accesstoken",), [200, 200, 403, 403]),
        (("add_accesstoken",), [403, 403, 403, 200]),
        (("view_accesstoken", "delete_accesstoken"), [200, 200, 200, 403]),
        (("delete_accesstoken",), [403, 403, 403, 403]),
        # To Django, who may change may look.
    ],
)
def test_who_may_look_revoke_and_make(permissions, statuses):
    token, _ = issued()
    client = staff(*permissions)
    pages = [LIST, f"{LIST}{token.pk}/change/", f"{LIST}{token.pk}/revoke/", ADD]
    assert [client.get(page).status_code for page in pages] == statuses
    posted = client.post(pages[2])
    token.refresh_from_db()
    assert (token.revoked_at is not None) is (statuses[2] == 200)
    assert posted.status_code == (302 if statuses[2] == 200 else 403)
    assert client.post(ADD, form()).status_code == statuses[3]
    assert AccessToken.objects.count() == (2 if statuses[3] == 200 else 1)


def test_a_token_is_shown_once_and_kept_nowhere():
    person()
    client = superuser()
    day = (timezone.now() + timedelta(days=3)).strftime("%Y-%m-%d")
    data = form(
        scopes=["mcp"],
        servers=["default"],
        networks="192.0.2.0/24\n2001:db8::1",
        expires_at_0=day,
        expires_at_1="12:00",
    )
    response = client.post(ADD, data)
    plaintext, token = plaintext_of(response), AccessToken.objects.get()
    assert token.digest == token_digest(plaintext)
    assert (token.user.username, token.name, token.scopes) == ("ada", "laptop", ["mcp"])
    assert (token.servers, token.networks) == (["default"], ["192.0.2.0/24", "2001:db8::1/128"])
    assert f"{token.expires_at:%Y-%m-%d %H:%M}" == f"{day} 12:00"
    assert response.status_code == 200
    assert response["Cache-Control"].startswith("no-store, private")
    assert response["Referrer-Policy"] == "no-referrer"
    assert not has_inline_code(response)
    pages = [LIST, f"{LIST}{token.pk}/change/", f"{LIST}{token.pk}/history/", "/admin/", ADD]
    for page in pages:
        html = client.get(page).content.decode()
        assert plaintext not in html
        assert token.digest not in html
    texts = [
        *(json.dumps(row, default=str) for row in LogEntry.objects.values()),
        *(json.dumps(row, default=str) for row in AuthEvent.objects.values()),
        *(json.dumps(login.get_decoded()) for login in Login.objects.all()),
        *(repr(vars(row)) for row in AccessToken.objects.all()),
    ]
    assert not [text for text in texts if plaintext in text]
    assert LogEntry.objects.get().object_id == str(token.pk)
    event = AuthEvent.objects.get()
    assert (event.kind, event.user, event.details) == ("issue", token.user, {"by": "root"})


@pytest.mark.usefixtures("unpinned")
def test_a_scope_that_another_process_asks_for_can_be_given():
    person()
    client = superuser()
    given = form(scopes=["shelf:lend"])
    assert b"shelf:lend is not one of the available choices" in client.post(ADD, given).content
    decide_elsewhere("shelf", "look", scopes=["shelf:lend"])
    a_second_later()
    client.post(ADD, given)
    assert AccessToken.objects.get().scopes == ["shelf:lend"]


def test_the_token_works(settings):
    person(is_staff=True)
    bearer = plaintext_of(superuser().post(ADD, form()))
    settings.ROOT_URLCONF = "tests.sites.example.urls"
    from tests.kit.drivers import message
    from tests.kit.servers import post

    assert post("/mcp", message("tools/list"), token=bearer).status_code == 200
    AccessToken.objects.get().revoke()
    assert post("/mcp", message("tools/list"), token=bearer).status_code == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"username": "nobody"},
        {"username": ""},
        {"name": ""},
        {"name": "x" * 101},
        {"networks": "not an address"},
        {"scopes": ["unheard-of"]},
        {"servers": ["unheard-of"]},
        {"expires_at_0": "2001-01-01", "expires_at_1": "00:00"},
        {"expires_at_0": "someday", "expires_at_1": ""},
    ],
)
def test_a_wrong_form_makes_nothing(changes):
    person()
    response = superuser().post(ADD, form(**changes))
    assert response.status_code == 200
    assert response.context["errors"]
    assert not AccessToken.objects.exists()


def test_nobody_makes_a_token_for_who_may_more():
    permission = Permission.objects.get(codename="view_call")
    person("boss", is_superuser=True)
    person("gone", is_active=False)
    person("auditor").user_permissions.add(permission)
    person("ada")
    # What is for a group takes no permission.
    person("clerk").groups.add(Group.objects.create(name="clerks"))
    client = staff("add_accesstoken")
    refusals = set()
    for name in ("boss", "gone", "auditor", "clerk", "nobody"):
        response = client.post(ADD, form(username=name))
        refusals.add(str(response.context["errors"]))
    assert not AccessToken.objects.exists()
    # What exists and what does not is told in the same words.
    assert len(refusals) == 1
    for name in ("ada", "staff-add_accesstoken"):
        plaintext_of(client.post(ADD, form(username=name)))
    equal = staff("add_accesstoken", "view_call")
    plaintext_of(equal.post(ADD, form(username="auditor")))
    plaintext_of(superuser().post(ADD, form(username="boss")))
    assert AccessToken.objects.count() == 4


def test_the_list_masks_and_says_what_each_opens():
    ada = person()
    plain, secret = issued(user=ada, name="<i>plain", scopes=["mcp", "shop:read"])
    bound, _ = issued(user=ada, name="bound", servers=["shop"], networks=["192.0.2.0/24"])
    bound.revoke()
    issued(user=ada, name="old", expires=timezone.now() - timedelta(hours=1))
    issued(user=person("gone", is_active=False), name="idle")
    client = superuser()
    response = client.get(LIST)
    page = text_of(response)
    assert f"&lt;i&gt;plain active mcp_…{plain.hint} ada mcp shop:read all servers - " in page
    assert f"bound revoked mcp_…{bound.hint} ada no scopes shop - " in page
    assert "192.0.2.0/24" in text_of(client.get(f"{LIST}{bound.pk}/change/"))
    assert secret not in response.content.decode()

    def names(query: str) -> set[str]:
        return {row.name for row in client.get(f"{LIST}{query}").context["cl"].result_list}

    assert names("?state=active") == {"<i>plain"}
    assert names("?state=revoked") == {"bound"}
    assert names("?state=expired") == {"old"}
    assert names("?state=inactive") == {"idle"}
    assert names("?q=gone") == {"idle"}
    assert names(f"?q={plain.hint}") == set()
    states = {
        row.name: response.context["cl"].model_admin.state(row)
        for row in response.context["cl"].result_list
    }
    assert states == {
        "<i>plain": "active",
        "bound": "revoked",
        "old": "expired",
        "idle": "user inactive",
    }


def test_revoking_is_told_to_every_process_and_kept_in_the_history(monkeypatch):
    credentials: list[str] = []
    monkeypatch.setattr(revocations, "notify_revoked", lambda *names: credentials.extend(names))
    token, _ = issued()
    client = superuser()
    page = f"{LIST}{token.pk}/revoke/"
    assert "will be rejected" in text_of(client.get(page))
    assert credentials == []
    assert "Revoked." in text_of(client.post(page, follow=True))
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert credentials == [token.credential]
    assert LogEntry.objects.get().get_change_message() == "Revoked."
    event = AuthEvent.objects.get()
    assert (event.kind, event.client_id) == ("revoke", f"token:{token.pk}")
    assert "This has already ended." in text_of(client.get(page))


def test_several_are_revoked_at_once():
    ada = person()
    first, second, over = (issued(user=ada)[0] for _ in range(3))
    over.revoke()
    chosen = {"action": "revoke", "post": "yes", "_selected_action": [first.pk, second.pk, over.pk]}
    client = staff("view_accesstoken", "delete_accesstoken")
    assert "2 tokens were revoked." in text_of(client.post(LIST, chosen, follow=True))
    assert not AccessToken.objects.filter(revoked_at=None).exists()
    assert LogEntry.objects.count() == 2


def test_a_new_token_expires_in_90_days_unless_its_maker_says_otherwise():
    form = superuser().get(f"{LIST}add/").context["adminform"].form
    left = form["expires_at"].value() - timezone.now()
    assert timedelta(days=89, hours=22) < left <= timedelta(days=90)


def test_an_action_asks_and_says_what_will_stop():
    ada = person()
    first, second = (issued(user=ada)[0] for _ in range(2))
    chosen = {"action": "revoke", "_selected_action": [first.pk, second.pk]}
    client = staff("view_accesstoken", "delete_accesstoken")
    page = client.post(LIST, chosen)
    html = page.content.decode()
    assert "its open streams end in every process within seconds" in text_of(page)
    for token in (first, second):
        assert f'name="_selected_action" value="{token.pk}"' in html
    assert "Revoke selected tokens" in html
    assert AccessToken.objects.filter(revoked_at=None).count() == 2
    # Nothing is ended that was not on the page.
    everything = client.post(LIST, {**chosen, "select_across": "1", "index": "0"})
    assert "select_across" not in everything.content.decode()
    assert not LogEntry.objects.exists()
    first.revoke()
    second.revoke()
    over = client.post(LIST, {**chosen, "post": "yes"}, follow=True)
    assert "This has already ended." in text_of(over)


def test_more_are_not_ended_at_once_than_a_form_can_have(monkeypatch):
    monkeypatch.setattr(admin_base, "MAX_CONFIRMED", 1)
    ada = person()
    tokens = [issued(user=ada)[0].pk for _ in range(2)]
    client = superuser()
    response = client.post(LIST, {"action": "revoke", "_selected_action": tokens}, follow=True)
    assert "Select at most 1 rows." in text_of(response)


def test_who_may_look_only_is_offered_no_action():
    token, _ = issued()
    client = staff("view_accesstoken")
    assert f"{token.pk}/revoke/" not in client.get(f"{LIST}{token.pk}/change/").content.decode()
    client.post(LIST, {"action": "revoke", "post": "yes", "_selected_action": [token.pk]})
    token.refresh_from_db()
    assert token.revoked_at is None


def test_nobody_edits_or_deletes_one():
    token, _ = issued()
    client = superuser()
    assert client.post(f"{LIST}{token.pk}/change/", {"name": "x"}).status_code == 403
    assert client.post(f"{LIST}{token.pk}/delete/", {"post": "yes"}).status_code == 403
    client.post(LIST, {"action": "delete_selected", "_selected_action": [token.pk], "post": "y"})
    assert AccessToken.objects.get().name == "laptop"


def test_a_user_with_a_token_can_be_deleted():
    token, _ = issued()
    superuser().post(f"/admin/auth/user/{token.user.pk}/delete/", {"post": "yes"})
    assert not AccessToken.objects.exists()


def test_the_list_costs_the_same_for_one_and_for_many(django_assert_max_num_queries):
    for number in range(12):
        issued(user=person(f"user-{number}"))
    client = superuser()
    with django_assert_max_num_queries(7):
        assert client.get(LIST).status_code == 200


@pytest.mark.parametrize("address", [LIST, ADD, f"{LIST}{{}}/change/", f"{LIST}{{}}/revoke/"])
def test_no_page_has_anything_inline_and_each_asks_for_a_login(client, address):
    token, _ = issued()
    assert client.get(address.format(token.pk)).status_code == 302
    assert not has_inline_code(superuser().get(address.format(token.pk)))


def test_a_page_that_is_loaded_again_makes_no_second_token():
    person()
    client = superuser()
    once = re.findall(r'name="once" value="([^"]+)"', client.get(ADD).content.decode())
    assert len(once) == 1
    plaintext_of(client.post(ADD, form(once=once[0])))
    again = client.post(ADD, form(once=once[0]), follow=True)
    assert "mcp_" not in again.content.decode().partition("its token was created")[0][-200:]
    assert "its token was created and shown once" in again.content.decode()
    assert AccessToken.objects.count() == 1
    # Another form makes another one, and one with a mistake in it is not used up.
    (other,) = re.findall(r'name="once" value="([^"]+)"', client.get(ADD).content.decode())
    assert client.post(ADD, form(once=other, username="nobody")).status_code == 200
    plaintext_of(client.post(ADD, form(once=other)))
    assert AccessToken.objects.count() == 2
