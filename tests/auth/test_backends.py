"""Authentication backends, alone and several in sequence."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.test import Client, RequestFactory, override_settings

from mcp_django.auth.authentication import authenticate, refresh_principal
from mcp_django.auth.backends import BaseBackend, get_backend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers
from tests.kit.drivers import message
from tests.kit.servers import person, post, token_for

pytestmark = pytest.mark.django_db

WHOAMI = message("tools/call", {"name": "whoami"})


def caller(response: Any) -> tuple[str, str]:
    result = response.json()["result"]["structuredContent"]
    return result["user"], result["backend"]


def logged_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def credentials(request: HttpRequest, *pairs: tuple[bytes, bytes]) -> Credentials:
    return Credentials(headers=Headers(pairs), query="", request=lambda: request)


# The session ----------------------------------------------------------------------------------


@override_settings(MCP_DJANGO={"AUTH": ["session"]})
def test_a_login_of_the_site_is_taken():
    assert post("/mcp", WHOAMI).status_code == 401
    user = person()
    client = logged_in(user)
    assert caller(post("/mcp", WHOAMI, client=client)) == ("ada", "session")
    user.is_active = False
    user.save()
    assert post("/mcp", WHOAMI, client=client).status_code == 401


@override_settings(MCP_DJANGO={"AUTH": ["session"]})
def test_a_login_needs_the_csrf_token_of_its_cookie():
    client = Client(enforce_csrf_checks=True)
    client.force_login(person())
    refused = post("/mcp", WHOAMI, client=client)
    assert refused.status_code == 401
    assert "X-Csrftoken" in refused.json()["error_description"]
    assert post("/mcp", WHOAMI, client=client, x_csrftoken="a" * 32).status_code == 401
    client.cookies["csrftoken"] = "a" * 32
    assert post("/mcp", WHOAMI, client=client, x_csrftoken="b" * 32).status_code == 401
    assert caller(post("/mcp", WHOAMI, client=client, x_csrftoken="a" * 32)) == ("ada", "session")


@override_settings(MCP_DJANGO={"AUTH": ["session"]})
def test_reading_with_a_login_needs_no_csrf_token():
    client = Client(enforce_csrf_checks=True)
    client.force_login(person())
    request = RequestFactory(enforce_csrf_checks=True).get("/mcp")
    request.COOKIES.update({name: morsel.value for name, morsel in client.cookies.items()})
    principal = get_backend("session").authenticate(credentials(request))
    assert principal is not None


LISTED = {"AUTH": ["session"], "ALLOWED_ORIGINS": ["https://app.example"]}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://app.example"}, 401),
        ({"sec_fetch_site": "cross-site"}, 401),
        ({"sec_fetch_site": "same-site"}, 401),
        ({"origin": "http://testserver"}, 200),
        ({"origin": "http://testserver", "sec_fetch_site": "same-origin"}, 200),
        ({}, 200),
    ],
)
@override_settings(MCP_DJANGO=LISTED)
def test_a_login_counts_for_pages_of_the_site_alone(headers, status):
    client = logged_in(person())
    client.cookies["csrftoken"] = "a" * 32
    response = post("/mcp", WHOAMI, client=client, x_csrftoken="a" * 32, **headers)
    assert response.status_code == status
    assert "Access-Control-Allow-Credentials" not in response


@override_settings(MCP_DJANGO=LISTED)
def test_a_page_of_a_listed_origin_still_calls_with_a_token():
    with override_settings(MCP_DJANGO={**LISTED, "AUTH": ["session", "tokens"]}):
        _, plaintext = token_for(person())
        response = post("/mcp", WHOAMI, token=plaintext, origin="https://app.example")
        assert caller(response) == ("ada", "tokens")


def test_a_login_is_found_without_middleware():
    client = logged_in(person())
    request = RequestFactory().post("/mcp")
    backend = get_backend("session")
    assert backend.authenticate(credentials(request)) is None
    request = RequestFactory().post("/mcp", headers={"X-CSRFToken": "a" * 32})
    request.COOKIES.update({name: morsel.value for name, morsel in client.cookies.items()})
    with pytest.raises(AuthenticationRequired, match="CSRF"):
        backend.authenticate(credentials(request))
    request.COOKIES["csrftoken"] = "a" * 32
    principal = backend.authenticate(credentials(request))
    assert principal is not None
    assert principal.user.get_username() == "ada"
    assert principal.scopes is None
    forged = RequestFactory().post("/mcp")
    forged.COOKIES[django_settings.SESSION_COOKIE_NAME] = "forged"
    assert backend.authenticate(credentials(forged)) is None


def test_a_session_is_not_asked_for_unless_it_is_named():
    assert post("/mcp", WHOAMI, client=logged_in(person())).status_code == 401


# Several --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [["tokens", "session"], ["session", "tokens"]])
def test_a_token_beats_a_login_whatever_the_order(order):
    bob = person("bob")
    token, plaintext = token_for(bob)
    client = logged_in(person("ada"))
    with override_settings(MCP_DJANGO={"AUTH": order}):
        assert caller(post("/mcp", WHOAMI, client=client)) == ("ada", "session")
        assert caller(post("/mcp", WHOAMI, client=client, token=plaintext)) == ("bob", "tokens")
        token.revoke()
        assert post("/mcp", WHOAMI, client=client, token=plaintext).status_code == 401


class Ticket(BaseBackend):
    """Accepts bearers of its own."""

    def authenticate(self, credentials: Credentials) -> Principal | None:
        if credentials.bearer == "expired-ticket":
            raise AuthenticationRequired("The ticket has expired.", error="invalid_token")
        if credentials.bearer != "ticket":
            return None
        from django.contrib.auth import get_user_model

        return principal_for(get_user_model().objects.get(), backend=f"{__name__}.Ticket")


@override_settings(MCP_DJANGO={"AUTH": ["tokens", f"{__name__}.Ticket"]})
def test_a_backend_of_the_site_joins_by_its_path():
    user = person()
    _, plaintext = token_for(user)
    assert caller(post("/mcp", WHOAMI, token=plaintext)) == ("ada", "tokens")
    assert caller(post("/mcp", WHOAMI, token="ticket")) == ("ada", f"{__name__}.Ticket")
    assert post("/mcp", WHOAMI, token="neither").status_code == 401
    expired = post("/mcp", WHOAMI, token="expired-ticket")
    assert expired.status_code == 401
    assert "The ticket has expired." in expired["WWW-Authenticate"]


def test_a_principal_is_current_while_the_user_is_active():
    user = person()
    principal = principal_for(user, backend=f"{__name__}.Ticket")
    assert refresh_principal(principal) is not None
    type(user).objects.update(is_active=False)
    assert refresh_principal(principal) is None
    type(user).objects.all().delete()
    assert refresh_principal(principal) is None


def test_no_backend_and_no_credentials_is_nobody():
    request = RequestFactory().post("/mcp")
    principal = authenticate([], credentials(request))
    assert not principal.is_authenticated
    with pytest.raises(AuthenticationRequired):
        authenticate([], credentials(request, (b"authorization", b"Bearer x")))


@pytest.mark.parametrize("name", ["nothing", "mcp_django.nothing.Here", "django.http.Http404", ""])
def test_what_is_no_backend_is_named(name):
    with pytest.raises(ImproperlyConfigured, match="AUTH names"):
        get_backend(name)


def test_repeated_headers_are_a_bad_request():
    twice = credentials(RequestFactory().post("/"), *[(b"authorization", b"Bearer x")] * 2)
    with pytest.raises(AuthenticationRequired) as caught:
        authenticate(["tokens"], twice)
    assert caught.value.status == 400


# REST framework -------------------------------------------------------------------------------


drf = pytest.mark.skipif(find_spec("rest_framework") is None, reason="REST framework is missing")


@drf
@override_settings(
    MCP_DJANGO={"AUTH": ["drf"]},
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"]
    },
)
def test_the_classes_of_rest_framework_are_asked():
    person(password="secret")
    assert post("/mcp", WHOAMI).status_code == 401
    good = post("/mcp", WHOAMI, authorization="Basic YWRhOnNlY3JldA==")
    assert caller(good) == ("ada", "drf")
    bad = post("/mcp", WHOAMI, authorization="Basic YWRhOndyb25n")
    assert bad.status_code == 401
    assert 'error="invalid_token"' in bad["WWW-Authenticate"]
    assert post("/mcp", WHOAMI, authorization="Basic !").status_code == 401


@drf
@override_settings(
    MCP_DJANGO={"AUTH": ["drf"]},
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]
    },
)
def test_a_login_needs_a_csrf_token_where_rest_framework_asks_for_one():
    client = Client(enforce_csrf_checks=True)
    client.force_login(person())
    refused = post("/mcp", WHOAMI, client=client)
    assert refused.status_code == 401
    assert "CSRF" in refused.json()["error_description"]
    client.cookies["csrftoken"] = "a" * 32
    assert caller(post("/mcp", WHOAMI, client=client, x_csrftoken="a" * 32)) == ("ada", "drf")


@drf
@override_settings(
    MCP_DJANGO={"AUTH": ["tokens", "drf"]},
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"]
    },
)
def test_rest_framework_joins_others():
    user = person(password="secret")
    _, plaintext = token_for(user)
    assert caller(post("/mcp", WHOAMI, token=plaintext)) == ("ada", "tokens")
    assert caller(post("/mcp", WHOAMI, authorization="Basic YWRhOnNlY3JldA==")) == ("ada", "drf")
    for refused in (
        post("/mcp", WHOAMI),
        post("/mcp", WHOAMI, token="neither"),
        post("/mcp", WHOAMI, authorization="Basic YWRhOndyb25n"),
    ):
        assert refused.status_code == 401
        # Clients that see Basic first ask for a password, and never read the metadata.
        assert refused["WWW-Authenticate"].startswith("Bearer ")
        assert "Basic" not in refused["WWW-Authenticate"]


class Always:
    """An authentication class that a site lists only for assistants."""

    def authenticate(self, request: Any) -> Any:
        from django.contrib.auth import get_user_model

        return get_user_model().objects.get(), None

    def authenticate_header(self, request: Any) -> str:
        return "Bearer"


@drf
@override_settings(
    MCP_DJANGO={"AUTH": ["drf"], "DRF": [f"{__name__}.Always"]},
    REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": []},
)
def test_the_classes_of_the_settings_go_before_those_of_rest_framework():
    person()
    assert caller(post("/mcp", WHOAMI)) == ("ada", "drf")


@pytest.mark.parametrize(("library", "extra"), [("jwt", "jwt"), ("rest_framework", "drf")])
def test_a_library_that_is_missing_is_named_with_its_extra(library, extra, monkeypatch):
    def missing(path: str) -> Any:
        raise ModuleNotFoundError(f"No module named {library!r}", name=library)

    monkeypatch.setattr("mcp_django.auth.backends.import_string", missing)
    get_backend.cache_clear()
    pip = rf'pip install "django-mcp-provider\[{extra}\]"'
    with pytest.raises(ImproperlyConfigured, match=pip):
        get_backend(extra)
