"""Access tokens that only their issuer can read, verified by introspection."""

from __future__ import annotations

import base64
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.core.cache import cache
from django.test import RequestFactory
from django.views.debug import ExceptionReporter

from mcp_django.auth import authentication
from mcp_django.auth.backends import get_backend, introspection
from mcp_django.auth.credentials import Credentials
from mcp_django.exceptions import AuthenticationUnavailable
from mcp_django.models import ExternalIdentity
from mcp_django.protocol.headers import Headers
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for
from tests.spec import spec

pytest.importorskip("jwt")

from tests.auth.issuers import RESOURCE, Answer, Issuer, issuer

pytestmark = pytest.mark.django_db

WHOAMI = message("tools/call", {"name": "whoami"})
SECRET = "s3cret:&"


@pytest.fixture
def idp(settings):
    """An issuer that knows one token, ``good``."""
    cache.clear()
    with issuer() as provider:
        settings.DEBUG = True
        trust(settings, provider)
        know(provider, good={})
        yield provider
    cache.clear()


def trust(settings: Any, provider: Issuer, **options: Any) -> None:
    issuer = {
        "ISSUER": provider.url,
        "URL": f"{provider.url}/introspect",
        "CLIENT_ID": "site",
        "CLIENT_SECRET": SECRET,
        **options,
    }
    settings.MCP_DJANGO = {"AUTH": ["introspection", "tokens"], "INTROSPECTION": [issuer]}


def know(provider: Issuer, **tokens: dict[str, Any]) -> list[tuple[dict[str, list[str]], Any]]:
    """Make the issuer know tokens with these changes; return the requests that it gets."""
    import json

    requests: list[tuple[dict[str, list[str]], Any]] = []

    def answer(body: bytes, headers: Any) -> Answer:
        form = parse_qs(body.decode())
        requests.append((form, headers))
        changes = tokens.get(form["token"][0])
        response = {"active": False}
        if changes is not None:
            response = {"active": True, "token_type": "Bearer", **provider.claims(), **changes}
        response = {name: value for name, value in response.items() if value is not None}
        return 200, {}, json.dumps(response).encode()

    provider.answers["/introspect"] = answer
    return requests


@pytest.fixture
def ada(idp):
    """The user who is linked to the issuer's subject."""
    user = person()
    ExternalIdentity.objects.create(issuer=idp.url, subject="subject-1", user=user)
    return user


def call(token: str) -> Any:
    return post("/mcp", WHOAMI, token=token)


def caller(response: Any) -> tuple[str, str]:
    assert response.status_code == 200, response.content
    result = response.json()["result"]["structuredContent"]
    return result["user"], result["backend"]


def presented(token: str) -> Credentials:
    pairs = [(b"authorization", f"Bearer {token}".encode())]
    request = RequestFactory().post("/mcp")
    return Credentials(headers=Headers(pairs), query="", request=lambda: request)


def test_an_active_token_stands_for_its_subject(idp, ada):
    requests = know(idp, good={})
    assert caller(call("good")) == ("ada", "introspection")
    form, headers = requests[0]
    assert form == {"token": ["good"], "token_type_hint": ["access_token"]}
    pair = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert pair == "site:s3cret%3A%26"


def test_the_secret_may_go_into_the_form(idp, ada, settings):
    trust(settings, idp, AUTH_METHOD="post")
    requests = know(idp, good={})
    assert caller(call("good")) == ("ada", "introspection")
    form, headers = requests[0]
    assert (form["client_id"], form["client_secret"]) == (["site"], [SECRET])
    assert "Authorization" not in headers


def test_a_principal_says_what_the_issuer_says(idp, ada):
    principal = get_backend("introspection").authenticate(presented("good"))
    assert principal is not None
    assert (principal.issuer, principal.subject, principal.audience) == (
        idp.url,
        "subject-1",
        RESOURCE,
    )
    assert principal.credential.startswith("introspection:")
    assert "good" not in repr(principal)
    assert authentication.refresh_principal(principal) is not None
    ada.is_active = False
    ada.save()
    assert authentication.refresh_principal(principal) is None


def test_the_issuers_are_those_of_the_server(idp, settings):
    trust(settings, idp, SERVERS=["staff"])
    backend, request = get_backend("introspection"), RequestFactory().get("/")
    assert list(backend.issuers(request, "staff")) == [idp.url]
    assert list(backend.issuers(request, "default")) == []


BAD: dict[str, dict[str, Any]] = {
    "inactive": {"active": False},
    "active in another way": {"active": "true"},
    "expired": {"exp": 1},
    "exp is no number": {"exp": "soon"},
    "exp is infinite": {"exp": float("inf")},
    "not yet valid": {"nbf": int(time.time()) + 3600},
    "another issuer": {"iss": "https://elsewhere.example"},
    "another audience": {"aud": "https://elsewhere.example/mcp"},
    "no audience": {"aud": None},
    "no subject": {"sub": None},
    "unknown subject": {"sub": "somebody"},
    "a refresh token": {"token_use": "refresh_token"},
    "an ID token": {"typ": "ID"},
    "bound to a key": {"token_type": "DPoP"},
    "bound by its claims": {"cnf": {"jkt": "x"}},
}


@spec("AUT-3", "AUT-9")
@pytest.mark.parametrize("case", BAD)
def test_a_token_that_does_not_hold_is_refused(case, idp, ada):
    know(idp, bad=BAD[case], good={})
    response = call("bad")
    assert response.status_code == 401
    assert 'error="invalid_token"' in response["WWW-Authenticate"]
    assert caller(call("good")) == ("ada", "introspection")


