"""Callers with tokens of other issuers that were verified and confirmed a moment ago."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("jwt")

from django.contrib.auth.models import Group, User
from django.core.cache import cache as django_cache
from django.utils import timezone

from mcp_django import Context, MCPServer
from mcp_django.auth import authentication
from mcp_django.auth.authentication import caller_cache, caller_key, why_not_cached
from mcp_django.auth.backends import external, get_backend, jwt
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.permissions import InGroups
from mcp_django.auth.principal import Claims
from mcp_django.exceptions import AuthenticationUnavailable
from mcp_django.models import ExternalIdentity
from mcp_django.protocol.headers import Headers
from tests.auth.issuers import Answer, Issuer, issuer
from tests.auth.test_authentication_confirmed import HIDDEN, ask as ask_server
from tests.kit.confirming import Database, _clock, _database  # noqa: F401 - fixtures
from tests.kit.servers import person
from tests.spec import spec

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

RESOURCE = "http://testserver/"
ROLES = "a b"

border = MCPServer("border", auth=["jwt", "introspection"])


@border.tool(read_only=True)
def plain(ctx: Context) -> str:
    """Return the name of the user."""
    return ctx.user.get_username()


@border.tool(read_only=True, permission=InGroups(["team"]))
def team() -> str:
    """Return a word to the team."""
    return "done"


@border.tool(read_only=True)
def change_claims(ctx: Context) -> str:
    """Return the roles of the token, and change what the tool got."""
    roles = ctx.principal.claims["roles"]
    text = " ".join(roles)
    roles.append("x")
    return text


ask = partial(ask_server, server=border)


class Border(NamedTuple):
    """An issuer that the site trusts with one of the backends, a user's identity, and its token."""

    issuer: Issuer
    identity: ExternalIdentity
    token: str
    trust: Callable[..., None]
    kind: str

    def heat(self, database: Database) -> None:
        """Call until the caller is cached, and assert that the last call needs no statement."""
        # The first call queries the issuer, and the second one queries the database.
        for _ in range(2):
            assert ask(self.token, "change_claims") == ROLES
        with database.quiet():
            assert ask(self.token, "change_claims") == ROLES


@pytest.fixture(params=["jwt", "introspection"])
def at_border(request, settings):
    django_cache.clear()
    jwt.clear_key_stores()
    with issuer() as provider:
        settings.DEBUG = True

        def trust(**options: Any) -> None:
            trusted = {"ISSUER": provider.url, **options}
            if request.param == "introspection":
                trusted |= {"URL": f"{provider.url}/ask", "CLIENT_ID": "site", "CLIENT_SECRET": "x"}
            settings.MCP_DJANGO = {"CONFIRM_SECONDS": 1, request.param.upper(): [trusted]}

        trust()
        claims = {"aud": RESOURCE, "roles": ROLES.split(), "exp": int(time.time()) + 7200}
        if request.param == "jwt":
            token = provider.token(**claims)
        else:
            token = "opaque"
            know(provider, claims)
        identity = ExternalIdentity.objects.create(
            issuer=provider.url, subject="subject-1", user=person("ada")
        )
        yield Border(provider, identity, token, trust, request.param)
    django_cache.clear()
    jwt.clear_key_stores()


def know(provider: Issuer, claims: dict[str, Any] | None) -> None:
    """Make the issuer's introspection return these claims for each token, or "inactive"."""

    def answer(body: bytes, headers: Any) -> Answer:
        response = {"active": False}
        if claims is not None:
            response = {"active": True, "token_type": "Bearer", **provider.claims(**claims)}
        return 200, {}, json.dumps(response).encode()

    provider.answers["/ask"] = answer


@pytest.fixture
def verified(monkeypatch):
    """The tokens whose signatures were verified, in order."""
    calls: list[str] = []
    decode = jwt.jwt.decode

    def noted(token: str, **options: Any) -> Any:
        calls.append(token)
        return decode(token, **options)

    monkeypatch.setattr(jwt.jwt, "decode", noted)
    return calls


