"""The toolkit's models in the admin: they let no staff act as users with more permissions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from mcp_django.oauth.models import ClientProfile
from tests.oauth.exchanges import call, make_code
from tests.oauth.parties import make_token, make_user
from tests.oauth.test_clients_machines import ask, make_machine

pytestmark = pytest.mark.django_db
ADMIN = "/admin/oauth2_provider/"
SECRET = "a-secret-that-the-clerk-knows"


@pytest.fixture
def clerk(client):
    """A staff user without permissions, logged in."""
    user = make_user("clerk", is_staff=True)
    client.force_login(user)
    return user


@pytest.fixture
def boss():
    """A superuser."""
    return make_user("boss", is_staff=True, is_superuser=True)


def allow(user: Any, *codenames: str) -> None:
    permissions = Permission.objects.filter(content_type__app_label="oauth2_provider")
    user.user_permissions.add(*permissions.filter(codename__in=codenames))


def text_of(response: Any) -> str:
    return str(response.json()["result"]["content"][0]["text"])


def address_of(row: Any) -> str:
    return f"{ADMIN}{row._meta.model_name}/{row.pk}/change/"


def form_of(client: Client, row: Any, **changes: Any) -> dict[str, Any]:
    """Return the POST data of the row's change form, with changes."""
    fields: dict[str, Any] = {}
    for bound in client.get(address_of(row)).context["adminform"].form:
        value = bound.value()
        if isinstance(value, datetime):
            fields |= {
                f"{bound.name}_0": f"{value:%Y-%m-%d}",
                f"{bound.name}_1": f"{value:%H:%M:%S}",
            }
        elif value not in (None, False):
            fields[bound.name] = value if isinstance(value, (str, int)) else str(value)
    return {**fields, **changes}


MODELS = [get_access_token_model, get_refresh_token_model, get_grant_model]


def make_rows(user: Any, app: Any) -> str:
    """Create a token, a refresh token and a code of a user; return the plaintext of the token."""
    make_code(user, app)
    return make_token(user, app)


@pytest.mark.parametrize("model", MODELS)
def test_own_rows_cannot_be_assigned_to_a_user_with_more_permissions(
    client, clerk, boss, app, model
):
    row = model().objects.get() if make_rows(clerk, app) else None
    allow(clerk, f"change_{row._meta.model_name}")
    answer = client.post(address_of(row), form_of(client, row, user=boss.pk))
    assert answer.status_code == 200
    assert "Choose a user who has no more permissions" in str(answer.context["errors"])
    row.refresh_from_db()
    assert row.user == clerk


def test_a_token_keeps_acting_as_its_user(client, clerk, boss, app):
    allow(clerk, "change_accesstoken")
    bearer, row = make_token(clerk, app), get_access_token_model().objects.get()
    client.post(address_of(row), form_of(client, row, user=boss.pk))
    assert text_of(call(bearer)) == "clerk"
    assert client.post(address_of(row), form_of(client, row)).status_code == 302


@pytest.mark.parametrize("model", MODELS)
def test_rows_of_a_user_with_more_permissions_are_read_only(client, clerk, boss, app, model):
    row = model().objects.get() if make_rows(boss, app) else None
    allow(clerk, f"change_{row._meta.model_name}")
    assert b'name="_save"' not in client.get(address_of(row)).content
    assert client.post(address_of(row), {"user": clerk.pk}).status_code == 403
    client.force_login(boss)
    assert b'name="_save"' in client.get(address_of(row)).content


@pytest.mark.parametrize(("verb", "ends"), [("view", False), ("change", True)])
def test_the_view_permission_does_not_revoke(client, clerk, user, app, verb, ends):
    allow(clerk, f"{verb}_accesstoken", f"{verb}_refreshtoken")
    bearer = make_token(user, app, refresh=False)
    row = get_access_token_model().objects.get()
    chosen = {"action": "revoke_tokens", "_selected_action": [row.pk]}
    client.post(f"{ADMIN}accesstoken/", chosen)
    assert call(bearer).status_code == (401 if ends else 200)


def test_lists_are_filtered_by_their_filters_only(client, clerk, app):
    allow(clerk, "view_accesstoken", "view_grant")
    make_rows(clerk, app)
    assert client.get(f"{ADMIN}accesstoken/?application__id__exact={app.pk}").status_code == 200
    for query in ("accesstoken/?token_checksum__startswith=a", "grant/?code__startswith=a"):
        assert client.get(f"{ADMIN}{query}").status_code == 400


# Machine clients --------------------------------------------------------------------------------


@pytest.fixture
def machine(site):
    """A machine client whose service account has more permissions than the clerk."""
    site.MCP_DJANGO = {**site.MCP_DJANGO, "OAUTH": {"CLIENT_CREDENTIALS": True}}
    robot = make_user("robot")
    robot.user_permissions.add(Permission.objects.get(codename="delete_user"))
    app = make_machine()
    ClientProfile.objects.create(client_id=app.client_id, service_user=robot)
    return app


def test_the_secret_of_a_machine_client_with_more_permissions_cannot_be_set(
    client, clerk, boss, machine
):
    allow(clerk, "change_application")
    assert b'name="_save"' not in client.get(address_of(machine)).content
    assert client.post(address_of(machine), {"client_secret": SECRET}).status_code == 403
    assert ask(machine, client_secret=SECRET).status_code == 401
    client.force_login(boss)
    changed = form_of(client, machine, client_secret=SECRET)
    assert client.post(address_of(machine), changed).status_code == 302
    assert ask(machine, client_secret=SECRET).status_code == 200


@pytest.mark.parametrize("way", ["add", "change"])
def test_the_id_of_a_machine_client_with_more_permissions_cannot_be_taken(
    client, clerk, boss, machine, way
):
    allow(clerk, "add_application", "change_application")
    own = make_machine(name="own")
    taken = form_of(client, own, client_id=machine.client_id, client_secret=SECRET)
    # Deleting the application does not delete its profile.
    machine.delete()
    address = f"{ADMIN}application/add/" if way == "add" else address_of(own)
    answer = client.post(address, taken)
    assert "an account with permissions that you do not have" in str(answer.context["errors"])
    assert ask(machine, client_secret=SECRET).status_code == 401
    client.force_login(boss)
    assert client.post(address, taken).status_code == 302
    assert ask(machine, client_secret=SECRET).status_code == 200


def test_other_clients_can_be_changed(client, clerk):
    allow(clerk, "change_application")
    app = make_machine(name="before")
    ClientProfile.objects.create(client_id=app.client_id)
    assert client.post(address_of(app), form_of(client, app, name="after")).status_code == 302
    assert get_application_model().objects.get().name == "after"
