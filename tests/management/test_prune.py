"""`mcp prune` deletes what is past its retention, and nothing else."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django.models import (
    AccessToken,
    Approval,
    Call,
    Inbox,
    PromptText,
    PromptVersion,
    Session,
    Stream,
    Task,
    Topic,
    Worker,
)
from mcp_django.tenants import as_tenant
from tests.kit.servers import person

pytestmark = pytest.mark.django_db

OLD = timedelta(days=3)


def session(digest: str, *, age: timedelta = timedelta(0)) -> Session:
    now = timezone.now()
    return Session.objects.create(
        digest=digest,
        server="default",
        principal="user:1",
        protocol_version="2025-11-25",
        seen_at=now - age,
        expires_at=now - age + timedelta(hours=1),
    )


def prune(*options: str) -> str:
    out = StringIO()
    call_command("mcp", "prune", *options, stdout=out)
    return out.getvalue()


def test_what_is_old_goes_and_what_is_new_stays():
    now = timezone.now()
    old, new = session("old", age=OLD), session("new")
    Stream.objects.create(pk=1, session=new, kind="post", owner=1, expires_at=now - OLD)
    Stream.objects.create(pk=2, session=new, kind="post", owner=1, expires_at=now + OLD)
    Stream.objects.create(pk=3, session=new, kind="post", owner=1)
    letter = Inbox.objects.create(session=new, kind="answer", ref="1")
    Inbox.objects.filter(pk=letter.pk).update(created_at=now - OLD)
    Worker.objects.create(pk=7, beat_at=now - OLD)
    Topic.objects.create(pk="t", changed_at=now - OLD)

    counts = json.loads(prune("--json"))

    assert counts["security_events"] == 0
    swept = {name: count for name, count in counts.items() if count}
    assert swept == {"streams": 1, "sessions": 1, "inbox": 1, "workers": 1, "topics": 1}
    assert list(Session.objects.values_list("digest", flat=True)) == ["new"]
    assert set(Stream.objects.values_list("pk", flat=True)) == {2, 3}
    assert old.pk not in Session.objects.values_list("pk", flat=True)


def test_a_second_run_finds_nothing():
    session("old", age=OLD)
    assert "1  sessions" in prune()
    assert "0  sessions" in prune()


def called(**fields: Any) -> Call:
    values = {"at": timezone.now(), "server": "shop", "kind": "tool", "component": "pay"}
    return Call.objects.create(**{**values, "outcome": "ok", "user_key": "anonymous", **fields})


def test_old_calls_go_in_chunks(monkeypatch):
    monkeypatch.setattr("mcp_django.storage.cleanup.CHUNK_SIZE", 2)
    for _ in range(5):
        called(at=timezone.now() - timedelta(days=91))
    new = called(at=timezone.now() - timedelta(days=89))
    assert json.loads(prune("--json"))["calls"] == 5
    assert Call.objects.get() == new


def task(principal: str) -> Task:
    times = {"expires_at": timezone.now() + OLD, "ttl_ms": 1, "poll_ms": 1}
    return Task.objects.create(server="shop", tool="pay", principal=principal, **times)


def approval(user: Any, **fields: Any) -> Approval:
    values = {
        "server": "shop",
        "component": "pay",
        "by": "caller",
        "principal": f"user:{user.pk}@client",
        "user_key": f"user:{user.pk}",
        "user_name": user.username,
        "arguments": {"card": "4111"},
        "arguments_digest": "d",
        "preview": {"card": "4111"},
        "expires_at": timezone.now() + OLD,
    }
    return Approval.objects.create(**{**values, **fields})


def test_a_person_is_taken_out_of_the_logs(monkeypatch):
    monkeypatch.setattr("mcp_django.storage.cleanup.CHUNK_SIZE", 2)
    # Names that a random identifier in hexadecimal cannot contain.
    grete, eve = person("grete"), person("eve")
    mine = {
        "user_key": f"user:{grete.pk}",
        "user_name": "grete",
        "arguments": {"to": "grete@shop.example"},
        "arguments_digest": "digest-of-grete",
        "uri": "shop://people/grete",
        "session": "session-of-grete",
        "client_id": "client-of-grete",
        "trace_id": "trace-of-grete",
    }
    for _ in range(5):
        called(**mine)
    called(acting_user="grete")
    others = called(user_key=f"user:{eve.pk}", user_name="eve", arguments={"n": 1})
    approval(grete)
    approval(eve, decided_by="grete")
    for key in (f"user:{grete.pk}", f"user:{grete.pk}@client", f"user:{grete.pk}0@client"):
        task(key)

    counts = json.loads(prune("--forget", "grete", "--json"))

    assert counts == {"calls": 5, "calls_in_fact_by": 1, "approvals": 1, "decisions": 1, "tasks": 2}
    assert Task.objects.get().principal == f"user:{grete.pk}0@client"
    text = str(list(Call.objects.values())) + str(list(Approval.objects.values()))
    assert "grete" not in text
    assert f"user:{grete.pk}'" not in text
    assert Call.objects.filter(user_key="forgotten", component="pay").count() == 5
    others.refresh_from_db()
    assert (others.user_name, others.arguments) == ("eve", {"n": 1})


def test_who_is_deleted_already_is_found_by_name():
    called(user_key="user:77", user_name="ghost")
    assert "1  calls" in prune("--forget", "ghost")
    assert Call.objects.get().user_name == ""


def test_nobody_cannot_be_forgotten():
    with pytest.raises(CommandError, match="No user named 'nobody'"):
        prune("--forget", "nobody")


def test_a_deleted_user_stays_by_name():
    ada = person("ada")
    called(user_key=f"user:{ada.pk}", user_name="ada")
    ada.delete()
    assert Call.objects.get().user_name == "ada"


def test_a_tenant_is_forgotten_and_no_other(settings):
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext"}
    user = person()
    for tenant in ("old", "new"):
        with as_tenant(tenant):
            AccessToken.objects.issue(user, name="test")
            prompt = PromptText.objects.create(server="shop", name="greeting", text="Hello.")
            PromptVersion.objects.create(prompt=prompt, number=1, content={})
    out = StringIO()
    call_command("mcp", "prune", "--forget-tenant", "old", "--json", stdout=out)
    deleted = json.loads(out.getvalue())
    assert {name: count for name, count in deleted.items() if count} == {
        "access token": 1,
        # Its versions are deleted with it.
        "prompt": 1,
    }
    for model in (AccessToken, PromptText, PromptVersion):
        assert [row.tenant for row in model.objects.all()] == ["new"]


@pytest.mark.parametrize("tenant", ["", "old"])
def test_no_tenant_is_forgotten_where_there_is_none(settings, tenant):
    AccessToken.objects.issue(person(), name="test")
    with pytest.raises(CommandError, match="--forget-tenant"):
        call_command("mcp", "prune", "--forget-tenant", tenant)
    settings.MCP_DJANGO = {"THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext"}
    with pytest.raises(CommandError, match="needs the name of a tenant"):
        call_command("mcp", "prune", "--forget-tenant", "")
    assert AccessToken.objects.exists()