def test_a_token_without_an_end_ends_its_streams_all_the_same(idp, ada):
    know(idp, good={"exp": None})
    principal = get_backend("introspection").authenticate(presented("good"))
    assert principal is not None
    assert principal.expires_at is not None
    assert 0 < principal.expires_at.timestamp() - time.time() <= introspection.UNDATED_SECONDS


# How often the issuer is asked ----------------------------------------------------------------


def test_an_answer_is_kept(idp, ada):
    for _ in range(3):
        assert call("good").status_code == 200
        assert call("unknown").status_code == 401
    assert idp.asked["/introspect"] == 2


def test_an_answer_is_kept_no_longer_than_the_token_lives(idp, ada, settings, monkeypatch):
    kept: list[float] = []
    put = introspection.outbound.put_signed

    def watched(kind: str, name: str, value: Any, *, seconds: float) -> None:
        kept.append(seconds)
        put(kind, name, value, seconds=seconds)

    monkeypatch.setattr(introspection.outbound, "put_signed", watched)
    know(idp, short={"exp": int(time.time()) + 20}, good={})
    for token in ("short", "good", "unknown"):
        call(token)
    assert 0 < kept[0] <= 20
    assert kept[1:] == [60, introspection.INACTIVE_SECONDS]
    kept.clear()
    trust(settings, idp, CACHE_SECONDS=0)
    know(idp, other={})
    assert call("other").status_code == 200
    assert kept == []


@pytest.mark.parametrize("name", ["exp", "nbf"])
def test_a_number_that_is_larger_than_every_float_is_refused(idp, name):
    know(idp, huge={name: 10**400})
    assert call("huge").status_code == 401


@pytest.mark.parametrize("method", ["basic", "post"])
def test_an_error_report_has_no_secret_of_this_site(idp, settings, monkeypatch, rf, method):
    trust(settings, idp, AUTH_METHOD=method)
    know(idp, good={})

    def fail(value):
        raise ZeroDivisionError

    monkeypatch.setattr(introspection, "_is_number", fail)
    issuer = get_backend("introspection").find_entry("good", "default")
    try:
        introspection._introspect(issuer, "good", "ab" * 32)
    except ZeroDivisionError:
        settings.DEBUG = False
        report = ExceptionReporter(rf.get("/"), *sys.exc_info()).get_traceback_html()
    assert "_request_introspection" in report
    # The secret is form-encoded in the pair.
    assert SECRET.partition(":")[0] not in report


def test_a_forked_child_waits_for_no_thread_of_its_parent(idp):
    for lock in introspection._locks:
        lock.acquire()
    introspection._replace_locks()
    issuer = get_backend("introspection").find_entry("good", "default")
    assert introspection._introspect(issuer, "good", "ab" * 32)[0]["active"] is True


def test_requests_that_bring_the_same_token_at_once_ask_once(idp, monkeypatch):
    issuer = get_backend("introspection").find_entry("good", "default")
    assert issuer is not None
    together, first, get = (
        threading.Barrier(4),
        threading.local(),
        introspection.outbound.get_signed,
    )

    def get_together(kind: str, name: str) -> Any:
        value = get(kind, name)
        if not hasattr(first, "looked"):
            first.looked = True
            together.wait(5)
        return value

    monkeypatch.setattr(introspection.outbound, "get_signed", get_together)
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(introspection._introspect, issuer, "good", "ab" * 32) for _ in range(4)
        ]
        assert all(future.result(5)[0]["active"] for future in futures)
    assert idp.asked["/introspect"] == 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda *_: (500, {}, b""),
        lambda *_: (401, {}, b'{"error": "invalid_client"}'),
        lambda *_: (302, {"Location": "/elsewhere"}, b""),
        lambda *_: (200, {}, b"no JSON"),
    ],
)
def test_an_issuer_that_does_not_answer_is_left_alone_for_a_moment(answer, idp, ada, caplog):
    idp.answers["/introspect"] = answer
    for token in ("good", "other", "good"):
        response = call(token)
        assert response.status_code == 503
        assert int(response["Retry-After"]) > 0
        assert "WWW-Authenticate" not in response
        assert response.json()["error"] == "temporarily_unavailable"
    assert idp.asked["/introspect"] == 1
    assert "introspection by the issuer" in caplog.text
    assert SECRET not in caplog.text


def test_an_issuer_that_is_not_there_is_told_from_a_bad_token(idp, settings):
    trust(settings, idp, URL="http://127.0.0.1:1/introspect")
    with pytest.raises(AuthenticationUnavailable):
        get_backend("introspection").authenticate(presented("good"))


def test_a_request_does_not_wait_for_long_behind_others(idp, monkeypatch):
    class Held:
        def acquire(self, *, timeout: float) -> bool:
            assert timeout == introspection.outbound.TIMEOUT_SECONDS
            return False

    monkeypatch.setattr(introspection, "_locks", [Held()])
    with pytest.raises(AuthenticationUnavailable):
        get_backend("introspection").authenticate(presented("good"))
    assert not idp.asked


# Who is asked ---------------------------------------------------------------------------------


def test_a_token_goes_to_no_issuer_but_its_own(idp, ada, settings):
    requests = know(idp, good={})
    _, plaintext = token_for(ada)
    assert caller(call(plaintext)) == ("ada", "tokens")
    assert call(idp.token(iss="https://elsewhere.example")).status_code == 401
    trust(settings, idp, PREFIX="acme_")
    assert call("good").status_code == 401
    trust(settings, idp, SERVERS=["staff"])
    assert call("good").status_code == 401
    assert requests == []


def test_a_jwt_of_the_issuer_may_be_asked_about(idp, ada):
    token = idp.token()
    know(idp, **{token: {}})
    assert caller(call(token)) == ("ada", "introspection")


def test_a_token_that_the_issuer_does_not_know_is_left_to_the_next_backend(idp):
    assert get_backend("introspection").authenticate(presented("unknown")) is None
