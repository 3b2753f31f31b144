"""Texts that a database may take for equal: subjects, addresses, names and ids must match exactly.

MariaDB ignores case, accents and trailing blanks by default, PostgreSQL and SQLite do not. This
file runs on all three (`tests/storage/test_other_databases.py`).
"""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction
from oauth2_provider.models import get_access_token_model

from mcp_django import MCPServer
from mcp_django.auth.backends.jwt import clear_key_stores
from mcp_django.models import Component, ExternalIdentity, Session, Task, tokens
from mcp_django.oauth import assertions
from mcp_django.oauth.models import ClientProfile, UpstreamGrant
from mcp_django.overrides.sync import sync_rows
from tests.auth.issuers import Issuer, issuer
from tests.oauth.exchanges import call, error_of, make_code, post, redeem
from tests.oauth.parties import SETTINGS, make_app, make_user
from tests.oauth.signing import key
from tests.oauth.test_assertions_identity import COMPANY, SECRET, bring, trust, word
from tests.overrides.site import server_of

SUBJECT = "aBcDeF-Alice"
LOOKALIKES = [
    "abcdef-alice",
    "ABCDEF-ALICE",
    "aBcDeF-\u00c1lice",
    "aBcDeF-Alice ",
    "aBcDeF-Alice\u00a0",
    "\uff41BcDeF-Alice",
]
# Databases cannot store NUL (PostgreSQL) or lone surrogates.
UNSTORABLE = ["\0", "a\0b", "\ud800", "a\udc80b"]
UNVERIFIED: Any = {"verify_signature": False}


@pytest.fixture
def assistant(db, site):
    """A client that the company knows, with a secret."""
    trust(site)
    return make_app(client_type="confidential", client_secret=SECRET, registration_source="manual")


@pytest.fixture
def idp(db, site):
    """An issuer whose access tokens the site accepts; loopback needs DEBUG."""
    clear_key_stores()
    with issuer() as company:
        site.DEBUG = True
        accept(site, company)
        yield company
    clear_key_stores()


def accept(site: Any, company: Issuer, **options: Any) -> None:
    issuer = {"ISSUER": company.url, **options}
    site.MCP_DJANGO = {**SETTINGS, "AUTH": ["jwt"], "JWT": [issuer]}


def caller(token: str) -> Any:
    """Return the user that a tool sees, or ``None`` for a rejected token."""
    response = call(token)
    if response.status_code == 401:
        return None
    return response.json()["result"]["content"][0]["text"]


# Subjects of other issuers ------------------------------------------------------------------------


@pytest.mark.parametrize("subject", LOOKALIKES)
def test_a_subject_that_looks_alike_is_not_the_user_of_a_bearer(idp, subject):
    ExternalIdentity.objects.create(issuer=idp.url, subject=SUBJECT, user=make_user("alice"))
    assert caller(idp.token(sub=subject)) is None
    assert caller(idp.token(sub=SUBJECT)) == "alice"


@pytest.mark.parametrize("subject", LOOKALIKES)
def test_a_subject_that_looks_alike_is_not_the_user_of_an_assertion(assistant, subject):
    ExternalIdentity.objects.create(issuer=COMPANY, subject=SUBJECT, user=make_user("alice"))
    response = bring(assistant, word(assistant, sub=subject))
    assert error_of(response) == (400, "invalid_grant")
    assert not get_access_token_model().objects.exists()
    assert bring(assistant, word(assistant, sub=SUBJECT)).status_code == 200


def test_subjects_that_look_alike_are_two_users(idp, site):
    accept(site, idp, UNKNOWN_USERS="create")
    names = {subject: f"user-{number}" for number, subject in enumerate([SUBJECT, *LOOKALIKES])}
    for subject, name in names.items():
        assert caller(idp.token(sub=subject, preferred_username=name)) == name
    assert ExternalIdentity.objects.count() == len(names)
    for subject, name in names.items():
        assert caller(idp.token(sub=subject)) == name


# Linking by an address or a name ------------------------------------------------------------------


@pytest.mark.parametrize("verified", ["false", "true", 0, 1, "", [], {}, False])
def test_an_address_links_only_if_it_is_verified(assistant, site, verified):
    trust(site, EMAIL_AUTHORITATIVE=True)
    make_user("mike", email="mike@corp.example")
    claims = {"email": "mike@corp.example", "email_verified": verified}
    response = bring(assistant, word(assistant, **claims))
    assert error_of(response) == (400, "invalid_grant")
    assert not ExternalIdentity.objects.exists()


