"""Which redirect URIs a client may register, and which of them a request may name."""

import pytest
from django.core.checks import Error
from oauth2_provider.settings import oauth2_settings

from mcp_django.oauth import checks, clients
from mcp_django.oauth.conf import RedirectSchemes
from tests.oauth.parties import SETTINGS, make_app

ALLOWED = [
    "https://client.example/callback",
    "https://client.example:8443/cb?fixed=1",
    "https://[2001:db8::1]/cb",
    "https://claude.ai/api/mcp/auth_callback",
    "http://localhost/callback",
    "http://localhost:3334/oauth/callback",
    "http://127.0.0.1/",
    "http://127.0.0.1:33418/",
    "http://[::1]:7777/cb",
    "cursor://anysphere.cursor-mcp/oauth/callback",
]
REFUSED = [
    "",
    None,
    5,
    ["https://client.example/"],
    "http://client.example/callback",
    "http://127.0.0.2/",
    "http://127.0.0.1.evil.example/",
    "http://localhost.evil.example/",
    "http://localhost@evil.example/",
    "https://user@client.example/",
    "https://user:secret@client.example/",
    "https://client.example/#fragment",
    "https://client.example/#",
    "https://client.example/\r\nSet-Cookie: a=b",
    "https://client.example/a b",
    "https://client.example/\x00",
    "https://client.example\\@evil.example/",
    "https:/client.example/",
    "https:///client.example/",
    "https:client.example",
    "https://",
    "https://*.client.example/",
    "https://client.example:99999/",
    "https://client.example:0/",
    "https://client.example:port/",
    "https://[::1/",
    "https://bücher.example/",
    "//client.example/",
    "/callback",
    "javascript:alert(1)",
    "JavaScript://client.example/%0aalert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "ftp://client.example/",
    "cursor://anysphere.cursor-mcp/oauth/callback/more",
    "cursor://evil/oauth/callback",
    "com.example.app:/callback",
    "https://client.example/" + "a" * 2000,
]


@pytest.mark.spec("AUT-22")
@pytest.mark.parametrize("uri", ALLOWED)
def test_an_address_that_hosts_register_is_accepted(uri):
    assert clients.redirect_problem(uri) == ""
    assert clients.is_redirect_allowed(uri)


@pytest.mark.spec("AUT-22")
@pytest.mark.parametrize("uri", REFUSED)
def test_threat_02_an_address_that_could_mislead_is_refused(uri):
    problem = clients.redirect_problem(uri)
    assert problem.endswith(".")
    assert not clients.is_redirect_allowed(uri)
    # The error does not repeat the URI, which may contain text of an attacker.
    assert "evil" not in problem


def test_an_address_of_an_application_is_accepted_once_it_is_listed(settings):
    listed = ["com.example.app:/callback", "myapp://host/cb"]
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": {"APP_REDIRECTS": listed}}
    assert all(map(clients.is_redirect_allowed, listed))
    assert not clients.is_redirect_allowed("cursor://anysphere.cursor-mcp/oauth/callback")
    # There is one setting: the toolkit reads the schemes from it too.
    assert list(oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES) == [
        "https", "http", "com.example.app", "myapp",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "uri",
    [
        "javascript://x/y",
        "https://x/y",
        "http://localhost/",
        "app",
        "app:",
        "app:x",
        "app:/a b",
        "app:/#a",
        "https://[",
    ],
)
def test_an_application_address_that_can_never_be_used_is_told(settings, uri):
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": {"APP_REDIRECTS": [uri]}}
    assert (
        uri.startswith("http://localhost") or not clients.is_redirect_allowed(uri) or "https" in uri
    )
    (error,) = checks.check_app_redirects(None)
    assert isinstance(error, Error)
    assert error.id == "mcp_oauth.E011"
    # The toolkit's own check also reads the schemes, before or after this one.
    assert "http" in oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES


def test_schemes_are_a_sequence_that_follows_the_setting(settings):
    schemes = RedirectSchemes()
    assert list(schemes) == ["https", "http", "cursor"]
    assert "cursor" in schemes
    assert "javascript" not in schemes
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": {"APP_REDIRECTS": []}}
    assert (len(schemes), schemes[0]) == (2, "https")


@pytest.mark.spec("AUT-22")
@pytest.mark.parametrize(
    ("registered", "requested"),
    [
        ("http://localhost/callback", "http://localhost:54321/callback"),
        ("http://localhost:1455/callback", "http://localhost:54321/callback"),
        ("http://127.0.0.1/", "http://127.0.0.1:33418/"),
        ("http://[::1]/cb", "http://[::1]:8080/cb"),
        ("https://client.example/cb", "https://client.example/cb"),
        ("cursor://anysphere.cursor-mcp/oauth/callback",) * 2,
    ],
)
def test_the_port_of_a_loopback_address_may_differ(db, registered, requested):
    app = make_app(redirect_uris=registered)
    app.full_clean()
    assert app.redirect_uri_allowed(requested)


@pytest.mark.spec("AUT-22")
@pytest.mark.parametrize(
    "requested",
    [
        "https://client.example/callback/",
        "https://client.example/callback2",
        "https://client.example/callback;x",
        "https://client.example/callback?x=1",
        "https://client.example/callback#x",
        "https://client.example:444/callback",
        "https://user@client.example/callback",
        "https://client.example.evil.example/callback",
        "https://evil.example/callback",
        "https://evil.example\\@client.example/callback",
        "https://client.example/%63allback",
        "https://client.example/a/../callback",
        "http://client.example/callback",
        "http://localhost:99/callback",
        "http://127.0.0.1:99/other",
        "javascript:alert(1)",
    ],
)
def test_threat_02_an_address_that_was_not_registered_is_never_redirected_to(db, requested):
    app = make_app(redirect_uris="https://client.example/callback http://127.0.0.1/callback")
    assert not app.redirect_uri_allowed(requested)
