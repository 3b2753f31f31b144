"""Access tokens of another issuer, verified with its keys."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("jwt")

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import IntegrityError, connections
from django.test import Client, RequestFactory

from mcp_django.auth import authentication
from mcp_django.auth.backends import external, get_backend, jwt
from mcp_django.auth.credentials import Credentials
from mcp_django.models import ExternalIdentity
from mcp_django.protocol.headers import Headers
from tests.auth.issuers import RESOURCE, Issuer, encoded, issuer, private_key, published
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.spec import spec

pytestmark = pytest.mark.django_db

WHOAMI = message("tools/call", {"name": "whoami"})


@pytest.fixture
def idp(settings):
    """An issuer that the site trusts; loopback needs DEBUG."""
    cache.clear()
    jwt.clear_key_stores()
    with issuer() as provider:
        settings.DEBUG = True
        trust(settings, provider)
        yield provider
    cache.clear()
    jwt.clear_key_stores()


def trust(settings: Any, provider: Issuer, **options: Any) -> None:
    settings.MCP_DJANGO = {"AUTH": ["jwt", "tokens"], "JWT": [{"ISSUER": provider.url, **options}]}


@pytest.fixture
def ada(idp):
    """The user that the issuer's subject is."""
    user = person()
    ExternalIdentity.objects.create(issuer=idp.url, subject="subject-1", user=user)
    return user


def call(token: str) -> Any:
    return post("/mcp", WHOAMI, token=token)


def caller(response: Any) -> tuple[str, str]:
    assert response.status_code == 200, response.content
    result = response.json()["result"]["structuredContent"]
    return result["user"], result["backend"]


def principal(token: str) -> Any:
    pairs = [(b"authorization", f"Bearer {token}".encode())]
    request = RequestFactory().post("/mcp")
    presented = Credentials(headers=Headers(pairs), query="", request=lambda: request)
    return get_backend("jwt").authenticate(presented)


# What is taken --------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_token_of_each_algorithm_stands_for_its_subject(algorithm, idp, ada):
    idp.publish("k", algorithm)
    assert caller(call(idp.token(algorithm=algorithm, kid="k"))) == ("ada", "jwt")


@pytest.mark.parametrize(
    "changes",
    [
        {"typ": "application/AT+JWT"},
        {"typ": "JWT"},
        {"typ": None},
        {"kid": None},
        {"aud": ["https://elsewhere.example", RESOURCE]},
        {"aud": "HTTP://TestServer:80/mcp/"},
        {"scope": None, "scp": ["mcp"]},
        {"scope": None, "scp": "other mcp"},
        {"azp": None},
    ],
)
def test_what_issuers_write_differently_is_read(changes, idp, ada):
    assert caller(call(idp.token(**changes))) == ("ada", "jwt")


def test_a_principal_says_what_the_token_says_and_holds_no_token(idp, ada):
    token = idp.token()
    token_principal = principal(token)
    assert (token_principal.issuer, token_principal.subject, token_principal.audience) == (
        idp.url,
        "subject-1",
        RESOURCE,
    )
    assert (token_principal.client_id, token_principal.scopes) == ("client-1", frozenset({"mcp"}))
    assert token_principal.key == f"user:{ada.pk}@{idp.url.removeprefix('http://')}#client-1"
    identifier = f"{idp.url} token-1".encode()
    assert token_principal.credential == f"jwt:{hashlib.sha256(identifier).hexdigest()}"
    assert int(token_principal.expires_at.timestamp()) == token_principal.claims["exp"]
    with pytest.raises(TypeError):
        token_principal.claims["sub"] = "somebody"
    assert token not in repr(token_principal)


def test_a_long_client_id_still_makes_a_key_that_fits(idp, ada):
    first = principal(idp.token(azp="https://client.example/" + "x" * 200))
    second = principal(idp.token(azp="https://client.example/" + "x" * 199 + "y"))
    assert first.key != second.key
    assert max(len(first.key), len(second.key)) <= 100


def test_a_known_subject_costs_one_query(idp, ada, django_assert_num_queries):
    token = idp.token()
    call(token)
    with django_assert_num_queries(1):
        assert call(token).status_code == 200


