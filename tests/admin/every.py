"""Every screen of this package: a row of each model, and the address of each page there is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import Model
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from mcp_django.auth.principal import anonymous_principal
from mcp_django.models import (
    AccessToken,
    Approval,
    AuthEvent,
    Component,
    ExternalIdentity,
    ModelExposure,
    PromptText,
    PromptVersion,
    Server,
    Session,
    Skill,
    SkillVersion,
    Task,
    ViewExposure,
)
from mcp_django.oauth.models import ClientProfile, Consent, UpstreamGrant
from mcp_django.overrides.sync import sync_rows
from mcp_django.storage import sessions, task_rows
from tests.admin.calls import called
from tests.admin.shelf import shelf

# What a page is given beside the key of its row.
GIVEN = {"number": 1, "kind": "csv"}


def make_rows(user: Any) -> dict[type[Model], Model]:
    """A row of each model, of or about a user where it is about one."""
    sync_rows([shelf])
    soon = timezone.now() + timedelta(hours=1)
    approval = Approval.objects.create(
        server="shelf",
        component="look",
        by=Approval.By.STAFF,
        principal=f"user:{user.pk}",
        user_key=f"user:{user.pk}",
        expires_at=soon,
    )
    session, _ = sessions.open_session(
        *("shelf", "anonymous"),
        user_pk=None,
        protocol_version="2025-11-25",
        client_info={},
        capabilities={},
    )
    details = {
        "server": "shelf",
        "tool": "look",
        "arguments": b"{}",
        "principal": anonymous_principal(),
    }
    begun = {"user": None, "capabilities": {}, "client_info": {}, "trace": {}}
    times = {"ttl": timedelta(hours=1), "poll": timedelta(seconds=2)}
    task = task_rows.create_task(**details, **begun, **times, protocol_version="2026-07-28")
    token, _ = AccessToken.objects.issue(user, name="script")
    prompt = PromptText.objects.create(server="shelf", name="note", text="Note it.", version=1)
    PromptVersion.objects.create(prompt=prompt, number=1, content={"text": "Note it."})
    skill = Skill.objects.create(server="shelf", name="noting", description="How.", version=1)
    SkillVersion.objects.create(skill=skill, number=1, content={"text": "Note it."})
    named = {"issuer": "https://id.acme.example", "subject": "u-1"}
    rows = [
        *(approval, session, task, token, prompt, skill, *called()),
        Server.objects.get(name="shelf"),
        Component.objects.get(server="shelf", key="look"),
        ModelExposure.objects.create(
            server="shelf", target="auth.Group", options={"fields": ["name"]}
        ),
        ViewExposure.objects.create(server="shelf", target="admin:index"),
        AuthEvent.objects.create(kind=AuthEvent.Kind.ISSUE),
        ExternalIdentity.objects.create(**named, user=user),
        ClientProfile.objects.create(client_id="robot", service_user=user),
        Consent.objects.create(user=user, client_id="robot", redirect_host="a.example"),
        UpstreamGrant.objects.create(provider="crm", user=user, access_cipher=b""),
    ]
    rows_by_model = {type(row): row for row in rows}
    assert set(rows_by_model) == set(models())
    return rows_by_model


def models() -> list[type[Model]]:
    """The models of this package that the admin shows."""
    return [model for model in admin.site._registry if model._meta.app_label.startswith("mcp_")]


def pages(model: type[Model], pk: Any) -> Iterator[tuple[str, str]]:
    """The name and the address of every page of a model, with this key for that of a row."""
    beginning = f"{model._meta.app_label}_{model._meta.model_name}_"
    for pattern in admin.site._registry[model].get_urls():
        if not pattern.name:
            continue  # Django's redirect of old addresses
        key = {"object_id": quote(pk), "pk": pk, **GIVEN}
        converters = pattern.pattern.converters
        try:
            address = reverse(
                f"admin:{pattern.name}",
                kwargs={name: key[name] for name in converters if name in key},
            )
        except NoReverseMatch:
            continue  # a page below another, which its own tests know
        yield pattern.name.removeprefix(beginning), address


__all__ = ["Session", "Task", "make_rows", "models", "pages"]
