"""Valid values of `OAUTH["UPSTREAM"]` and `FIELD_KEYS`, and the errors for invalid ones."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django.oauth.checks import check_providers, check_servers
from mcp_django.oauth.models import UpstreamBinding, UpstreamGrant, UpstreamTransaction
from mcp_django.oauth.upstream.conf import UpstreamRefused, find_problems, provider_settings
from mcp_django.oauth.upstream.grants import decrypt
from mcp_django.oauth.upstream.provider import endpoints_of
from mcp_django.storage.cleanup import delete_expired
from tests.oauth.parties import make_app, make_token, make_user
from tests.oauth.upstream.parties import ACME, KEYS, configured, make_grant


def test_complete_provider_has_no_problem(acme):
    assert find_problems() == []
    settings = provider_settings("acme")
    assert (settings.label, settings.is_openid) == ("Acme", True)
    assert "our-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"CLIENT_ID": ""}, ["'acme'", "'CLIENT_ID'"]),
        ({"ISSUR": "x"}, ["'acme'", "'ISSUR'"]),
        ({"ISSUER": "http://acme.example"}, ["'ISSUER'", "http://acme.example", "https://"]),
        ({"TOKEN_ENDPOINT": "https://u:p@acme.example"}, ["'TOKEN_ENDPOINT'"]),
        ({"ISSUER": ""}, ["neither ISSUER nor the endpoints"]),
        ({"ISSUER": "", "METADATA_URL": "https://acme.example/m"}, ["'openid'", "ISSUER"]),
        ({"PROBE": "sometimes"}, ["'PROBE'"]),
        ({"PROBE_SECONDS": 0}, ["'PROBE_SECONDS'"]),
        ({"ALGORITHMS": ["HS256"]}, ["'ALGORITHMS'"]),
    ],
)
def test_mistake_in_a_provider_is_named(site, changes, words):
    site.MCP_DJANGO = {"OAUTH": configured(**changes)}
    text = " ".join(f"{what} {hint}" for what, hint in find_problems())
    assert not [word for word in words if word not in text]
    assert "our-secret" not in text
    with pytest.raises(ImproperlyConfigured):
        provider_settings("acme")


def test_name_of_a_provider_is_part_of_a_url(site):
    site.MCP_DJANGO = {"OAUTH": {"UPSTREAM": {"a/b": ACME}, "FIELD_KEYS": KEYS}}
    ((what, hint),) = find_problems()
    assert "'a/b'" in what
    assert "A-Z" in hint


@pytest.mark.parametrize("keys", [[], ["too short"]])
def test_keys_are_asked_for_with_the_command_that_makes_one(site, keys):
    site.MCP_DJANGO = {"OAUTH": configured(keys=keys)}
    ((what, hint),) = find_problems()
    assert "FIELD_KEYS" in what
    assert "generate_key" in hint
    assert "too short" not in what


def test_endpoints_that_are_given_need_no_discovery(acme, site):
    given = {
        "AUTHORIZATION_ENDPOINT": "https://acme.example/a",
        "TOKEN_ENDPOINT": "https://acme.example/t",
    }
    site.MCP_DJANGO = {"OAUTH": configured(SCOPES=["files"], **given)}
    endpoints = endpoints_of(provider_settings("acme"))
    assert (endpoints.authorization_endpoint, endpoints.token_endpoint) == tuple(given.values())
    assert acme.asked == []


def test_metadata_is_fetched_once(acme):
    for _ in range(3):
        assert endpoints_of(provider_settings("acme")).token_endpoint
    assert acme.asked == ["/.well-known/openid-configuration"]


@pytest.mark.django_db
def test_rotated_keys_open_what_older_ones_closed(acme, site):
    grant = make_grant(make_user())
    new = Fernet.generate_key().decode()
    site.MCP_DJANGO = {"OAUTH": configured(keys=[new, *KEYS])}
    out, err = StringIO(), StringIO()
    call_command("mcp_rotate_keys", stdout=out, stderr=err)
    assert out.getvalue() == "Upstream access re-encrypted with the first key: 1.\n"
    site.MCP_DJANGO = {"OAUTH": configured(keys=[new])}
    grant.refresh_from_db()
    assert decrypt(grant.access_cipher) == "access-0"
    assert decrypt(grant.refresh_cipher) == "refresh-1"
    site.MCP_DJANGO = {"OAUTH": configured()}
    with pytest.raises(UpstreamRefused):
        decrypt(grant.access_cipher)
    call_command("mcp_rotate_keys", stdout=out, stderr=err)
    assert err.getvalue().startswith("Not decryptable with any key: 1.")


@pytest.mark.django_db
def test_pruning_keeps_what_a_token_stands_on(acme):
    user = make_user()
    grant = make_grant(user)
    make_token(user, make_app())
    token = get_access_token_model().objects.get()
    kept = UpstreamBinding.objects.create(grant=grant, checksum=token.token_checksum)
    UpstreamBinding.objects.create(grant=grant, checksum="gone")
    for digest, minutes in (("old", -1), ("new", 5)):
        UpstreamTransaction.objects.create(
            digest=digest,
            provider="acme",
            user=user,
            verifier_cipher=b"",
            expires_at=timezone.now() + timedelta(minutes=minutes),
        )
    counted: dict[str, int] = {}
    delete_expired(counted.__setitem__)
    assert counted["upstream_bindings"] == counted["upstream_transactions"] == 1
    assert UpstreamBinding.objects.get() == kept
    assert UpstreamTransaction.objects.get().digest == "new"
    assert UpstreamGrant.objects.exists()


def ids(site: Any, oauth: dict[str, Any]) -> list[str]:
    site.MCP_DJANGO = {"OAUTH": oauth}
    messages = [*check_providers(None), *check_servers(None)]
    return [str(message.id) for message in messages]


def test_system_checks_name_what_cannot_work(acme, site):
    assert ids(site, configured()) == []
    assert ids(site, configured(CLIENT_ID="")) == ["mcp_oauth.E014"]
    # A missing key is reported by a check of its own.
    assert ids(site, configured(keys=[])) == []
    assert ids(site, configured(keys=["x"])) == ["mcp_oauth.E014"]
    # `orders` requires it.
    assert ids(site, {}) == ["mcp_oauth.E015"]
