"""`manage.py mcp token`: create, list and revoke."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django.management.commands.mcp import Command
from mcp_django.models import AccessToken, AuthEvent, token_digest
from tests.kit.servers import person, token_for

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> tuple[str, str]:
    """Run the command, and return what it prints on both streams."""
    out, err = StringIO(), StringIO()
    call_command("mcp", "token", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def fails(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return str(caught.value)


def test_a_token_is_printed_alone_and_once():
    person()
    out, err = run("create", "ada")
    plaintext = out.strip()
    token = AccessToken.objects.get(digest=token_digest(plaintext))
    assert token.user.get_username() == "ada"
    assert (token.name, token.scopes, token.expires_at) == ("command line", [], None)
    assert plaintext not in err
    assert f"Token {token.pk} for ada" in err
    assert plaintext not in "".join(run("list")) + "".join(run("list", "--json"))


@pytest.mark.parametrize("action", [["create", "ada"], ["list"], ["revoke", "1"]])
def test_checks_are_left_to_check(action, monkeypatch):
    # Run as from a shell, since `call_command` skips the checks.
    person()
    command, checks = Command(StringIO(), StringIO()), []
    monkeypatch.setattr(command, "check", lambda **kwargs: checks.append(kwargs))
    options = vars(command.create_parser("manage.py", "mcp").parse_args(["token", *action]))
    if action == ["revoke", "1"]:
        with pytest.raises(CommandError, match="No token has the id 1"):
            command.execute(**options)
    else:
        command.execute(**options)
    assert checks == []


def test_every_option_is_kept():
    person()
    before = timezone.now()
    out, err = run(
        "create", "ada", "--name", "Laptop", "--scope", "b", "--scope", "a", "--days", "2", "--json"
    )
    described = json.loads(out)
    token = AccessToken.objects.get(digest=token_digest(described.pop("token")))
    # They are issued nevertheless: a component may require them later.
    assert [line.split("scope ")[1][:3] for line in err.splitlines()] == ["'a'", "'b'"]
    assert "MCP_DJANGO['SCOPES'] does not contain it" in err
    assert token.expires_at is not None
    assert timedelta(days=2) <= token.expires_at - before < timedelta(days=3)
    assert described == {
        "id": token.pk,
        "hint": token.hint,
        "name": "Laptop",
        "user": "ada",
        "scopes": ["a", "b"],
        "servers": [],
        "networks": [],
        "state": "usable",
        "created": token.created_at.isoformat(),
        "expires": token.expires_at.isoformat(),
        "last_used": None,
        "revoked": None,
    }


def test_tokens_are_listed_with_their_state():
    ada, bob = person("ada"), person("bob")
    usable, _ = token_for(ada, "orders:read")
    expired, _ = token_for(ada, expires=timezone.now() - timedelta(days=1))
    revoked, _ = token_for(bob)
    revoked.revoke()
    inactive, _ = token_for(person("eve", is_active=False))
    listed = {token["id"]: token["state"] for token in json.loads(run("list", "--json")[0])}
    assert listed == {
        usable.pk: "usable",
        expired.pk: "expired",
        revoked.pk: "revoked",
        inactive.pk: "inactive",
    }
    assert len(json.loads(run("list", "--user", "ada", "--json")[0])) == 2
    lines = run("list", "--user", "ada")[0].splitlines()
    assert lines[0].split() == ["id", "token", "state", "user", "scopes", "expires", "name"]
    assert len(lines) == 3
    assert any("orders:read" in line and f"…{usable.hint}" in line for line in lines)
    day = timezone.now() - timedelta(days=1)
    assert any(line.split()[2:6] == ["expired", "ada", "-", f"{day:%Y-%m-%d}"] for line in lines)


def test_nothing_to_list_is_an_empty_list():
    assert run("list") == ("", "No tokens.\n")
    assert json.loads(run("list", "--json")[0]) == []


def test_a_token_is_revoked_by_its_number():
    token, _ = token_for(person())
    out, _ = run("revoke", str(token.pk))
    assert out == f"Revoked test (…{token.hint}).\n"
    token.refresh_from_db()
    assert token.revoked_at is not None
    described = json.loads(run("revoke", str(token.pk), "--json")[0])
    assert (described["state"], described["revoked"]) == ("revoked", token.revoked_at.isoformat())


def test_the_security_log_has_what_the_command_does():
    person()
    run("create", "ada")
    token = AccessToken.objects.get()
    for _ in range(2):
        run("revoke", str(token.pk))
    events = AuthEvent.objects.order_by("pk").values_list(
        "kind", "username", "client_id", "details"
    )
    by = {"by": "manage.py mcp token"}
    assert [*events] == [
        ("issue", "ada", f"token:{token.pk}", by),
        ("revoke", "ada", f"token:{token.pk}", by),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["create", "nobody"], "No user named 'nobody'."),
        (["create", "ada", "--days", "0"], "--days 0"),
        (["create", "ada", "--days", "-1"], "--days -1"),
        (["create", "ada", "--days", "999999999"], "--days 999999999"),
        (["create", "ada", "--days", "x"], "invalid int value"),
        (["create", "ada", "--scope", "a b"], "--scope 'a b'"),
        (["create", "ada", "--scope", ""], "--scope ''"),
        (["create", "ada", "--name", "x" * 101], "--name"),
        (["create", "ada", "--name", ""], "--name"),
        (["create"], "user"),
        (["list", "--user", "nobody"], "No user named 'nobody'."),
        (["revoke", "999"], "No token has the id 999; see manage.py mcp token list."),
        (["revoke", "x"], "invalid int value"),
        ([], "action"),
        (["unknown"], "unknown"),
    ],
)
def test_a_mistake_is_named(arguments, words):
    person()
    assert words in fails(*arguments)
    assert not AccessToken.objects.exists()


def test_the_command_needs_a_subcommand():
    with pytest.raises(CommandError, match="subcommand"):
        call_command("mcp")


def test_a_token_made_by_the_command_works(client):
    from tests.kit.drivers import message
    from tests.kit.servers import post

    person()
    plaintext = run("create", "ada")[0].strip()
    assert post("/mcp", message("tools/list"), token=plaintext).status_code == 200


def test_a_token_may_be_bound_to_servers_and_networks():
    person()
    servers = ["--server", "staff", "--server", "default"]
    out, _ = run(
        "create", "ada", *servers, "--network", "192.0.2.0/24", "--network", "::1", "--json"
    )
    described = json.loads(out)
    token = AccessToken.objects.get()
    assert described["servers"] == token.servers == ["default", "staff"]
    assert described["networks"] == token.networks == ["192.0.2.0/24", "::1/128"]
    assert token.allows(server="staff", address="192.0.2.9")
    assert not token.allows(server="open", address="192.0.2.9")


def test_a_token_ends_when_the_command_line_says():
    person()
    run("create", "ada", "--name", "a", "--expires", "2999-01-31")
    run("create", "ada", "--name", "b", "--expires", "2999-01-31T12:00+02:00")
    ends = [token.expires_at for token in AccessToken.objects.order_by("name")]
    assert [end and end.isoformat() for end in ends] == [
        "2999-01-31T23:59:59.999999+00:00",
        "2999-01-31T10:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--server", "nowhere"], "nowhere"),
        (["--network", "10.0.0.1/8"], "10.0.0.1/8"),
        (["--network", "home"], "home"),
        (["--expires", "tomorrow"], "tomorrow"),
        (["--expires", "2001-01-01"], "past"),
        (["--expires", "2999-01-01", "--days", "2"], "not allowed with"),
    ],
)
def test_what_a_token_cannot_be_bound_to_makes_none(arguments, reason):
    person()
    assert reason in fails("create", "ada", *arguments)
    assert not AccessToken.objects.exists()