@pytest.mark.parametrize(("claims", "status"), [({"email_verified": None}, 400), ({}, 200)])
def test_an_address_whose_verification_is_null_is_not_verified(assistant, site, claims, status):
    trust(site, EMAIL_AUTHORITATIVE=True)
    make_user("mike", email="mike@corp.example")
    assertion = word(assistant, email="mike@corp.example")
    # Signed here, because `word` leaves out claims that are None.
    signed = jwt.encode(
        {**jwt.decode(assertion, options=UNVERIFIED), **claims},
        key("company", "EC"),
        algorithm="ES256",
        headers=jwt.get_unverified_header(assertion),
    )
    assert bring(assistant, signed).status_code == status


@pytest.mark.parametrize(
    "address",
    [
        "m\u0131ke@corp.example",  # a dotless i, which PostgreSQL takes for an i if it ignores case
        "m\u00efke@corp.example",
        "mik\u00e9@corp.example",
        "mi\u212ae@corp.example",  # the Kelvin sign, which is a k if case is ignored
        "\uff4dike@corp.example",
        "mike@corp.example ",
        "mike@corp.example\0",
        "mike%",
    ],
)
def test_an_address_that_looks_alike_links_no_user(assistant, site, address):
    trust(site, EMAIL_AUTHORITATIVE=True)
    mike = make_user("mike", email="mike@corp.example")
    response = bring(assistant, word(assistant, sub="new", email=address, email_verified=True))
    assert error_of(response) == (400, "invalid_grant")
    assert not ExternalIdentity.objects.exists()
    exact = word(assistant, sub="known", email="Mike@CORP.example", email_verified=True)
    assert bring(assistant, exact).status_code == 200
    assert ExternalIdentity.objects.get().user == mike


def test_users_with_addresses_that_look_alike_do_not_prevent_a_link(assistant, site):
    trust(site, EMAIL_AUTHORITATIVE=True)
    mike = make_user("mike", email="mike@corp.example")
    for number, address in enumerate(["m\u0131ke@corp.example", "mik\u00e9@corp.example"]):
        make_user(f"other-{number}", email=address)
    response = bring(assistant, word(assistant, sub="known", email="mike@corp.example"))
    assert response.status_code == 200
    assert ExternalIdentity.objects.get().user == mike


@pytest.mark.parametrize("mode", ["link", "link-or-create"])
@pytest.mark.parametrize(
    "name", ["\uff41lice", "ALICE", "\u00e1lice", "alice ", "alice\0", "a\u0301lice"]
)
def test_a_name_that_looks_alike_is_not_linked(idp, site, name, mode):
    accept(site, idp, UNKNOWN_USERS=mode)
    alice = make_user("alice")
    linked = caller(idp.token(sub="new", preferred_username=name))
    assert not ExternalIdentity.objects.filter(user=alice).exists()
    assert linked is None or get_user_model().objects.get(username=name) != alice
    assert caller(idp.token(sub="known", preferred_username="alice")) == "alice"
    assert ExternalIdentity.objects.get(user=alice).subject == "known"


def test_a_name_that_is_not_normalized_creates_no_user(idp, site):
    accept(site, idp, UNKNOWN_USERS="link-or-create")
    assert caller(idp.token(sub="first", preferred_username="\uff41lice")) is None
    assert not get_user_model().objects.exists()


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        ("new@corp.example", "new@corp.example"),
        ("Mike@corp.example", ""),
        ("new@corp.example\0", ""),
    ],
)
def test_a_created_user_does_not_get_the_address_of_another(idp, site, address, stored):
    accept(site, idp, UNKNOWN_USERS="create")
    make_user("mike", email="mike@corp.example")
    token = idp.token(preferred_username="copycat", email=address, email_verified=True)
    assert caller(token) == "copycat"
    assert get_user_model().objects.get(username="copycat").email == stored


def test_groups_are_mapped_by_their_exact_names(idp, site):
    accept(site, idp, GROUPS={"admins": "Staff"}, GROUPS_CLAIM="groups")
    user = make_user("alice")
    user.groups.add(Group.objects.create(name="staff"))
    ExternalIdentity.objects.create(issuer=idp.url, subject=SUBJECT, user=user)
    for groups in (["admins"], []):
        assert caller(idp.token(sub=SUBJECT, groups=groups)) == "alice"
        assert [group.name for group in user.groups.all()] == ["staff"]


# Texts that no database stores --------------------------------------------------------------------


@pytest.mark.parametrize("text", UNSTORABLE)
@pytest.mark.parametrize("claim", ["sub", "email", "jti", "client_id", "scope", "tenant"])
def test_an_assertion_with_a_text_that_cannot_be_stored_is_rejected(assistant, site, claim, text):
    trust(site, EMAIL_AUTHORITATIVE=True, UNKNOWN_USERS="link")
    make_user("mike", email="mike@corp.example")
    response = bring(assistant, word(assistant, **{claim: text}))
    assert error_of(response) == (400, "invalid_grant")


