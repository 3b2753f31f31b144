"""What each permission allows in the admin: one permission by itself, and a few together.

The tables below are the specification. Every request that is not listed for a permission has to be
refused and to change no row. The words are those of ``tests.admin.attempts``: ``page`` is a GET,
``page!`` a POST of its form, ``action*`` an admin action. A new permission, page or action fails
these tests until it is listed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from tests.admin.attempts import ANSWERED, APPS, Site, make_site, run_attempt
from tests.admin.every import models
from tests.admin.urls import urlpatterns as admin_urls

pytestmark = pytest.mark.django_db

LOOK = "changelist, change, history"
LOOK_AND_VERSIONS = f"{LOOK}, versions, version"
ADD, DELETE = "add, add!", "delete, delete!"
SWITCH = "enable*, disable*"

# One permission by itself ---------------------------------------------------------------------

ALLOWS = {
    "mcp_django.add_accesstoken": f"accesstoken: {ADD}",
    "mcp_django.view_accesstoken": f"accesstoken: {LOOK}",
    "mcp_django.view_approval": f"approval: {LOOK}, arguments",
    "mcp_django.decide_approval": (
        f"approval: {LOOK}, arguments, decide, decide!, approve_selected*, reject_selected*"
    ),
    "mcp_django.view_authevent": f"authevent: {LOOK}",
    "mcp_django.view_call": f"call: {LOOK}, arguments, charts; server: charts, report, report csv",
    "mcp_django.change_component": (
        f"component: {LOOK}, change!, changelist!, update!, {SWITCH}, clear_overrides*"
    ),
    "mcp_django.delete_component": f"component: {DELETE}",
    "mcp_django.view_component": f"component: {LOOK}",
    "mcp_django.add_externalidentity": f"externalidentity: {ADD}",
    "mcp_django.change_externalidentity": f"externalidentity: {LOOK}, change!",
    "mcp_django.delete_externalidentity": f"externalidentity: {DELETE}",
    "mcp_django.view_externalidentity": f"externalidentity: {LOOK}",
    # Adding, changing and enabling one need permissions on its model as well.
    "mcp_django.add_modelexposure": "modelexposure: add",
    "mcp_django.change_modelexposure": f"modelexposure: {LOOK}, disable*",
    "mcp_django.delete_modelexposure": f"modelexposure: {DELETE}",
    "mcp_django.view_modelexposure": f"modelexposure: {LOOK}",
    "mcp_django.add_prompttext": f"prompttext: {ADD}, preview_new!",
    "mcp_django.change_prompttext": (
        f"prompttext: {LOOK_AND_VERSIONS}, change!, preview!, restore!, {SWITCH}"
    ),
    "mcp_django.delete_prompttext": f"prompttext: {DELETE}",
    "mcp_django.view_prompttext": f"prompttext: {LOOK_AND_VERSIONS}",
    "mcp_django.change_server": f"server: {LOOK}, change!, update!",
    "mcp_django.try_components": "server: playground, playground!",
    "mcp_django.view_server": f"server: {LOOK}, connect, client_view",
    "mcp_django.view_session": f"session: {LOOK}",
    "mcp_django.add_skill": f"skill: {ADD}, preview_new!",
    "mcp_django.change_skill": f"skill: {LOOK_AND_VERSIONS}, change!, preview!, restore!, {SWITCH}",
    "mcp_django.delete_skill": f"skill: {DELETE}",
    "mcp_django.view_skill": f"skill: {LOOK_AND_VERSIONS}",
    "mcp_django.view_task": f"task: {LOOK}",
    "mcp_django.add_viewexposure": f"viewexposure: {ADD}",
    "mcp_django.change_viewexposure": f"viewexposure: {LOOK}, change!, {SWITCH}",
    "mcp_django.delete_viewexposure": f"viewexposure: {DELETE}",
    "mcp_django.view_viewexposure": f"viewexposure: {LOOK}",
    "mcp_oauth.add_clientprofile": f"clientprofile: {ADD}",
    "mcp_oauth.change_clientprofile": f"clientprofile: {LOOK}, change!",
    "mcp_oauth.delete_clientprofile": f"clientprofile: {DELETE}",
    "mcp_oauth.view_clientprofile": f"clientprofile: {LOOK}",
    "mcp_oauth.view_consent": f"consent: {LOOK}",
    "mcp_oauth.delete_upstreamgrant": f"upstreamgrant: {DELETE}",
    "mcp_oauth.view_upstreamgrant": f"upstreamgrant: {LOOK}",
}

# Permissions that allow nothing by themselves.
ALLOWS_NOTHING = """
    mcp_django.delete_accesstoken
    mcp_django.export_call
    mcp_django.try_as_another mcp_django.view_as_another
    mcp_django.delete_session
    mcp_django.delete_task mcp_django.read_task_result
    mcp_oauth.delete_consent
