"""Every request that the package's admin pages accept, and whether it succeeded.

An attempt is named by a model and a word: ``page`` sends a GET to the page with this URL name,
``page!`` a POST with the page's form, ``action*`` runs an admin action on all rows. Pages and
actions are read from the registered ``ModelAdmin`` classes; form data are in ``FORMS``, attempts
that need a query string or another row in ``_make_special_attempts``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from mcp_django.models import (
    AccessToken,
    Approval,
    Call,
    Component,
    ExternalIdentity,
    ModelExposure,
    PromptText,
    Session,
    Skill,
    Task,
    ViewExposure,
)
from mcp_django.oauth.models import ClientProfile, UpstreamGrant
from mcp_django.overrides.sync import sync_rows
from mcp_django.overrides.text_versions import PROMPTS, SKILLS
from mcp_django.server import all_servers
from mcp_django.storage.databases import rows
from tests.admin.every import make_rows, pages
from tests.sites.shop.models import Customer

APPS = ("mcp_django", "mcp_oauth")
WRITES = re.compile(r'\s*(?:INSERT INTO|UPDATE|DELETE FROM) "(mcp_\w+)"')
ISSUER = "https://id.acme.example"

# Stored in rows, and never shown on a page.
HIDDEN = ("what-a-person-answered", "kept-for-the-worker", "sealed-upstream-token")
# Shown on one page, to users with the permission for it.
ASKED, ANSWERED = "what-the-call-asked", "what-the-task-answered"
PROPOSED, ROW = "what-is-to-be-approved", "a-customer-of-the-shop"

TOLD = {"server": "shelf", "is_enabled": "on", "based_on": "2"}
PROMPT = {**TOLD, "name": "another", "text": "Say it all."}
SKILL = {**TOLD, "name": "another", "description": "How.", "text": "Say it all."}
PROFILE = {"client_id": "another", "allowed_scopes": ["mcp"]}
MODEL = {
    "is_enabled": "on",
    "paths-fields": ["id", "name"],
    "operations": ["list"],
    "page_size": "20",
}
VIEW = {"is_enabled": "on", "is_readable": "on", "becomes": "tool"}
FORMS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("accesstoken", "add"): {"username": "ada", "name": "another"},
    ("approval", "decide"): {"decision": "grant"},
    ("clientprofile", "add"): {**PROFILE, "service_user": "ada"},
    ("clientprofile", "change"): {**PROFILE, "service_user": "ada"},
    ("component", "change"): {"is_enabled": "on", "title": "Another"},
    ("externalidentity", "add"): {"issuer": ISSUER, "subject": "another", "user": "ada"},
    ("externalidentity", "change"): {"user": "eve"},
    ("modelexposure", "add"): {**MODEL, "name": "crowd", "plural": "crowds"},
    ("modelexposure", "change"): {**MODEL, "name": "crowd"},
    ("prompttext", "add"): PROMPT,
    ("prompttext", "change"): PROMPT,
    ("prompttext", "preview_new"): PROMPT,
    ("prompttext", "preview"): PROMPT,
    ("prompttext", "restore"): {"based_on": "2"},
    ("server", "change"): {"is_enabled": "on", "title": "Another"},
    ("skill", "add"): SKILL,
    ("skill", "change"): SKILL,
    ("skill", "preview_new"): SKILL,
    ("skill", "preview"): SKILL,
    ("skill", "restore"): {"based_on": "2"},
    ("viewexposure", "add"): {**VIEW, "name": "another"},
    ("viewexposure", "change"): {**VIEW, "name": "another"},
}
"""POST data by model and page; a user is given by name and sent as primary key."""
QUERIES: Mapping[tuple[str, str], str] = {
    ("modelexposure", "add"): "?server=shelf&target=auth.Group",
    ("viewexposure", "add"): "?server=shelf&target=front",
}
SHOWS: Mapping[tuple[str, str], str] = {
    ("call", "export"): "arguments_digest",
    ("prompttext", "preview"): "Say it all.",
    ("prompttext", "preview_new"): "Say it all.",
    ("skill", "preview"): "Say it all.",
    ("skill", "preview_new"): "Say it all.",
}
"""Text in the response of a POST that succeeds without changing a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A request: it succeeds when the response has ``shows`` in it, or without it when rows change.

    ``page`` is the page that a refused request may render again.
    """

    page: str
    address: str
    data: Mapping[str, Any] | None = None
    shows: str | None = None


Attempts = dict[tuple[str, str], Attempt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The attempts, all rows before any of them, and values that no page may show."""

    attempts: Attempts
    before: Mapping[str, Any]
    secrets: tuple[str, ...]