def test_scopes_are_translated_where_the_entry_says_how(idp, ada, settings):
    trust(settings, idp, SCOPE_CLAIM="roles", SCOPES={"Tools.Use": ["mcp", "mcp:write"]})
    token = idp.token(scope=None, roles=["Tools.Use", "Other", 5])
    assert principal(token).scopes == {"mcp", "mcp:write", "Other"}


@spec("AUT-9")
def test_an_audience_of_the_settings_is_taken_beside_the_address(idp, ada, settings):
    token = idp.token(aud="api://orders")
    assert call(token).status_code == 401
    trust(settings, idp, AUDIENCES=["api://orders"])
    assert caller(call(token)) == ("ada", "jwt")


def test_an_entry_may_be_for_some_servers(idp, ada, settings):
    trust(settings, idp, SERVERS=["staff"])
    assert call(idp.token()).status_code == 401
    trust(settings, idp, SERVERS=["default"])
    assert caller(call(idp.token())) == ("ada", "jwt")


def test_the_issuers_are_those_of_the_server(idp, settings):
    request = RequestFactory().get("/")
    trust(settings, idp, SERVERS=["staff"])
    assert list(get_backend("jwt").issuers(request, "staff")) == [idp.url]
    assert list(get_backend("jwt").issuers(request, "default")) == []


@spec("AUT-4", "AUT-14")
def test_clients_are_led_to_the_issuer(idp, ada, settings):
    settings.ROOT_URLCONF = "tests.auth.urls"
    trust(settings, idp, SERVERS=["default"])
    refused = post("/mcp", WHOAMI)
    assert refused.status_code == 401
    address = "http://testserver/.well-known/oauth-protected-resource/mcp"
    assert f'resource_metadata="{address}"' in refused["WWW-Authenticate"]
    metadata = Client().get("/.well-known/oauth-protected-resource/mcp").json()
    assert (metadata["resource"], metadata["authorization_servers"]) == (RESOURCE, [idp.url])
    assert Client().get("/.well-known/oauth-protected-resource/staff/mcp").status_code == 404
    assert caller(call(idp.token(aud=metadata["resource"]))) == ("ada", "jwt")


@spec("AUT-6")
def test_a_token_without_the_scope_of_the_server_is_asked_to_get_it(idp, ada):
    response = call(idp.token(scope="openid"))
    assert response.status_code == 403
    assert 'error="insufficient_scope"' in response["WWW-Authenticate"]
    assert 'scope="mcp"' in response["WWW-Authenticate"]


# What is refused ------------------------------------------------------------------------------


def hmac_with_public_key(idp: Issuer) -> str:
    """Sign a token with the public key as an HMAC secret, which is the oldest attack."""
    public = private_key("RS256").public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa', 'typ': 'at+jwt'})}.{encoded(idp.claims())}"
    mac = hmac.new(secret, signed.encode(), "sha256").digest()
    return f"{signed}.{encoded_bytes(mac)}"


def encoded_bytes(value: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value).rstrip(b"=").decode()


def unsigned(idp: Issuer, alg: str = "none") -> str:
    return f"{encoded({'alg': alg, 'kid': 'rsa', 'typ': 'at+jwt'})}.{encoded(idp.claims())}."


def of(**changes: Any) -> Callable[[Issuer], str]:
    return lambda idp: idp.token(**changes)


def later(seconds: int) -> int:
    return int(time.time()) + seconds


def keycloak(idp: Issuer, kind: str) -> str:
    import jwt

    claims = {**idp.claims(), "typ": kind}
    return jwt.encode(claims, private_key("RS256"), algorithm="RS256", headers={"kid": "rsa"})


def tampered(idp: Issuer) -> str:
    header, _, signature = idp.token().split(".")
    return f"{header}.{encoded(idp.claims(sub='somebody'))}.{signature}"