@spec("AUT-1")
def test_a_caller_in_use_needs_no_statement_and_is_verified_once(
    at_border, database, clock, verified
):
    at_border.heat(database)
    for _ in range(5):
        clock.move(0.4)
        database.statements.clear()
        assert caller_cache.confirm() == 1
        # The identity with its user, permissions of the user and of groups, names of groups.
        assert len(database.statements) == 4
        with database.quiet():
            assert ask(at_border.token, "change_claims") == ROLES, "each request has its own claims"
    # A changed user is queried again, but the token is not verified again.
    at_border.identity.user.save()
    assert ask(at_border.token, "change_claims") == ROLES
    if at_border.kind == "jwt":
        assert verified == [at_border.token]
    else:
        assert at_border.issuer.asked["/ask"] == 1


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_the_first_request_with_a_signed_token_suffices(at_border, database):
    assert ask(at_border.token, "change_claims") == ROLES
    with database.quiet():
        assert ask(at_border.token, "change_claims") == ROLES


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_clients_that_come_back_at_once_cost_a_few_statements(at_border, database):
    users = User.objects.bulk_create(User(username=f"user-{number}") for number in range(300))
    subjects = {f"s-{number}": user for number, user in enumerate(users)}
    ExternalIdentity.objects.bulk_create(
        ExternalIdentity(issuer=at_border.issuer.url, subject=subject, user=user)
        for subject, user in subjects.items()
    )
    tokens = [at_border.issuer.token(aud=RESOURCE, sub=subject) for subject in subjects]
    keys = [prepared_key(token) for token in tokens]
    database.statements.clear()
    assert len(caller_cache.read(keys)) == 300
    # The last uses of identities are stored after the requests.
    assert (
        len([statement for statement in database.statements if statement.startswith("SELECT")]) == 4
    )


def prepared_key(token: str) -> Any:
    """Return the key of a caller whose signature is verified, as in the thread of a request."""
    from django.test import RequestFactory

    presented = Credentials(
        headers=Headers([(b"authorization", f"Bearer {token}".encode())]),
        query="",
        request=lambda: RequestFactory().post("/"),
        server="border",
    )
    key = caller_key(["jwt", "introspection"], presented)
    assert key is not None
    get_backend("jwt").prepare(key, presented)
    return key


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_a_token_without_a_possible_subject_costs_no_other_caller(at_border):
    tokens = [at_border.issuer.token(aud=RESOURCE, sub=sub) for sub in ("\ud800", "a\0b")]
    keys = [prepared_key(token) for token in (*tokens, at_border.token)]
    assert list(caller_cache.read(keys)) == keys[2:]
    assert [ask(token) for token in tokens] == [401, 401]


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_one_token_is_remembered_once(at_border, settings):
    settings.ALLOWED_HOSTS = ["*"]
    at_border.trust(AUDIENCES=[RESOURCE])
    for port in range(20):
        assert ask(at_border.token, host=f"testserver:{8000 + port}") == "ada"
    backend: Any = get_backend("jwt")
    assert len(backend._verified) == 1


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_claims_that_are_too_long_are_not_kept(at_border, monkeypatch):
    monkeypatch.setattr(external, "MAX_CLAIMS", 10)
    for _ in range(2):
        assert ask(at_border.token) == "ada"
    backend: Any = get_backend("jwt")
    assert not backend._verified


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_long_headers_are_not_kept(at_border, settings):
    settings.ALLOWED_HOSTS = ["*"]
    authentication._places.clear()
    for number in range(5):
        assert ask("unknown", **{"x-forwarded-host": f"{number}{'x' * 5000}"}) == 401
    assert not [place for place in authentication._places if len(repr(place)) > 2000]


def test_claims_can_be_used_as_a_mapping():
    claims = Claims('{"sub": "one"}')
    assert claims == {"sub": "one"}
    assert claims | {"x": 1} == {"x": 1} | claims == {"sub": "one", "x": 1}
    assert claims.copy() == {"sub": "one"}
    with pytest.raises(TypeError):
        claims["sub"] = "two"


def test_a_forked_child_waits_for_no_thread_of_its_parent(at_border):
    backend: Any = get_backend(at_border.kind)
    with backend._lock:
        external._replace_locks()
        assert ask(at_border.token) == "ada"