"""

# What several permissions allow in addition ---------------------------------------------------

TOGETHER = {
    "mcp_django.view_accesstoken mcp_django.delete_accesstoken": (
        "accesstoken: revoke, revoke!, revoke*"
    ),
    "mcp_django.view_call mcp_django.export_call": "call: export!",
    "mcp_django.view_component mcp_django.delete_component": "component: delete_selected*",
    "mcp_django.view_externalidentity mcp_django.delete_externalidentity": (
        "externalidentity: delete_selected*"
    ),
    "mcp_django.add_modelexposure auth.view_group": "modelexposure: add!",
    "mcp_django.change_modelexposure auth.view_group": "modelexposure: change!, enable*",
    "mcp_django.view_modelexposure mcp_django.delete_modelexposure": (
        "modelexposure: delete_selected*"
    ),
    "mcp_django.view_modelexposure shop.view_customer": "modelexposure: rows",
    "mcp_django.view_prompttext mcp_django.add_prompttext": "prompttext: duplicate*",
    "mcp_django.view_prompttext mcp_django.delete_prompttext": "prompttext: delete_selected*",
    "mcp_django.try_components mcp_django.try_as_another": "server: playground! as another user",
    "mcp_django.view_server mcp_django.view_as_another": "server: client_view as another user",
    "mcp_django.view_session mcp_django.delete_session": (
        "session: terminate, terminate!, terminate*"
    ),
    "mcp_django.view_skill mcp_django.delete_skill": "skill: delete_selected*",
    "mcp_django.view_task mcp_django.delete_task": "task: cancel, cancel!, cancel*",
    "mcp_django.view_task mcp_django.read_task_result": (
        "task: answer, change anonymous, history anonymous"
    ),
    "mcp_django.view_task mcp_django.delete_task mcp_django.read_task_result": (
        "task: cancel anonymous"
    ),
    "mcp_django.view_viewexposure mcp_django.delete_viewexposure": (
        "viewexposure: delete_selected*"
    ),
    "mcp_oauth.view_clientprofile mcp_oauth.delete_clientprofile": (
        "clientprofile: delete_selected*"
    ),
    "mcp_oauth.view_clientprofile mcp_oauth.delete_consent": "clientprofile: revoke*",
    "mcp_oauth.view_consent mcp_oauth.delete_consent": (
        "consent: revoke, revoke!, revoke*, revoke_users*"
    ),
    "mcp_oauth.view_upstreamgrant mcp_oauth.delete_upstreamgrant": (
        "upstreamgrant: disconnect*, delete_selected*"
    ),
}
SUPERUSERS_ONLY = """
    accesstoken: add! for a superuser;
    clientprofile: add! for a superuser, change! from a superuser, change! to a superuser;
    externalidentity: add! for a superuser, change! from a superuser, change! to a superuser;
    server: client_view as a superuser, playground! as a superuser
"""

# Refused for superusers too; so is every POST to a page without a form.
NEVER = f"""
    accesstoken: change!, {DELETE}, delete_selected*;
    approval: {ADD}, change!, {DELETE}, delete_selected*;
    authevent: {ADD}, change!, {DELETE}, delete_selected*;
    call: {ADD}, change!, {DELETE}, delete_selected*, export;
    component: {ADD}, delete! present, update;
    consent: {ADD}, change!, {DELETE}, delete_selected*;
    prompttext: preview, preview_new, restore;
    server: {ADD}, {DELETE}, delete_selected*, update;
    session: {ADD}, change!, {DELETE}, delete_selected*;
    skill: preview, preview_new, restore;
    task: {ADD}, change!, {DELETE}, delete_selected*;
    upstreamgrant: {ADD}, change!