BAD: dict[str, Callable[[Issuer], str]] = {
    "alg none": unsigned,
    "alg None": lambda idp: unsigned(idp, "None"),
    "HS256 with the public key": hmac_with_public_key,
    "algorithm not listed": of(algorithm="RS512"),
    "key of another": of(number=1),
    "unknown kid": of(kid="unknown"),
    "kid of an EC key for RSA": lambda idp: idp.token(algorithm="ES256", kid="rsa"),
    "jwk in the header": lambda idp: idp.token(
        number=1, kid=None, header={"jwk": published("RS256", private_key("RS256", 1))}
    ),
    "expired": lambda idp: idp.token(exp=later(-31)),
    "without exp": of(exp=None),
    "exp is infinite": lambda idp: idp.token(exp=float("inf")),
    "not yet valid": lambda idp: idp.token(nbf=later(60)),
    "issued in the future": lambda idp: idp.token(iat=later(60)),
    "another issuer": of(iss="https://elsewhere.example"),
    "issuer with a slash more": lambda idp: idp.token(iss=f"{idp.url}/"),
    "without iss": of(iss=None),
    "another audience": of(aud="https://elsewhere.example/mcp"),
    "another server here": of(aud="http://testserver/staff/mcp"),
    "the origin": of(aud="http://testserver"),
    "the path continued": of(aud="http://testserver/mcp/more"),
    "a case of its own": of(aud="http://testserver/MCP"),
    "no audience": of(aud=None),
    "empty audiences": of(aud=[]),
    "without sub": of(sub=None),
    "empty sub": of(sub=""),
    "long sub": of(sub="x" * 256),
    "typ of an assertion": of(typ="oauth-id-jag+jwt"),
    "typ of a logout token": of(typ="logout+jwt"),
    "crit": of(header={"crit": ["exp"], "exp": 1}),
    "ID token with a nonce": of(typ="JWT", nonce="n"),
    "ID token with at_hash": of(typ="JWT", at_hash="h"),
    "ID token for its client": of(typ="JWT", azp=RESOURCE),
    "Keycloak's ID token": lambda idp: keycloak(idp, "ID"),
    "Keycloak's refresh token": lambda idp: keycloak(idp, "Refresh"),
    "Cognito's ID token": of(token_use="id"),
    "logout token": of(events={"http://schemas.openid.net/event/backchannel-logout": {}}),
    "bound to a key": of(cnf={"jkt": "x"}),
    "signature cut off": lambda idp: idp.token().rpartition(".")[0] + ".",
    "payload changed": tampered,
    "payload that nests": lambda idp: f"{encoded({'alg': 'RS256'})}.{encoded_bytes(b'[' * 2900)}.x",
    "no JWT": lambda idp: "a.b.c",
    "encrypted": lambda idp: "a.b.c.d.e",
}


@spec("AUT-3", "AUT-9", "AUT-10")
@pytest.mark.parametrize("case", BAD)
def test_threat_24_a_token_that_does_not_hold_is_refused(case, idp, ada):
    token = BAD[case](idp)
    response = call(token)
    assert response.status_code == 401
    assert 'error="invalid_token"' in response["WWW-Authenticate"]
    assert token not in str(response.content) + str(response.headers)
    # A valid token of the same issuer is accepted, so each case is rejected for its own reason.
    assert caller(call(idp.token())) == ("ada", "jwt")


def test_threat_24_a_strict_entry_takes_at_jwt_alone(idp, ada, settings):
    trust(settings, idp, STRICT_TYP=True)
    assert call(idp.token(typ="JWT")).status_code == 401
    assert call(idp.token(typ=None)).status_code == 401
    assert caller(call(idp.token())) == ("ada", "jwt")


def test_threat_24_a_client_id_as_audience_needs_a_token_that_names_itself(idp, ada, settings):
    trust(settings, idp, AUDIENCES=["client-1"])
    assert call(idp.token(aud="client-1", typ="JWT")).status_code == 401
    assert caller(call(idp.token(aud="client-1"))) == ("ada", "jwt")