def make_site() -> Site:
    """Create rows of every model, and the attempts on them."""
    users = {name: get_user_model().objects.create_user(name) for name in ("ada", "eve", "root")}
    get_user_model().objects.filter(username="root").update(is_superuser=True)
    rows_by_model = make_rows(users["ada"])
    _prepare_rows(rows_by_model, users["ada"])
    sync_rows(all_servers())
    # One row is behind the code, so that there is something to update.
    Component.objects.filter(server="shelf", key="clear").update(origin="elsewhere")
    attempts: Attempts = {}
    for model, row in rows_by_model.items():
        name = str(model._meta.model_name)
        for page, address in pages(model, row.pk):
            key, sent = (name, page), f"{address}{QUERIES.get((name, page), '')}"
            data = _with_primary_keys(FORMS.get(key, {"post": "yes"}), users)
            attempts[key] = Attempt(page=page, address=address, shows="")
            attempts[name, f"{page}!"] = Attempt(
                page=page, address=sent, data=data, shows=SHOWS.get(key)
            )
        attempts |= dict(_make_action_attempts(name, model))
    attempts |= dict(_make_special_attempts(attempts, users))
    digests = (rows_by_model[AccessToken].digest, rows_by_model[Session].digest)
    return Site(attempts=attempts, before=read_rows(), secrets=(*HIDDEN, *digests))


def _with_primary_keys(data: Mapping[str, Any], users: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: users[data[name]].pk for name in ("user", "service_user") if name in data}
    return {**data, **named}


def _make_action_attempts(name: str, model: Any) -> Iterator[tuple[tuple[str, str], Attempt]]:
    address = f"/admin/{model._meta.app_label}/{name}/"
    for action in (*admin.site._registry[model].actions, "delete_selected"):
        chosen = model._default_manager.all()
        query = ""
        if (model, action) == (Component, "delete_selected"):
            chosen, query = chosen.exclude(missing_since=None), "?missing=yes"
        pks = list(chosen.values_list("pk", flat=True))
        data = {"action": action, ACTION_CHECKBOX_NAME: pks, "post": "yes", "to": "default"}
        yield (
            (name, f"{action}*"),
            Attempt(page="changelist", address=f"{address}{query}", data=data),
        )


def _prepare_rows(rows_by_model: dict[Any, Any], ada: Any) -> None:
    """Change the rows to what the attempts need, and add some."""
    gone = {"title": "Shelved", "is_enabled": False, "missing_since": timezone.now()}
    rows_by_model[Component] = Component.objects.create(
        server="shelf", kind="tool", key="shelved", **gone
    )
    mine = {"user": ada, "principal": f"user:{ada.pk}"}
    kept = {"caller": {"note": HIDDEN[1]}, "answers": {"q": HIDDEN[0]}}
    rows(Task).filter(pk=rows_by_model[Task].pk).update(**mine, **kept)
    over = {"status": "completed", "result": {"content": [{"type": "text", "text": ANSWERED}]}}
    template = {"server": "shelf", "tool": "look", "protocol_version": "2026-07-28"}
    times = {"expires_at": rows_by_model[Task].expires_at, "ttl_ms": 3_600_000, "poll_ms": 2000}
    Task.objects.create(task_id="of-ada", **template, **times, **mine, **kept, **over)
    Task.objects.create(task_id="of-anonymous", **template, **times, principal="anonymous", **over)
    Call.objects.update(arguments={"where": ASKED})
    Approval.objects.update(arguments={"where": PROPOSED})
    Customer.objects.create(name=ROW, email="a@shop.example")
    UpstreamGrant.objects.update(access_cipher=HIDDEN[2].encode())
    for model, text_type in ((PromptText, PROMPTS), (Skill, SKILLS)):
        rows_by_model[model].text = "Note it well."
        text_type.save(rows_by_model[model], author=None, based_on=1)
        model._default_manager.create(server="shelf", name="off", text="Off.", is_enabled=False)
    options = {"server": "shelf", "options": {"fields": ["id", "name"]}}
    ModelExposure.objects.create(target="auth.Group", name="off", is_enabled=False, **options)
    ModelExposure.objects.create(target="shop.Customer", **options)
    ViewExposure.objects.create(server="shelf", target="front", name="off", is_enabled=False)
    rows_by_model[ViewExposure] = ViewExposure.objects.create(server="shelf", target="front")