# What is noticed at once --------------------------------------------------------------------------


def deactivate(at_border: Border) -> None:
    at_border.identity.user.is_active = False
    at_border.identity.user.save()


def forget_issuer(at_border: Border) -> None:
    at_border.trust(SERVERS=["another"])


@spec("AUT-1", "AUT-11")
@pytest.mark.parametrize(
    "change",
    [
        deactivate,
        forget_issuer,
        lambda at_border: at_border.identity.delete(),
        lambda at_border: ExternalIdentity.objects.all().delete(),
        lambda at_border: at_border.identity.user.delete(),
    ],
)
def test_a_caller_whose_access_ends_is_refused_at_once(at_border, database, change):
    at_border.heat(database)
    change(at_border)
    assert ask(at_border.token) == 401


def test_a_subject_that_is_given_to_another_user_is_that_user_at_once(at_border, database):
    at_border.heat(database)
    assert ask(at_border.token) == "ada"
    at_border.identity.user = person("bob")
    at_border.identity.save()
    assert ask(at_border.token) == "bob"


@spec("AUT-9")
def test_a_known_token_is_not_accepted_for_another_resource(at_border, database, settings):
    settings.ALLOWED_HOSTS = ["*"]
    at_border.heat(database)
    assert ask(at_border.token, host="elsewhere.example") == 401


# What is noticed within a second ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (lambda: User.objects.filter(username="ada").update(is_active=False), 401),
        (lambda: ExternalIdentity.objects.update(user=person("bob")), "bob"),
        (lambda: ExternalIdentity.objects.update(subject="another"), 401),
    ],
)
def test_what_sends_no_signal_is_noticed_within_a_second(
    at_border, database, clock, change, answer
):
    at_border.heat(database)
    change()
    clock.move(0.99)
    with database.quiet():
        assert ask(at_border.token, "change_claims") == ROLES
    clock.move(0.01)
    assert ask(at_border.token) == answer


# When a token is verified again -------------------------------------------------------------------