@pytest.mark.parametrize(
    "key",
    [
        published("RS256", private_key("RS256", bits=1024), kid="k"),
        published("RS256", private_key("RS256"), kid="k", use="enc"),
        published("RS256", private_key("RS256"), kid="k", alg="RS384"),
        published("RS256", private_key("RS256"), kid="k", key_ops=["encrypt"]),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "k"},
        {"kty": "RSA", "n": "broken", "e": 5, "kid": "k"},
        {"kid": "k"},
    ],
)
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_key_that_is_none_for_signatures_is_not_used(key, idp, ada):
    idp.keys = [key]
    assert call(idp.token(kid="k")).status_code == 401


def test_a_token_without_a_kid_among_several_keys_is_refused(idp, ada):
    idp.keys += [published("RS256", private_key("RS256", 1), kid="other")]
    assert call(idp.token(kid=None)).status_code == 401
    assert caller(call(idp.token())) == ("ada", "jwt")


# Keys -----------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock of the key stores, which stands still until a test moves it."""
    fake_clock = Clock()
    stores: dict[str, jwt.KeyStore] = {}

    def key_store(issuer: Any) -> jwt.KeyStore:
        if issuer.issuer not in stores:
            stores[issuer.issuer] = jwt.KeyStore(issuer, clock=fake_clock)
        return stores[issuer.issuer]

    monkeypatch.setattr("mcp_django.auth.backends.jwt.key_store", key_store)
    return fake_clock


def test_keys_are_fetched_once_while_they_are_fresh(idp, ada, clock):
    for _ in range(3):
        assert call(idp.token()).status_code == 200
    assert idp.asked["/keys"] == 1
    clock.now += 601
    assert call(idp.token()).status_code == 200
    assert idp.asked["/keys"] == 2


def test_a_new_key_is_fetched_once(idp, ada, clock):
    assert call(idp.token()).status_code == 200
    idp.publish("new", number=1)
    clock.now += 31
    for _ in range(2):
        assert caller(call(idp.token(kid="new", number=1))) == ("ada", "jwt")
    assert idp.asked["/keys"] == 2
    assert call(idp.token()).status_code == 401, "the old key is gone"


def test_threat_24_a_storm_of_unknown_keys_fetches_once_in_thirty_seconds(idp, ada, clock):
    assert call(idp.token()).status_code == 200
    for number in range(10):
        assert call(idp.token(kid=f"unknown-{number}")).status_code == 401
    assert idp.asked["/keys"] == 1
    clock.now += 31
    for number in range(10):
        assert call(idp.token(kid=f"made-up-{number}")).status_code == 401
    assert idp.asked["/keys"] == 2


def test_threat_24_old_keys_go_on_while_the_issuer_is_down(idp, ada, clock):
    assert call(idp.token()).status_code == 200
    idp.say("/keys", dict, status=500)
    clock.now += 3600
    for _ in range(3):
        assert caller(call(idp.token())) == ("ada", "jwt")
    assert idp.asked["/keys"] == 2
    clock.now += 24 * 3600
    response = call(idp.token())
    assert response.status_code == 503
    assert int(response["Retry-After"]) > 0
    assert "WWW-Authenticate" not in response
    assert "Authorization" in response["Vary"]


def test_a_process_that_starts_while_the_issuer_is_down_takes_the_keys_of_others(idp, ada):
    clock = Clock()
    issuer = get_entry()
    assert jwt.KeyStore(issuer, clock=clock).find("rsa", "RS256")
    idp.say("/keys", dict, status=500)
    clock.now += 3600
    assert jwt.KeyStore(issuer, clock=clock).find("rsa", "RS256")
    assert idp.asked["/keys"] == 2


def test_processes_share_what_one_has_fetched(idp):
    for _ in range(3):
        assert jwt.KeyStore(get_entry()).find("rsa", "RS256")
    assert idp.asked["/keys"] == 1


def test_a_forged_entry_of_the_cache_is_not_believed(idp):
    from mcp_django.auth.outbound import cache_key

    forged = {"fetched_at": time.time(), "keys": [published("RS256", private_key("RS256", 1))]}
    cache.set(cache_key("jwks", idp.url), forged, 600)
    assert jwt.KeyStore(get_entry()).find("rsa", "RS256")
    assert idp.asked["/keys"] == 1


def get_entry() -> Any:
    from mcp_django.conf import get_settings

    return get_settings().jwt[0]