@pytest.mark.parametrize("text", UNSTORABLE)
@pytest.mark.parametrize("claim", ["sub", "preferred_username"])
def test_a_bearer_with_a_text_that_cannot_be_stored_is_rejected(idp, site, claim, text):
    accept(site, idp, UNKNOWN_USERS="link-or-create")
    assert caller(idp.token(**{claim: text})) is None


def test_the_id_of_a_bearer_may_be_any_text(idp):
    ExternalIdentity.objects.create(issuer=idp.url, subject=SUBJECT, user=make_user("alice"))
    assert caller(idp.token(sub=SUBJECT, jti="\ud800")) == "alice"


@pytest.mark.parametrize("text", UNSTORABLE)
@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke"])
def test_an_unsigned_client_assertion_with_such_a_subject_is_rejected(db, path, text):
    form = {
        "grant_type": "refresh_token",
        "refresh_token": "x",
        "token": "x",
        "client_assertion": jwt.encode({"sub": text}, "k" * 32, algorithm="HS256"),
        "client_assertion_type": assertions.TYPE,
    }
    assert error_of(post(form, path=path)) == (401, "invalid_client")


# Clients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("presented", ["CLIENT-ONE", "cli\u00e9nt-one", "client-one "])
def test_a_client_id_that_looks_alike_is_unknown(db, site, presented):
    user = make_user()
    app = make_app(client_id="client-one")
    code, verifier = make_code(user, app)
    response = redeem(app, code, verifier, client_id=presented)
    assert error_of(response) == (401, "invalid_client")
    assert redeem(app, code, verifier).status_code == 200


# Rows of this package -----------------------------------------------------------------------------


def test_rows_whose_keys_look_alike_are_different_rows(db):
    user = make_user()
    for subject in (SUBJECT, *LOOKALIKES):
        ExternalIdentity.objects.create(issuer=COMPANY, subject=subject, user=user)
        ClientProfile.objects.create(client_id=subject)
        Session.objects.create(
            digest=tokens.token_digest(subject),
            server="shop",
            principal=subject,
            protocol_version="2025-11-25",
            seen_at="2026-01-01T00:00:00Z",
            expires_at="2026-01-02T00:00:00Z",
        )
        Task.objects.create(
            task_id=subject,
            server="shop",
            tool="export",
            principal=subject,
            expires_at="2026-01-02T00:00:00Z",
            ttl_ms=1,
            poll_ms=1,
        )
    for rows in (
        ExternalIdentity.objects.filter(subject=SUBJECT),
        ClientProfile.objects.filter(client_id=SUBJECT),
        Session.objects.filter(principal=SUBJECT),
        Task.objects.filter(task_id=SUBJECT),
        Task.objects.filter(principal__in=[SUBJECT]),
    ):
        assert rows.count() == 1
    # A search ignores case on every database.
    assert ExternalIdentity.objects.filter(subject__icontains="ABCDEF").count() >= 3
    assert ClientProfile.objects.filter(client_id__iexact="abcdef-alice").count() >= 3
    assert ExternalIdentity.objects.filter(subject__istartswith="ABCdef").count() >= 3
    assert ExternalIdentity.objects.filter(subject__iendswith="-ALICE").count() >= 3
    with pytest.raises(IntegrityError), transaction.atomic():
        ClientProfile.objects.create(client_id=SUBJECT)


def test_access_at_a_provider_is_found_by_the_exact_subject_and_session(db):
    for number, subject in enumerate([SUBJECT, *LOOKALIKES]):
        UpstreamGrant.objects.create(
            provider="acme",
            user=make_user(f"user-{number}"),
            subject=subject,
            session_id=subject,
            access_cipher=b"",
        )
    assert UpstreamGrant.objects.filter(subject=SUBJECT).count() == 1
    assert UpstreamGrant.objects.filter(session_id__in=["", SUBJECT]).count() == 1


def test_components_whose_names_differ_in_case_have_a_row_each(db):
    server: MCPServer = server_of("letters", "plain")

    @server.tool(read_only=True)
    def export() -> str:
        """Export."""
        return ""

    @server.tool(name="Export", read_only=True)
    def export_all() -> str:
        """Export all."""
        return ""

    @server.resource("notes://Today", description="Notes.")
    def today() -> str:
        return ""

    @server.resource("notes://today", name="today_2", description="Notes.")
    def today_2() -> str:
        return ""

    sync_rows([server])
    keys = {"export", "Export", "notes://Today", "notes://today"}
    rows = Component.objects.filter(server="letters", key__in=keys)
    assert {row.key for row in rows} == keys
    Component.objects.filter(server="letters", key="Export").update(is_enabled=False)
    server.refresh()
    assert {row.key for row in rows.filter(is_enabled=False)} == {"Export"}