class Ticking:
    """The clock for verified tokens, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now


@pytest.fixture
def ticking(monkeypatch):
    fake_time = Ticking()
    monkeypatch.setattr(external, "time", fake_time)
    monkeypatch.setattr(jwt.KeyStore.__init__, "__kwdefaults__", {"clock": fake_time.time})
    monkeypatch.setattr("mcp_django.auth.backends.introspection.time", fake_time)
    jwt.clear_key_stores()
    return fake_time


def test_a_token_is_verified_again_in_time(at_border, database, clock, ticking):
    at_border.heat(database)
    # The issuer withdraws the key, or the token.
    at_border.issuer.publish("new", number=1)
    know(at_border.issuer, None)
    seconds = jwt.FRESH_SECONDS if at_border.kind == "jwt" else 60
    ticking.now += seconds - 0.5
    clock.move(0.4)
    assert caller_cache.confirm() == 1
    # A caller that is confirmed now is cached for less than a second.
    clock.move(0.49)
    with database.quiet():
        assert ask(at_border.token, "change_claims") == ROLES
    ticking.now += 0.5
    clock.move(0.01)
    django_cache.clear()
    assert ask(at_border.token) == 401


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_another_key_set_ends_what_was_verified_with_the_old_one(
    at_border, database, clock, ticking
):
    at_border.heat(database)
    at_border.issuer.publish("new", number=1)
    ticking.now += jwt.REFRESH_SECONDS + 1
    assert ask(at_border.issuer.token(kid="new", number=1, aud=RESOURCE)) == "ada"
    clock.move(1)
    assert ask(at_border.token) == 401


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_a_key_set_that_is_fetched_again_unchanged_verifies_nothing_again(
    at_border, database, clock, ticking, verified
):
    at_border.heat(database)
    ticking.now += jwt.REFRESH_SECONDS + 1
    # Any caller may name a key that does not exist.
    assert ask(at_border.issuer.token(kid="made up", aud=RESOURCE)) == 401
    assert at_border.issuer.asked["/keys"] == 2
    clock.move(1)
    assert ask(at_border.token) == "ada"
    assert verified == [at_border.token]


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_an_issuer_whose_keys_cannot_be_had_is_waited_for_once(at_border, monkeypatch):
    waited: list[Any] = []

    def fail(store: Any, *key: Any) -> Any:
        waited.append(key)
        raise AuthenticationUnavailable("no keys")

    monkeypatch.setattr(jwt.KeyStore, "find_keys", fail)
    assert ask(at_border.token) == 503
    assert len(waited) == 1


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
@pytest.mark.parametrize("seconds", [0, 1])
def test_an_issuer_that_is_asked_first_decides(at_border, settings, seconds):
    know(at_border.issuer, {"aud": "https://elsewhere.example"})
    url = at_border.issuer.url
    settings.MCP_DJANGO = {
        "CONFIRM_SECONDS": seconds,
        "JWT": [{"ISSUER": url}],
        "INTROSPECTION": [
            {"ISSUER": url, "URL": f"{url}/ask", "CLIENT_ID": "site", "CLIENT_SECRET": "x"}
        ],
    }
    assert why_not_cached(("jwt", "introspection")) == ("" if seconds else "CONFIRM_SECONDS is 0")
    monitored = MCPServer("border-asked", auth=["introspection", "jwt"])
    monitored.tool(read_only=True)(plain)
    for _ in range(3):
        assert ask(at_border.token, server=monitored) == 401


@pytest.mark.parametrize("at_border", ["jwt"], indirect=True)
def test_keys_of_an_issuer_that_is_down_are_used_without_verifying_each_time(
    at_border, database, clock, ticking, verified
):
    at_border.heat(database)
    at_border.issuer.say("/keys", dict, status=500)
    ticking.now += jwt.FRESH_SECONDS + 1
    clock.move(1)
    verified.clear()
    for _ in range(3):
        assert ask(at_border.token) == "ada"
    assert verified == [at_border.token]


def test_a_token_is_not_used_beyond_its_end(at_border, database, monkeypatch):
    at_border.heat(database)
    ends = timezone.now() + timezone.timedelta(seconds=7200)
    monkeypatch.setattr(authentication, "timezone", SimpleNamespace(now=lambda: ends))
    database.statements.clear()
    # The backend decides on the leeway for clocks that differ.
    assert ask(at_border.token) == "ada"
    assert database.statements


@pytest.mark.parametrize("at_border", ["introspection"], indirect=True)
@pytest.mark.parametrize("seconds", [0, 60])
def test_a_site_without_a_cache_asks_the_issuer_as_often_as_it_said(at_border, settings, seconds):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    at_border.trust(CACHE_SECONDS=seconds)
    for _ in range(3):
        assert ask(at_border.token) == "ada"
    assert at_border.issuer.asked["/ask"] == (1 if seconds else 3)


# Groups that an issuer gives ----------------------------------------------------------------------


def test_a_user_keeps_the_groups_of_the_token(at_border, database, clock):
    group = Group.objects.create(name="team")
    user = at_border.identity.user
    at_border.trust(GROUPS={"a": "team", "b": "absent"}, GROUPS_CLAIM="roles")
    assert ask(at_border.token, "team") == "done"
    assert ask(at_border.token, "team") == "done"
    with database.quiet():
        assert ask(at_border.token, "team") == "done"
    clock.move(0.4)
    database.statements.clear()
    assert caller_cache.confirm() == 1
    assert len(database.statements) == 6
    # An administrator removes the group, which sends a signal; SQL removes it, which sends none.
    user.groups.remove(group)
    assert ask(at_border.token, "team") == "done"
    User.groups.through.objects.filter(user=user).delete()
    clock.move(1)
    assert ask(at_border.token, "team") == "done"


def test_a_group_that_the_token_does_not_give_is_taken(at_border, database, clock):
    group = Group.objects.create(name="team")
    at_border.trust(GROUPS={"c": "team"}, GROUPS_CLAIM="roles")
    assert ask(at_border.token) == "ada"
    at_border.heat(database)
    at_border.identity.user.groups.add(group)
    assert ask(at_border.token, "team") == HIDDEN
    User.groups.through.objects.create(user=at_border.identity.user, group=group)
    clock.move(1)
    assert ask(at_border.token, "team") == HIDDEN