def redirect(body: bytes, headers: Any) -> tuple[int, dict[str, str], bytes]:
    return 302, {"Location": "/elsewhere"}, b""


@pytest.mark.parametrize(
    "answer",
    [
        redirect,
        lambda *_: (200, {}, b"no JSON"),
        lambda *_: (200, {}, b"[]"),
        lambda *_: (200, {}, b'{"keys": 5}'),
        lambda *_: (200, {}, b"{" + b" " * 300_000 + b"}"),
        lambda *_: (204, {}, b""),
        lambda *_: (500, {}, b"{}"),
    ],
)
def test_an_answer_that_is_no_key_set_is_none(answer, idp, ada):
    idp.say("/elsewhere", lambda: {"keys": idp.keys})
    idp.answers["/keys"] = answer
    assert call(idp.token()).status_code == 503
    assert idp.asked["/elsewhere"] == 0


def test_keys_are_found_where_rfc_8414_says(idp, ada):
    del idp.answers["/.well-known/openid-configuration"]
    idp.say("/.well-known/oauth-authorization-server", idp.metadata)
    assert caller(call(idp.token())) == ("ada", "jwt")


def test_metadata_of_another_issuer_names_no_keys(idp, ada):
    other = {"issuer": "https://elsewhere.example", "jwks_uri": f"{idp.url}/keys"}
    idp.say("/.well-known/openid-configuration", lambda: other)
    assert call(idp.token()).status_code == 503


def test_plain_http_is_not_asked_outside_of_development(idp, ada, settings):
    settings.DEBUG = False
    trust(settings, idp, JWKS_URL=f"{idp.url}/keys")
    assert call(idp.token()).status_code == 503
    assert not idp.asked


async def test_nothing_is_fetched_on_the_loop(idp):
    from django.core.exceptions import SynchronousOnlyOperation

    with pytest.raises(SynchronousOnlyOperation):
        jwt.KeyStore(get_entry()).find("rsa", "RS256")
    assert not idp.asked


# Who it is ------------------------------------------------------------------------------------


def test_an_unknown_subject_is_nobody(idp):
    person()
    assert call(idp.token(preferred_username="ada")).status_code == 401
    assert not ExternalIdentity.objects.exists()


def test_a_subject_is_known_for_one_issuer_alone(idp):
    ExternalIdentity.objects.create(
        issuer="https://elsewhere.example", subject="subject-1", user=person()
    )
    assert call(idp.token()).status_code == 401


def test_an_inactive_user_is_refused_and_is_not_current(idp, ada):
    token_principal = principal(idp.token())
    assert authentication.refresh_principal(token_principal) is not None
    ada.is_active = False
    ada.save()
    assert call(idp.token()).status_code == 401
    assert authentication.refresh_principal(token_principal) is None


def test_the_last_use_of_an_identity_is_recorded(idp, ada):
    assert call(idp.token()).status_code == 200
    assert ExternalIdentity.objects.get(user=ada).last_used_at is not None


def test_a_principal_ends_with_its_identity_or_the_trust_in_its_issuer(idp, ada, settings):
    token_principal = principal(idp.token())
    settings.MCP_DJANGO = {"AUTH": ["jwt"], "JWT": [{"ISSUER": "https://elsewhere.example"}]}
    assert authentication.refresh_principal(token_principal) is None
    trust(settings, idp)
    assert authentication.refresh_principal(token_principal) is not None
    ExternalIdentity.objects.all().delete()
    assert authentication.refresh_principal(token_principal) is None


def resolve(claims: Any, issuer: str) -> Any:
    """The user resolver of a site."""
    from django.contrib.auth import get_user_model

    return get_user_model().objects.filter(username=claims.get("employee")).first()


def test_a_resolver_is_asked_once_about_a_subject(idp, settings):
    trust(settings, idp, USER=f"{__name__}.resolve")
    person()
    assert call(idp.token(employee="nobody")).status_code == 401
    assert caller(call(idp.token(employee="ada"))) == ("ada", "jwt")
    person("bob")
    assert caller(call(idp.token(employee="bob"))) == ("ada", "jwt")