"""
PAGES_WITHOUT_FORM = (
    *("changelist", "history", "charts", "connect"),
    *("report", "client_view", "versions", "version"),
)

# ----------------------------------------------------------------------------------------------

Names = set[tuple[str, str]]
REFUSED = (403, 404, 405)
MODELS = [str(model._meta.model_name) for model in models()]


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = __name__


def parse_line(line: str) -> Names:
    """The attempts that a line of a table lists."""
    names = set()
    for part in line.split(";"):
        model, _, words = part.partition(":")
        names |= {(model.strip(), word.strip()) for word in words.split(",")}
    return names


def parse_lines(lines: Iterable[str]) -> Names:
    """The attempts that several lines list."""
    return set[tuple[str, str]]().union(*map(parse_line, lines))


def refused_for_all(site: Site) -> Names:
    """The attempts that superusers do not succeed with either."""
    posts = {(model, f"{page}!") for model, _ in site.attempts for page in PAGES_WITHOUT_FORM}
    return parse_line(NEVER) | (posts & set(site.attempts)) - {("component", "changelist!")}


def find_permissions(names: Iterable[str]) -> list[Permission]:
    permissions = Permission.objects.select_related("content_type")
    permissions_by_name = {
        f"{permission.content_type.app_label}.{permission.codename}": permission
        for permission in permissions
    }
    return [permissions_by_name[name] for name in names]


def front(request: HttpRequest) -> HttpResponse:
    """A view for the view exposures."""
    return HttpResponse("front")


urlpatterns = [*admin_urls, path("front/", front, name="front")]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """Do not log hundreds of refused requests."""
    monkeypatch.setattr(logging.getLogger("django.request"), "disabled", True)


@pytest.fixture
def site():
    return make_site()


@pytest.fixture
def log_in_staff(sign_in):
    """Log in a staff user with the given permissions and no others."""

    def log_in(*names: str, **details: Any) -> Client:
        users = get_user_model().objects
        user = users.create_user(f"staff{users.count()}", is_staff=True, **details)
        user.user_permissions.set(find_permissions(names))
        client: Client = sign_in(user)
        return client

    return log_in


def run_attempts(
    site: Site, client: Client, expected: Names, held: str = "", model: str | None = None
) -> None:
    """Run the attempts of a model, or all: those expected succeed, the others are refused.

    ``held`` is what the client may, for the message of a failure.
    """
    succeeded = set()
    for name, attempt in site.attempts.items():
        if model not in (None, name[0]):
            continue
        outcome = run_attempt(client, attempt, site.before)
        if outcome.succeeded:
            succeeded.add(name)
        else:
            assert not outcome.changed, (held, name)
            may_see_page = (name[0], attempt.page) in expected
            assert may_see_page or outcome.status in REFUSED, (held, name, outcome.status)
        if attempt.data is None:
            assert not outcome.changed, (held, name)
        assert not [secret for secret in site.secrets if secret in outcome.text], (held, name)
        assert ANSWERED not in outcome.text or ("task", "answer") in expected, (held, name)
    assert succeeded == expected, held


def allowed_by(names: Iterable[str], model: str) -> Names:
    """The attempts of a model that the tables list for these permissions."""
    held = set(names)
    lines = [
        line
        for permissions, line in {**ALLOWS, **TOGETHER}.items()
        if held.issuperset(permissions.split())
    ]
    return {name for name in parse_lines(lines) if name[0] == model}


@pytest.mark.parametrize("model", MODELS)
def test_each_permission_allows_what_is_listed_for_it(model, site, log_in_staff):
    """Those that matter to a model one by one, and as the tables combine them; the rest at once.

    A permission never takes another away, so each of the rest by itself allows no more than all of
    them together, which is nothing.
    """
    combinations = [names for names in TOGETHER if allowed_by(names.split(), model)]
    singles = {name for names in combinations for name in names.split()}
    singles |= {name for name in ALLOWS if allowed_by([name], model)}
    for names in (*sorted(singles), *combinations):
        held = names.split()
        run_attempts(site, log_in_staff(*held), allowed_by(held, model), names, model)
    rest = {*ALLOWS, *ALLOWS_NOTHING.split()} - singles
    run_attempts(site, log_in_staff(*rest), set(), f"none of {sorted(singles)}", model)


def test_the_other_permissions_allow_nothing_even_together(site, log_in_staff):
    run_attempts(site, log_in_staff(*ALLOWS_NOTHING.split()), set())


def test_superusers_succeed_with_everything_else(site, log_in_staff):
    client, refused = log_in_staff(is_superuser=True), refused_for_all(site)
    for model in MODELS:
        expected = {name for name in set(site.attempts) - refused if name[0] == model}
        run_attempts(site, client, expected, "everything", model)


def test_every_page_form_and_action_is_listed(site):
    lines = [*ALLOWS.values(), *TOGETHER.values(), SUPERUSERS_ONLY]
    assert refused_for_all(site) | parse_lines(lines) == set(site.attempts)


def test_every_permission_is_listed():
    permissions = Permission.objects.filter(content_type__app_label__in=APPS)
    names = [
        f"{permission.content_type.app_label}.{permission.codename}" for permission in permissions
    ]
    listed = [*ALLOWS, *ALLOWS_NOTHING.split()]
    assert sorted(names) == sorted(listed)


def test_the_documentation_lists_the_same_permissions():
    text = (Path(__file__).parents[2] / "docs" / "topics" / "admin.md").read_text()
    section = text.partition("### What one permission allows")[2].partition("### What two")[0]
    tables = section.split("| permission | allows |")[1:]
    listed = {
        f"{app}.{name}"
        for app, table in zip(APPS, tables, strict=True)
        for row in table.splitlines()
        if row.startswith("| `")
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    # That changing includes looking is said once.
    only_look = {
        name
        for name in ALLOWS
        if "change_" in name
        and parse_line(ALLOWS[name]) <= parse_line(ALLOWS[name.replace("change_", "view_")])
    }
    assert listed == set(ALLOWS) - only_look


def test_staff_without_permissions_reach_nothing(site, client):
    client.force_login(get_user_model().objects.create_user("staff", is_staff=True))
    run_attempts(site, client, set())
    assert "/admin/mcp_" not in client.get("/admin/").content.decode()
    for app in APPS:
        assert client.get(f"/admin/{app}/").status_code == 404


def test_other_users_are_redirected_to_the_login_page(site, client):
    user = get_user_model().objects.create_user("guest")
    user.user_permissions.set(find_permissions([*ALLOWS, *ALLOWS_NOTHING.split()]))
    client.force_login(user)
    for name, attempt in site.attempts.items():
        outcome = run_attempt(client, attempt, site.before)
        assert (outcome.status, outcome.changed) == (302, frozenset()), name
        assert outcome.location.startswith("/admin/login/"), name
