"""What the admins of both tenants see and change, printed as JSON.

It runs in a process of the site: `python -m tests.sites.tenants.admin_visits`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import timedelta
from typing import Any

import django
from django.test import Client

PATIENCE = 60
PROMPT = {
    "server": "tenants",
    "name": "greeting",
    "text": "Hello.",
    "is_enabled": "on",
    "groups": [],
    "permissions": [],
    "scopes": "",
    "based_on": "0",
}


def address(model: Any, page: str, *args: Any) -> str:
    from django.urls import reverse

    return reverse(f"admin:mcp_django_{model._meta.model_name}_{page}", args=args)


def listed(tenant: str, method: str, kind: str) -> list[str]:
    """Return the names that a client at the host of a tenant lists."""
    from tests.kit.drivers import headers_for, message

    body = message(method)
    client = Client(headers=headers_for(body, host=f"{tenant}.tenants.test"))
    answer = client.post("/mcp", body, content_type="application/json")
    return sorted(component["name"] for component in answer.json()["result"][kind])


def decisions(browsers: dict[str, Client]) -> dict[str, Any]:
    """Let both tenants disable alpha's tool, and write a prompt of the same name."""
    from mcp_django.models import Component, PromptText

    chosen = Component.objects.get(tenant="alpha", server="tenants", kind="tool", key="sync_items")
    disable = {"action": "disable", "_selected_action": [chosen.pk]}
    report: dict[str, Any] = {"tools before": listed("beta", "tools/list", "tools")}
    for tenant, browser in browsers.items():
        browser.post(address(Component, "changelist"), disable)
        answer = browser.post(address(PromptText, "add"), PROMPT)
        again = browser.post(address(PromptText, "add"), PROMPT)
        report[f"added in {tenant}"] = [answer.status_code, again.status_code]
        report[f"prompts of beta after {tenant}"] = listed("beta", "prompts/list", "prompts")
    for tenant in browsers:
        report[f"tools of {tenant}"] = listed(tenant, "tools/list", "tools")
    report["prompts of alpha"] = listed("alpha", "prompts/list", "prompts")
    return report


def pages(browsers: dict[str, Client]) -> dict[str, Any]:
    """Return for each model: the status of beta's list, how many rows of each tenant it links to,
    and the status of the page of a row of each at beta's host.
    """
    from django.contrib import admin
    from django.contrib.admin.utils import quote

    report = {}
    for model in admin.site._registry:
        if model._meta.app_label != "mcp_django" or not hasattr(model, "tenant"):
            continue
        answer = browsers["beta"].get(address(model, "changelist"), {"all": ""})
        linked = set(re.findall(r"/([\w-]+)/change/", answer.content.decode()))
        rows = model._default_manager.all()
        if kind := {"ModelExposure": "model", "ViewExposure": "view"}.get(model.__name__):
            rows = rows.filter(kind=kind)
        keys = {
            tenant: [quote(row.pk) for row in rows.filter(tenant=tenant)] for tenant in browsers
        }
        report[model.__name__] = {
            "status": answer.status_code,
            "linked": {
                tenant: len(linked.intersection(map(str, pks))) for tenant, pks in keys.items()
            },
            "opened": {
                tenant: browsers["beta"].get(address(model, "change", pks[0])).status_code
                for tenant, pks in keys.items()
                if pks
            },
        }
    return report


def add_rows(tenant: str, user: Any) -> None:
    """Add a row of each kind that no visit makes; called in the context of the tenant."""
    from django.utils import timezone

    from mcp_django import models

    now = timezone.now()
    later = now + timedelta(days=1)
    of_call = {"server": "tenants", "component": "sync_items", "user_key": f"user:{user.pk}"}
    models.Call.objects.create(at=now, kind="tool", outcome="ok", **of_call)
    models.Approval.objects.create(by="staff", expires_at=later, principal="x", **of_call)
    models.Session.objects.create(
        digest=tenant, server="tenants", principal="x", user=user, seen_at=now, expires_at=later
    )
    models.Task.objects.create(
        server="tenants", tool="wait", user=user, expires_at=later, ttl_ms=1, poll_ms=1
    )
    models.AuthEvent.objects.create(kind="issue", user=user)
    models.ExternalIdentity.objects.create(issuer="https://id.test", subject="x", user=user)
    models.Skill.objects.create(server="tenants", name="skill", description="x", text="x")
    models.ModelExposure.objects.create(server="tenants", target="tenants.Item", is_enabled=False)
    models.ViewExposure.objects.create(server="tenants", target="admin:index", is_enabled=False)


def deletion(browsers: dict[str, Client]) -> dict[str, Any]:
    """Return how many rows of its user each tenant has, before and after alpha deletes its own.

    Beta's user has the same key.
    """
    from mcp_django.models import AccessToken, AuthEvent, Session, Task

    def counts(tenant: str) -> list[int]:
        of_user = {"tenant": tenant, "user_id": 1}
        models = (AccessToken, Session, Task, AuthEvent)
        return [model.objects.filter(**of_user).count() for model in models]

    before = {tenant: counts(tenant) for tenant in browsers}
    browsers["alpha"].post("/admin/auth/user/1/delete/", {"post": "yes"})
    return {tenant: [before[tenant], counts(tenant)] for tenant in browsers}


def deleted_tenant() -> list[int]:
    """Return how many rows a tenant has before and after the site deletes it."""
    from django_tenants.utils import schema_context

    from mcp_django.models import Skill
    from tests.sites.tenants.organizations.models import Organization

    organization = Organization(schema_name="gamma")
    organization.auto_create_schema = False
    with schema_context("public"):
        organization.save()
    with schema_context("gamma"):
        Skill.objects.create(server="tenants", name="skill", description="x", text="x")
    counts = [Skill.objects.filter(tenant="gamma").count()]
    with schema_context("public"):
        organization.delete()
    return [*counts, Skill.objects.filter(tenant="gamma").count()]


def visit() -> dict[str, Any]:
    from django.contrib.auth.models import User
    from django_tenants.utils import schema_context

    from mcp_django.models import Component, Server
    from tests.sites.tenants.fill import TENANTS, USERS

    browsers = {}
    for tenant in TENANTS:
        browsers[tenant] = Client(headers={"host": f"{tenant}.tenants.test"})
        with schema_context(tenant):
            user = User.objects.get(username=USERS[tenant])
            browsers[tenant].force_login(user)
            add_rows(tenant, user)
    for tenant, browser in browsers.items():
        # The first visit causes the rows of components to be written.
        deadline = time.monotonic() + PATIENCE
        while not Component.objects.filter(tenant=tenant, key="sync_items").exists():
            browser.get(address(Component, "changelist"))
            assert time.monotonic() < deadline
    report = {**decisions(browsers), "pages": pages(browsers)}
    server = Server.objects.get(tenant="alpha", name="tenants")
    for page in ("try", "seen", "charts"):
        url = f"/admin/mcp_django/server/{server.pk}/{page}/"
        report[page] = {tenant: browsers[tenant].get(url).status_code for tenant in TENANTS}
    report["left"] = deletion(browsers)
    report["deleted"] = deleted_tenant()
    return report


if __name__ == "__main__":
    django.setup()
    json.dump(visit(), sys.stdout)
