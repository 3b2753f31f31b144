"""Client metadata documents: which are accepted, and who can have one fetched at all."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils import timezone
from oauth2_provider.cimd import CIMDError, resolve_cimd_application
from oauth2_provider.models import get_application_model
from oauthlib.common import Request

from mcp_django.auth import outbound, security_log
from mcp_django.auth.outbound import (
    FetchFailed,
    OutboundResponse,
    RequestTarget,
    https_get,
    is_public,
)
from mcp_django.models import AuthEvent
from mcp_django.oauth.cimd import DocumentAccess, Fetcher, SignedInOnly, validate_document
from tests.oauth import documents
from tests.oauth.documents import CLIENT, answer, document, fetcher, publish
from tests.oauth.parties import RESOURCE, SETTINGS, make_app, pkce


@pytest.fixture(autouse=True)
def web(settings):
    """Replace the network with an empty one, which only the fetcher of the tests can reach."""
    path = "tests.oauth.documents.PublishedFetcher"
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_METADATA_FETCHER": path}
    documents.targets.clear()
    documents.published.clear()
    yield
    documents.targets.clear()
    documents.published.clear()


# What a document may say ----------------------------------------------------------------------


@pytest.mark.spec("AUT-26")
def test_a_good_document_is_accepted():
    metadata, seconds = fetcher(answer(document())).fetch(CLIENT)
    assert metadata == document()
    assert seconds == 86400
    (target,) = documents.targets
    assert target == RequestTarget(
        address=documents.PUBLIC, host="client.example", port=443, path="/metadata.json"
    )


@pytest.mark.spec("AUT-26")
def test_what_goes_too_far_is_left_out():
    metadata = validate_document(
        document(
            client_name="  Cli\u202eent\n ",
            token_endpoint_auth_method="private_key_jwt",
            token_endpoint_auth_methods_supported=["none", "private_key_jwt"],
            grant_types=["authorization_code", "refresh_token", "client_credentials", "x", "x"],
            redirect_uris=["javascript:alert(1)", "https://a.example/cb", "http://a.example/"],
        ),
        CLIENT,
    )
    assert metadata["client_name"] == "Client"
    assert metadata["token_endpoint_auth_method"] == "none"
    assert metadata["grant_types"] == ["authorization_code", "refresh_token"]
    assert metadata["redirect_uris"] == ["https://a.example/cb"]


@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize(
    "more",
    [
        {"client_id": "https://other.example/metadata.json"},
        {"client_id": CLIENT + "/"},
        {"client_name": None},
        {"client_name": ""},
        {"client_name": " \u202e\u200b "},
        {"client_name": {"a": 1}},
        {"redirect_uris": None},
        {"redirect_uris": []},
        {"redirect_uris": "https://a.example/"},
        {"redirect_uris": ["javascript:alert(1)", "http://a.example/", 5]},
        {"redirect_uris": [f"https://a.example/{number}" for number in range(21)]},
        {"grant_types": ["client_credentials"]},
        {"grant_types": ["refresh_token"]},
        {"grant_types": "authorization_code"},
        {"grant_types": [["authorization_code"]]},
        {"token_endpoint_auth_method": "private_key_jwt"},
        {"token_endpoint_auth_method": "client_secret_basic"},
        {
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": "none",
        },
    ],
)
def test_threat_08_a_document_that_is_no_client_is_refused(more):
    with pytest.raises(CIMDError):
        validate_document(document(**more), CLIENT)


@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize(
    "given",
    [
        OutboundResponse(status=301, headers={"location": "https://169.254.169.254/"}, body=b""),
        OutboundResponse(status=404, headers={}, body=b""),
        answer(b"<html>", headers={"content-type": "text/html"}),
        answer(document(), headers={"content-type": "text/json"}),
        answer(document(), headers={"content-type": ""}),
        answer(document(), headers={"content-encoding": "gzip"}),
        answer(b"{"),
        answer(b"\xff"),
        answer(b"[" * 10_000),
        answer([document()]),
        answer(json.dumps(document()).encode().ljust(20 * 1024)),
    ],
)
def test_threat_08_an_answer_that_is_no_document_is_refused(given):
    with pytest.raises(CIMDError):
        fetcher(given).fetch(CLIENT)
    assert len(documents.targets) == 1


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.x+json"])
def test_json_has_several_names(kind):
    metadata, _ = fetcher(answer(document(), headers={"content-type": kind})).fetch(CLIENT)
    assert metadata["client_id"] == CLIENT


@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize(
    ("control", "expected"),
    [
        ("", 86400),
        ("max-age=600", 600),
        ("public, max-age=600", 600),
        ("max-age=1", 300),
        ("max-age=99999999", 86400),
        ("no-store", 300),
        ("no-cache, max-age=600", 300),
        ("s-maxage=600", 86400),
    ],
)
def test_a_document_is_kept_as_long_as_its_host_says(control, expected):
    given = answer(document(), headers={"cache-control": control})
    assert fetcher(given).fetch(CLIENT)[1] == expected


# Where a document may be ----------------------------------------------------------------------


@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize(
    "url",
    [
        "http://client.example/metadata.json",
        "https://client.example",
        "https://user@client.example/metadata.json",
        "https://user:secret@client.example/metadata.json",
        "https://@client.example/metadata.json",
        "https://client.example/metadata.json#x",
        "https://client.example/a/../metadata.json",
        "https://client.example/a/%2e%2E/metadata.json",
        "https://client.example/./metadata.json",
        "https://client.example:0/metadata.json",
        "https://client.example:99999/metadata.json",
        "https://client.example\\@evil.example/",
        "https://client.example/a b",
        "https://client.example/\r\nHost: x",
        "https://[::1/x",
        "https:///metadata.json",
        "https://client.example/" + "a" * 255,
        "ftp://client.example/x",
    ],
)
def test_threat_08_an_address_that_hides_something_is_not_called(url):
    with pytest.raises(CIMDError):
        fetcher(answer(document(client_id=url))).fetch(url)
    assert documents.targets == []


INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "192.0.2.1",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.0.255",
    "192.88.99.1",
    "::ffff:192.0.0.192",
    "2002:c000:c0::",
    "64:ff9b::c000:c0",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",
    "2001:0:a00:1::",
    "no address",
    "2130706433",
    "0x7f000001",
]


@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize("address", INSIDE)
def test_threat_08_an_address_inside_is_not_called(address):
    assert not is_public(address)
    with pytest.raises(CIMDError, match="not public"):
        fetcher(answer(document()), lambda host, port: [address]).fetch(CLIENT)
    # One private address among public ones is enough to reject the host.
    with pytest.raises(CIMDError, match="not public"):
        fetcher(answer(document()), lambda host, port: [documents.PUBLIC, address]).fetch(CLIENT)
    assert documents.targets == []


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "203.0.114.10", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_a_public_address_is_called(address):
    assert is_public(address)


def test_a_literal_address_is_looked_at_like_any_other():
    assert outbound.resolve_host("127.0.0.1", 443) == ["127.0.0.1"]
    for url in ("https://127.0.0.1/x", "https://[::1]/x", "https://2130706433/x"):
        with pytest.raises(CIMDError):
            Fetcher(transport=documents.transport).fetch(url)
    assert documents.targets == []


@pytest.mark.spec("AUT-26")
def test_threat_08_a_name_is_looked_up_once(web):
    looked_up = []

    def rebinding(host: str, port: int) -> list[str]:
        looked_up.append(host)
        return [documents.PUBLIC] if len(looked_up) == 1 else ["127.0.0.1"]

    fetcher(answer(document()), rebinding).fetch(CLIENT)
    assert looked_up == ["client.example"]
    assert [target.address for target in documents.targets] == [documents.PUBLIC]


@pytest.mark.parametrize("problem", [OSError("no such host"), UnicodeError("label too long")])
def test_a_host_that_does_not_exist_has_no_document(problem):
    def missing(host: str, port: int) -> list[str]:
        raise problem

    for resolve in (missing, lambda host, port: []):
        with pytest.raises(CIMDError):
            fetcher(answer(document()), resolve).fetch(CLIENT)


def test_the_next_address_is_tried():
    tried = []

    def second(target: RequestTarget, max_bytes: int, seconds: float) -> OutboundResponse:
        tried.append(target.address)
        if len(tried) == 1:
            raise FetchFailed("No connection.")
        return answer(document())

    both = lambda host, port: ["8.8.8.8", "2606:4700::1111"]  # noqa: E731
    assert Fetcher(both, second).fetch(CLIENT)[0]["client_id"] == CLIENT
    assert tried == ["8.8.8.8", "2606:4700::1111"]


# The connection itself, to a host of this machine ----------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of client.example that no authority has signed, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client.example")])
    now = timezone.now()
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("client.example")]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


class Host:
    """Answers one connection with some bytes, then sends a byte at a time until it is released."""

    def __init__(self, certificate: Path, *chunks: bytes, drips: bool = False) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.chunks, self.drips = chunks, drips
        self.request = b""
        self.released = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(20)
        self.thread = threading.Thread(target=self.serve)

    def serve(self) -> None:
        try:
            plain, _ = self.listener.accept()
            with plain, self.context.wrap_socket(plain, server_side=True) as secure:
                self.request = secure.recv(10_000)
                for chunk in self.chunks:
                    secure.sendall(chunk)
                # Never silent for as long as the timeout of the socket.
                while self.drips and not self.released.wait(0.02):
                    secure.sendall(b"1")
        except OSError:
            # The client closed the connection, which some of the tests are about.
            return

    def __enter__(self) -> RequestTarget:
        self.thread.start()
        port = self.listener.getsockname()[1]
        return RequestTarget(address="127.0.0.1", host="client.example", port=port, path="/x?y=1")

    def __exit__(self, *exc: object) -> None:
        self.released.set()
        self.thread.join(20)
        self.listener.close()


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"


def test_a_document_is_fetched_by_tls(certificate):
    host = Host(certificate, HEAD + b"Content-Length: 2\r\n\r\n{}")
    with host as target:
        response = https_get(target, 100, 20, context=trusting(certificate))
    assert (response.status, response.body) == (200, b"{}")
    assert response.headers["content-type"] == "application/json"
    assert host.request.startswith(b"GET /x?y=1 HTTP/1.1\r\n")
    assert b"Host: client.example:%d\r\n" % target.port in host.request
    assert b"Cookie" not in host.request
    assert b"Authorization" not in host.request


def test_threat_08_a_redirect_is_not_followed(certificate):
    moved = b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"
    with Host(certificate, moved) as target:
        assert https_get(target, 100, 20, context=trusting(certificate)).status == 302


def test_threat_08_a_large_body_is_not_read_to_its_end(certificate):
    large = HEAD + b"Content-Length: 100000000\r\n\r\n" + b"x" * 20_000
    with Host(certificate, large) as target:
        assert len(https_get(target, 16_384, 20, context=trusting(certificate)).body) == 16_385


@pytest.mark.parametrize(
    "chunks",
    [(), (b"HTTP/1.1 200 OK\r\nX: ",), (HEAD + b"Content-Length: 100000\r\n\r\n", b"{")],
    ids=["from the start", "within the head", "within the body"],
)
def test_threat_08_a_slow_host_is_hung_up_on(certificate, chunks):
    # At that pace the response would take half an hour; only the watchdog ends it.
    with Host(certificate, *chunks, drips=True) as target:
        try:
            response = https_get(target, 100_000, 0.3, context=trusting(certificate))
        except FetchFailed:
            return
        assert len(response.body) < 100_000


def test_threat_08_a_host_has_to_prove_its_name(certificate):
    with Host(certificate, HEAD) as target, pytest.raises(FetchFailed):
        https_get(target, 100, 20)
    other = Host(certificate, HEAD)
    with other as target:
        elsewhere = replace(target, host="other.example")
        with pytest.raises(FetchFailed):
            https_get(elsewhere, 100, 20, context=trusting(certificate))
    assert other.request == b""


def test_a_closed_port_is_no_host():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(FetchFailed, match="No connection"):
        https_get(RequestTarget(address="127.0.0.1", host="x", port=port, path="/"), 100, 5)


# Who can have a document fetched ---------------------------------------------------------------


@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize(
    ("is_signed_in", "oauth", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (None, {}, False),
        (True, {"CIMD": False}, False),
        (True, {"CIMD_HOSTS": ["client.example"]}, True),
        (True, {"CIMD_HOSTS": [".example"]}, True),
        (True, {"CIMD_HOSTS": ["other.example"]}, False),
        (True, {"CIMD_HOSTS": []}, False),
    ],
)
def test_only_a_signed_in_user_has_documents_fetched(settings, is_signed_in, oauth, expected):
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": oauth}
    access = None if is_signed_in is None else DocumentAccess(is_allowed=is_signed_in)
    request = SimpleNamespace(mcp_oauth=access)
    assert SignedInOnly().has_permission(request, CLIENT) is expected
    assert SignedInOnly().has_permission(request, "https://u@client.example/x") is False


def test_a_parameter_of_a_client_gives_no_access_to_documents():
    request = Request(f"https://site.example/?{urlencode({'mcp_oauth': 'x'})}")
    assert request.mcp_oauth == "x"
    assert SignedInOnly().has_permission(request, CLIENT) is False


def authorize_query(client_id: str, **more: str) -> str:
    return urlencode(
        {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": "https://client.example/callback",
            "code_challenge": pkce()[1],
            "code_challenge_method": "S256",
            "resource": RESOURCE,
            "scope": "mcp",
            "state": "s",
            **more,
        }
    )


def stale() -> Any:
    return make_app(
        client_id=CLIENT,
        registration_source="cimd",
        cimd_expires_at=timezone.now() - timedelta(days=1),
    )


@pytest.mark.django_db
@pytest.mark.spec("AUT-26")
@pytest.mark.parametrize("is_known", [False, True])
def test_threat_08_nobody_else_has_a_document_fetched(client, is_known):
    publish()
    if is_known:
        stale()
    requests = [
        ("get", f"/oauth/authorize?{authorize_query(CLIENT)}", {}),
        ("get", f"/oauth/authorize?{authorize_query(CLIENT, prompt='none')}", {}),
        ("get", f"/oauth/authorize/?{authorize_query(CLIENT, prompt='login')}", {}),
        ("get", f"/authorize?{authorize_query(CLIENT)}", {}),
        ("post", "/oauth/authorize", {"client_id": CLIENT, "allow": "true"}),
        *(
            ("post", path, {"client_id": CLIENT, **form})
            for path in ("/oauth/token", "/oauth/token/", "/token", "/oauth/revoke")
            for form in (
                {"grant_type": "authorization_code", "code": "x", "code_verifier": "y" * 43},
                {"grant_type": "refresh_token", "refresh_token": "x"},
                {"grant_type": "client_credentials", "client_secret": "x"},
                {"grant_type": "password", "username": "a", "password": "b"},
                {"token": "x"},
            )
        ),
    ]
    for method, path, form in requests:
        getattr(client, method)(path, form)
    client.get("/mcp", headers={"Authorization": f"Bearer {CLIENT}"})
    assert documents.targets == []
    assert get_application_model().objects.count() == int(is_known)


@pytest.mark.django_db
@pytest.mark.spec("AUT-26")
def test_a_signed_in_user_has_the_document_of_a_client_fetched(client, user):
    publish()
    client.force_login(user)
    response = client.get(f"/oauth/authorize?{authorize_query(CLIENT)}")
    assert response.status_code == 200
    app = get_application_model().objects.get(client_id=CLIENT)
    assert (app.name, app.client_type, app.registration_source) == (
        "Example Client",
        "public",
        "cimd",
    )
    assert app.authorization_grant_type == "authorization-code"
    client.get(f"/oauth/authorize?{authorize_query(CLIENT)}")
    assert len(documents.targets) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("published", "oauth", "reason"),
    [
        (None, {}, "The host responded with HTTP 404."),
        ({"client_name": None}, {}, "The document has no client_name."),
        ({"client_secret": "x"}, {}, "The document has a client secret, which would be public."),
        (
            {},
            {"CIMD_HOSTS": ["other.example"]},
            "This site does not accept documents from this host.",
        ),
        ({}, {"CIMD": False}, "This site does not accept client metadata documents."),
    ],
)
def test_a_document_that_is_not_taken_is_told(
    client, user, settings, caplog, published, oauth, reason
):
    settings.MCP_DJANGO = {**SETTINGS, "OAUTH": oauth}
    if published is not None:
        publish(document(**published))
    client.force_login(user)
    # The second time the toolkit does not fetch it, and the reason is still known.
    for _ in range(2):
        response = client.get(f"/oauth/authorize?{authorize_query(CLIENT)}")
        assert response.status_code == 400
        assert f"Its metadata document {CLIENT} was rejected: {reason}" in response.content.decode()
    event = AuthEvent.objects.filter(kind=AuthEvent.Kind.DOCUMENT).last()
    assert event is not None
    assert (event.user, event.client_id, event.details) == (user, CLIENT, {"reason": reason})
    (line, *_) = [record for record in caplog.records if record.name == "mcp_django.security"]
    assert line.levelname == "WARNING"
    assert line.getMessage().endswith(f", {CLIENT}: {reason}")


@pytest.mark.django_db
def test_addresses_that_an_attacker_chooses_do_not_fill_the_log(client, user):
    client.force_login(user)
    for number in range(security_log.MAX_PER_SOURCE + 3):
        address = f"https://client.example/{number}?access_token={'s' * 40}"
        page = client.get(f"/oauth/authorize?{authorize_query(address)}").content.decode()
        assert "was rejected" in page
    longest = f"https://client.example/{'<b>' * 200}"
    page = client.get(f"/oauth/authorize?{authorize_query(longest)}").content.decode()
    assert "too long" in page
    assert "<b>" not in page
    assert "&lt;b&gt;" * 100 not in page
    logged = AuthEvent.objects.filter(kind=AuthEvent.Kind.DOCUMENT)
    assert logged.count() == security_log.MAX_PER_SOURCE
    assert not any("s" * 40 in event.client_id for event in logged)


@pytest.mark.django_db
def test_a_document_that_is_gone_locks_nobody_out(client, user):
    stale()
    client.force_login(user)
    response = client.get(f"/oauth/authorize?{authorize_query(CLIENT)}")
    assert response.status_code == 200
    assert len(documents.targets) == 1
    event = AuthEvent.objects.get(kind=AuthEvent.Kind.DOCUMENT)
    assert event.details == {"reason": "The host responded with HTTP 404."}
    # The document is not requested again immediately.
    client.get(f"/oauth/authorize?{authorize_query(CLIENT)}")
    assert len(documents.targets) == 1


@pytest.mark.django_db
def test_a_document_never_replaces_a_client_that_was_registered_by_hand():
    publish()
    make_app(client_id=CLIENT, registration_source="manual", name="Ours")
    request = SimpleNamespace(mcp_oauth=DocumentAccess(is_allowed=True))
    assert resolve_cimd_application(CLIENT, request) is None
    assert get_application_model().objects.get().name == "Ours"