@pytest.mark.parametrize(
    ("mode", "existing", "absent"),
    [
        ("refuse", 401, 401),
        ("link", 200, 401),
        ("create", 401, 200),
        ("link-or-create", 200, 200),
    ],
)
def test_an_unknown_user_is_refused_linked_or_created(mode, existing, absent, idp, settings):
    trust(settings, idp, UNKNOWN_USERS=mode)
    person()
    assert call(idp.token(preferred_username="ada")).status_code == existing
    new = idp.token(sub="subject-2", preferred_username="grace")
    assert call(new).status_code == absent
    if absent == 200:
        made = ExternalIdentity.objects.get(subject="subject-2").user
        assert made.username == "grace"
        assert not made.has_usable_password()
        assert not made.is_staff
        assert not made.is_superuser


def test_a_name_that_changes_at_the_issuer_moves_no_account(idp, settings):
    trust(settings, idp, UNKNOWN_USERS="link")
    person("ada")
    person("bob")
    assert caller(call(idp.token(preferred_username="ada"))) == ("ada", "jwt")
    assert caller(call(idp.token(preferred_username="bob"))) == ("ada", "jwt")


@pytest.mark.django_db(transaction=True)
def test_two_first_requests_of_one_subject_make_one_user(idp, settings, monkeypatch):
    trust(settings, idp, UNKNOWN_USERS="create")
    named = external._find_or_create_user

    def introduce() -> None:
        user = person("grace")
        ExternalIdentity.objects.create(issuer=idp.url, subject="subject-1", user=user)
        connections.close_all()

    def named_late(issuer: Any, claims: Any) -> Any:
        other = Thread(target=introduce)
        other.start()
        other.join(5)
        return named(issuer, claims)

    monkeypatch.setattr(external, "_find_or_create_user", named_late)
    assert caller(call(idp.token(preferred_username="grace"))) == ("grace", "jwt")
    assert ExternalIdentity.objects.get().user.username == "grace"


def test_a_name_that_was_taken_at_the_last_moment_is_refused(idp, settings, monkeypatch):
    def taken(name: str, claims: Any) -> Any:
        raise IntegrityError

    trust(settings, idp, UNKNOWN_USERS="create")
    monkeypatch.setattr(external, "_create_user", taken)
    assert call(idp.token(preferred_username="grace")).status_code == 401
    assert not ExternalIdentity.objects.exists()


@pytest.mark.parametrize("name", ["", "a b c!", "x" * 200, 5, None])
def test_what_is_no_username_makes_no_user(name, idp, settings):
    from django.contrib.auth import get_user_model

    trust(settings, idp, UNKNOWN_USERS="create")
    assert call(idp.token(preferred_username=name)).status_code == 401
    assert not get_user_model().objects.exists()


@pytest.mark.parametrize(("verified", "expected"), [(True, 200), (False, 401), ("true", 401)])
def test_an_address_names_a_user_once_the_issuer_has_verified_it(verified, expected, idp, settings):
    trust(settings, idp, UNKNOWN_USERS="link", USERNAME_CLAIM="email")
    person("ada@shop.example")
    token = idp.token(email="ada@shop.example", email_verified=verified)
    assert call(token).status_code == expected


def test_groups_follow_the_map_and_no_other_group_moves(idp, ada, settings):
    editors, buyers, own = (
        Group.objects.create(name=name) for name in ("editors", "buyers", "own")
    )
    ada.groups.add(buyers, own)
    trust(
        settings,
        idp,
        GROUPS_CLAIM="realm_access.roles",
        GROUPS={"editor": "editors", "buyer": "buyers", "ghost": "not there"},
    )
    assert call(idp.token(realm_access={"roles": ["editor", "own", "ghost"]})).status_code == 200
    assert set(ada.groups.all()) == {editors, own}
    assert call(idp.token()).status_code == 200
    assert set(ada.groups.all()) == {own}


# Beside others --------------------------------------------------------------------------------


def test_tokens_of_the_site_pass_beside(idp, ada):
    _, plaintext = token_for(ada)
    assert caller(post("/mcp", WHOAMI, token=plaintext)) == ("ada", "tokens")
    assert not idp.asked