def _make_special_attempts(
    attempts: Attempts, users: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, str], Attempt]]:
    """Attempts with a query string, on another row, or with another meaning than the URL."""

    def like(model: str, page: str, more: str = "", **details: Any) -> Attempt:
        return Attempt(page=page, address=f"{attempts[model, page].address}{more}", **details)

    def of(model: str, pk: Any, page: str, app: str = "mcp_django", **details: Any) -> Attempt:
        return Attempt(page=page, address=f"/admin/{app}/{model}/{pk}/{page}/", **details)

    look = Component.objects.get(server="shelf", key="look").pk
    shown = ModelExposure.objects.get(target="shop.Customer").pk
    yield ("approval", "arguments"), like("approval", "change", shows=PROPOSED)
    yield ("call", "arguments"), like("call", "change", shows=ASKED)
    yield ("component", "delete! present"), of("component", look, "delete", data={"post": "yes"})
    yield ("modelexposure", "rows"), of("modelexposure", shown, "change", shows=ROW)
    yield ("task", "answer"), of("task", "of-ada", "change", shows=ANSWERED)
    for page in ("change", "history", "cancel"):
        yield ("task", f"{page} anonymous"), of("task", "of-anonymous", page, shows="")
    # The checkboxes of ``list_editable``.
    switches = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "form-0-id": look, "_save": "Save"}
    touched = {"initial-form-0-is_enabled": "on", **switches}
    yield ("component", "changelist!"), like("component", "changelist", data=touched)
    # Pages below a server's own page.
    yield ("server", "report csv"), like("server", "report", "csv", shows='"component","used"')
    run: dict[str, Any] = {"data": {"do": "run", "arg.where": "there"}, "shows": "mcp-done"}
    tool = "?kind=tool&key=look"
    yield ("server", "playground!"), like("server", "playground", tool, **run)
    for who, name in (("another user", "eve"), ("a superuser", "root")):
        yield (
            ("server", f"playground! as {who}"),
            like("server", "playground", f"{tool}&user={name}", **run),
        )
        query = f"?who=user&user={name}"
        client_view = like("server", "client_view", query, shows="Tokens (estimate)")
        yield ("server", f"client_view as {who}"), client_view
    # Rows that would act as a superuser.
    root = users["root"]
    identity = ExternalIdentity.objects.create(issuer=ISSUER, subject="root", user=root)
    profile = ClientProfile.objects.create(client_id="of-root", service_user=root)
    for model, page, sent in (
        ("accesstoken", "add", {"username": "root"}),
        ("externalidentity", "add", {"user": root.pk}),
        ("clientprofile", "add", {"service_user": root.pk}),
    ):
        data = {**FORMS[model, page], **sent}
        yield (model, f"{page}! for a superuser"), like(model, page, data=data)
    for model, app, row, field in (
        ("externalidentity", "mcp_django", identity, "user"),
        ("clientprofile", "mcp_oauth", profile, "service_user"),
    ):
        data = _with_primary_keys(FORMS[model, "change"], users)
        yield (model, "change! from a superuser"), of(model, row.pk, "change", app, data=data)
        to_root = {**data, field: root.pk}
        yield (model, "change! to a superuser"), like(model, "change", data=to_root)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The response, and the tables whose rows the attempt changed."""

    status: int
    location: str
    text: str
    changed: frozenset[str]
    succeeded: bool


def run_attempt(client: Client, attempt: Attempt, before: Mapping[str, Any]) -> Outcome:
    """Send the request, run its ``on_commit`` callbacks, and roll everything back."""
    written = set()

    def note(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        if match := WRITES.match(sql):
            written.add(match[1])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note), transaction.atomic():
        began = len(connection.run_on_commit)
        if attempt.data is None:
            response: Any = client.get(attempt.address)
        else:
            response = client.post(attempt.address, attempt.data)
        content = response.getvalue().decode()
        for _savepoints, callback, _robust in connection.run_on_commit[began:]:
            callback()
        after = {name: _read_table(name) for name in written}
        transaction.set_rollback(True)
    changed = frozenset(name for name in written if after[name] != before[name])
    if attempt.shows is None:
        succeeded = bool(changed)
    else:
        succeeded = response.status_code == 200 and attempt.shows in content
    return Outcome(
        status=response.status_code,
        location=response.headers.get("Location", ""),
        text=content,
        changed=changed,
        succeeded=succeeded,
    )


TABLES = {
    model._meta.db_table: model for app in APPS for model in apps.get_app_config(app).get_models()
}


def read_rows() -> dict[str, Any]:
    """All rows of the package by table."""
    return {name: _read_table(name) for name in TABLES}


def _read_table(table: str) -> list[Any]:
    return list(TABLES[table]._base_manager.order_by("pk").values())
