"""The OAuth steps of ``mcp doctor``: discovery, client registration, sign-in and token request.

Discovery leads from the challenge to the authorization server (RFC 9728 and RFC 8414), in the
order of the host.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.utils import timezone

from mcp_django.management.doctor_hosts import Form, HostProfile
from mcp_django.management.doctor_transport import (
    HostReport,
    HttpTransport,
    NoResponse,
    ProbeResponse,
    form_request,
    get_request,
    json_request,
)
from mcp_django.models import AuthEvent
from mcp_django.protocol.headers import JSON

RESOURCE, SERVER = "resource metadata", "authorization server metadata"
WELL_KNOWN_RESOURCE = "/.well-known/oauth-protected-resource"
WELL_KNOWN_SERVER = "/.well-known/oauth-authorization-server"
WELL_KNOWN_OPENID = "/.well-known/openid-configuration"
FIX_INCLUDE_URLS = (
    "Include the URLs at the root of ROOT_URLCONF: path('', include('mcp_django.oauth.urls'))."
)
FIX_BASE_URL = (
    "Set MCP_DJANGO['BASE_URL'], or configure the headers of the proxy: "
    "SECURE_PROXY_SSL_HEADER and USE_X_FORWARDED_HOST."
)
FIX_CHECK_LOG = "Check the site's log; did you run manage.py migrate?"
FIX_TRAILING_SLASH = "Respond at the URL with and without a trailing slash; do not redirect."
METHODS = {"none", "client_secret_basic", "client_secret_post"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The result of discovery: the resource, its authorization server's metadata, and scopes."""

    resource: str
    server: dict[str, Any]
    scopes: tuple[str, ...] = ()


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def resource_addresses(url: str, answer: ProbeResponse | None = None) -> list[str]:
    """Return the URLs at which an endpoint's metadata is looked for, in order.

    First the URL in the challenge, then the well-known URL with the endpoint's path, then the one
    at the root (MCP, "Authorization", Protected Resource Metadata Discovery; RFC 9728).
    """
    named = (answer.challenge() or {}).get("resource_metadata", "") if answer else ""
    origin, path = origin_of(url), urlsplit(url).path.rstrip("/")
    addresses = [named, f"{origin}{WELL_KNOWN_RESOURCE}{path}", f"{origin}{WELL_KNOWN_RESOURCE}"]
    return [one for one in dict.fromkeys(addresses) if one]


def server_address(issuer: str, form: Form) -> str:
    """Return one of the well-known URLs of an issuer's metadata (RFC 8414, OpenID Discovery)."""
    origin, path = origin_of(issuer), urlsplit(issuer).path.rstrip("/")
    return {
        "rfc8414": f"{origin}{WELL_KNOWN_SERVER}{path}",
        "oidc-inserted": f"{origin}{WELL_KNOWN_OPENID}{path}",
        "oidc-appended": f"{origin}{path}{WELL_KNOWN_OPENID}",
        "root": f"{origin}{WELL_KNOWN_SERVER}",
    }[form]


def diagnose_discovery(
    chart: HostReport, transport: HttpTransport, url: str, host: HostProfile, answer: ProbeResponse
) -> Discovery | None:
    """Return the authorization server of an endpoint, or ``None`` if the host does not find it."""
    challenge = answer.challenge()
    if challenge is None:
        chart.add_failure(
            "challenge",
            "401 without a WWW-Authenticate header",
            "Have middleware and proxies pass WWW-Authenticate.",
        )
        return None
    if not host.reads_resource:
        return _find_server_metadata(chart, transport, host, issuer=origin_of(url), resource=url)
    if "resource_metadata" in challenge:
        chart.add_ok(
            "challenge", f"has resource_metadata, scope {challenge.get('scope') or 'none'}"
        )
    else:
        chart.add_warning(
            "challenge", "has no resource_metadata; hosts have to guess its URL", FIX_INCLUDE_URLS
        )
    document = _find_resource_metadata(chart, transport, url, answer)
    if document is None:
        return None
    named = document.get("resource")
    if named != url:
        chart.add_failure(
            "resource", f"{named!r} is not {url!r}; hosts compare the two", FIX_BASE_URL
        )
        return None
    chart.add_ok("resource", str(named))
    issuers = document.get("authorization_servers") or []
    if not issuers:
        chart.add_failure(
            "issuer",
            "the resource metadata has no authorization_servers",
            "Install mcp_django.oauth, or configure an issuer in MCP_DJANGO['JWT'].",
        )
        return None
    wanted = challenge.get("scope") or " ".join(document.get("scopes_supported") or [])
    return _find_server_metadata(
        chart, transport, host, issuer=issuers[0], resource=url, scopes=tuple(wanted.split())
    )


def _find_resource_metadata(
    chart: HostReport, transport: HttpTransport, url: str, answer: ProbeResponse
) -> dict[str, Any] | None:
    tried = []
    for address in resource_addresses(url, answer):
        document, why = _fetch_document(transport, address)
        if document is not None:
            chart.add_ok(RESOURCE, address)
            return document
        tried.append(f"{address}: {why}")
    chart.add_failure(RESOURCE, "; ".join(tried), FIX_INCLUDE_URLS)
    return None


def _find_server_metadata(
    chart: HostReport,
    transport: HttpTransport,
    host: HostProfile,
    *,
    issuer: str,
    resource: str,
    scopes: tuple[str, ...] = (),
) -> Discovery | None:
    tried = []
    for address in dict.fromkeys(server_address(issuer, form) for form in host.forms):
        document, why = _fetch_document(transport, address)
        if document is None:
            tried.append(f"{address}: {why}")
            continue
        chart.add_ok(SERVER, address)
        if not _is_complete(chart, document, issuer, resource):
            return None
        return Discovery(resource=resource, server=document, scopes=scopes)
    fix = FIX_INCLUDE_URLS
    if host.forms == ("root",) and urlsplit(issuer).path.strip("/"):
        fix = "Use the site's origin as the issuer: remove MCP_DJANGO['OAUTH']['ISSUER']."
    chart.add_failure(SERVER, "; ".join(tried), fix)
    return None


def _is_complete(chart: HostReport, document: dict[str, Any], issuer: str, resource: str) -> bool:
    """Return whether a metadata document has everything that every host needs."""
    if document.get("issuer") != issuer:
        found = f"the document has the issuer {document.get('issuer')!r} instead of {issuer!r}"
        chart.add_failure("issuer", found, f"Correct MCP_DJANGO['OAUTH']['ISSUER']. {FIX_BASE_URL}")
        return False
    chart.add_ok("issuer", issuer)
    if "S256" not in (document.get("code_challenge_methods_supported") or []):
        is_own = origin_of(issuer) == origin_of(resource)
        chart.add_failure(
            "PKCE",
            "S256 is not among code_challenge_methods_supported",
            "Serve the metadata of mcp_django.oauth instead of the toolkit's own."
            if is_own
            else f"Have {issuer} list S256 for PKCE in its metadata (RFC 8414), or let this site "
            "issue the tokens: mcp_django.oauth.",
        )
        return False
    chart.add_ok("PKCE", "S256")
    endpoints = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
    for name in endpoints:
        value = document.get(name)
        if value and urlsplit(value).scheme != urlsplit(issuer).scheme:
            chart.add_failure("addresses", f"{name} is {value}", FIX_BASE_URL)
            return False
    missing = [name for name in endpoints[:2] if not document.get(name)]
    if missing or "code" not in (document.get("response_types_supported") or []):
        found = f"no {', '.join(missing) or 'response type code'}"
        chart.add_failure("addresses", found, "Serve the metadata of mcp_django.oauth.")
        return False
    if not METHODS & {*(document.get("token_endpoint_auth_methods_supported") or ())}:
        chart.add_failure(
            "addresses",
            "no token endpoint authentication method that hosts support",
            "Support none, client_secret_basic or client_secret_post at the token endpoint.",
        )
        return False
    return True


def _fetch_document(transport: HttpTransport, address: str) -> tuple[dict[str, Any] | None, str]:
    """Fetch a public JSON document; return it, or ``None`` with the reason."""
    try:
        answer = transport.send(get_request(address, Accept=JSON))
    except NoResponse as exc:
        return None, str(exc)
    if answer.status != 200:
        return None, str(answer.status)
    document = answer.json()
    if document is None or answer.content_type != JSON:
        return None, f"200, but {answer.content_type or 'nothing'} instead of application/json"
    return document, ""


# Client registration ------------------------------------------------------------------------------

REGISTRATION = "registration"
FIX_OPEN_REGISTRATION = (
    "Set MCP_DJANGO['OAUTH']['DCR'] = 'open' so that hosts can register themselves."
)
FIX_REACHABILITY = (
    "Make the URL reachable from this machine by https (DNS, firewall; no proxy is used), and its "
    "host allowed by MCP_DJANGO['OAUTH']['CIMD_HOSTS']; or set OAUTH = {'CIMD': False}, so that "
    "hosts register themselves."
)
REJECTED_WITHIN = timedelta(days=1)
MAX_REJECTED, MAX_EVENTS = 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The OAuth client that a host acts as; the secret is used for one token request."""

    client_id: str
    secret: str = ""
    is_document: bool = False


def diagnose_registration(
    chart: HostReport,
    transport: HttpTransport,
    host: HostProfile,
    server: dict[str, Any],
    *,
    may_register: bool,
    document_problem: Callable[[str], str] | None,
) -> OAuthClient | None:
    """Return the host's OAuth client: by its metadata document if the site accepts it, or RFC 7591.

    Returns ``None`` without a client; the report says whether that failed or was not tried.
    """
    if host.client_id and _accepts_documents(server):
        return _document_client(chart, host.client_id, document_problem)
    address = server.get("registration_endpoint")
    if not address:
        documents = " and does not accept metadata documents" if host.client_id else ""
        chart.add_failure(
            REGISTRATION, f"the site has no registration endpoint{documents}", FIX_OPEN_REGISTRATION
        )
        return None
    if not may_register:
        chart.add_skipped(
            REGISTRATION, f"available at {address}; --register tests it, and the client remains"
        )
        return None
    return _register_client(chart, transport, host, address)


def report_rejected_documents() -> HostReport | None:
    """Report the client metadata documents that the site rejected within a day, of any host.

    They are read from the security log. Returns ``None`` if there are none.
    """
    events = AuthEvent.objects.filter(
        kind=AuthEvent.Kind.DOCUMENT, at__gte=timezone.now() - REJECTED_WITHIN
    ).values_list("client_id", "details")
    chart = HostReport(slug="documents", title="Rejected client documents of the last day")
    told: set[str] = set()
    for client_id, details in events[:MAX_EVENTS]:
        if client_id not in told and len(told) < MAX_REJECTED:
            told.add(client_id)
            chart.add_warning(
                REGISTRATION, f"{client_id}: {details.get('reason', '')}", FIX_REACHABILITY
            )
    return chart if told else None


def _document_client(
    chart: HostReport, client_id: str, document_problem: Callable[[str], str] | None
) -> OAuthClient | None:
    """Return the client of a metadata document, if the site can fetch it or that is unknown."""
    if document_problem is None:
        unknown = "to test whether the site can fetch it, run mcp doctor without a URL"
        chart.add_ok(REGISTRATION, f"by its metadata document {client_id}; {unknown}")
        return OAuthClient(client_id=client_id, is_document=True)
    problem = document_problem(client_id)
    if problem:
        chart.add_failure(REGISTRATION, f"{client_id}: {problem}", FIX_REACHABILITY)
        return None
    chart.add_ok(REGISTRATION, f"by its metadata document {client_id}, which the site can fetch")
    return OAuthClient(client_id=client_id, is_document=True)


def _accepts_documents(server: dict[str, Any]) -> bool:
    """Return whether the site accepts client ID metadata documents."""
    methods = server.get("token_endpoint_auth_methods_supported") or []
    return server.get("client_id_metadata_document_supported") is True and "none" in methods


def _register_client(
    chart: HostReport, transport: HttpTransport, host: HostProfile, address: str
) -> OAuthClient | None:
    try:
        answer = transport.send(json_request(address, host.metadata))
    except NoResponse as exc:
        chart.add_failure(
            REGISTRATION, str(exc), "Correct the endpoint's URL, or start its server."
        )
        return None
    document = answer.json()
    if answer.status != 201 or document is None:
        chart.add_failure(REGISTRATION, _error_text(answer, document), _suggest_fix(answer, host))
        return None
    problem = _registration_problem(document, host)
    if problem:
        chart.add_failure(REGISTRATION, problem, "Serve the registration of mcp_django.oauth.")
        return None
    chart.add_ok(REGISTRATION, f"201, method {document.get('token_endpoint_auth_method', 'none')}")
    return OAuthClient(
        client_id=str(document["client_id"]), secret=str(document.get("client_secret") or "")
    )


def _error_text(answer: ProbeResponse, document: dict[str, Any] | None) -> str:
    said = (document or {}).get("error_description") or (document or {}).get("error") or ""
    return f"{answer.status} {said}".strip()


def _suggest_fix(answer: ProbeResponse, host: HostProfile) -> str:
    document = answer.json() or {}
    if answer.status in (401, 403):
        return FIX_OPEN_REGISTRATION
    if answer.status == 429:
        seconds = answer.headers.get("retry-after")
        return f"Wait {seconds} seconds." if seconds else "Wait; registrations are rate limited."
    if document.get("error") == "invalid_redirect_uri":
        apps = [one for one in host.redirects if not one.startswith("http")]
        return (
            f"Add {apps!r} to MCP_DJANGO['OAUTH']['APP_REDIRECTS']."
            if apps
            else FIX_OPEN_REGISTRATION
        )
    if answer.status >= 500:
        return FIX_CHECK_LOG
    if 300 <= answer.status < 400:
        return FIX_TRAILING_SLASH
    return "Serve the registration of mcp_django.oauth."


def _registration_problem(document: dict[str, Any], host: HostProfile) -> str:
    """Return what is wrong with a registration response (RFC 7591, section 3.2.1), or ``""``."""
    if not document.get("client_id"):
        return "201 without a client_id"
    redirects = document.get("redirect_uris") or []
    if {*redirects} != {*host.redirects}:
        return f"requested redirect_uris {list(host.redirects)}, got {redirects}"
    if document.get("token_endpoint_auth_method", "none") != host.auth_method:
        got = document.get("token_endpoint_auth_method")
        return f"requested the method {host.auth_method}, got {got}"
    if document.get("client_secret") and "client_secret_expires_at" not in document:
        return "a client_secret without client_secret_expires_at"
    if host.auth_method != "none" and not document.get("client_secret"):
        return f"the method {host.auth_method} without a client_secret"
    return ""


# Authorization request and token request ----------------------------------------------------------

AUTHORIZE, TOKEN = "authorization", "token"
REJECTIONS = ("invalid_grant", "invalid_client")


def diagnose_sign_in(
    chart: HostReport,
    transport: HttpTransport,
    host: HostProfile,
    client: OAuthClient,
    found: Discovery,
) -> None:
    """Test the authorization request up to the sign-in page, and the token endpoint."""
    verifier = secrets.token_urlsafe(48)
    _check_authorization(chart, transport, host, client, found, verifier)
    _check_token_endpoint(chart, transport, host, client, found, verifier)


def _check_authorization(
    chart: HostReport,
    transport: HttpTransport,
    host: HostProfile,
    client: OAuthClient,
    found: Discovery,
    verifier: str,
) -> None:
    address = found.server["authorization_endpoint"]
    asked = _authorization_request(host, client, found, verifier)
    joint = "&" if "?" in address else "?"
    try:
        answer = transport.send(
            get_request(f"{address}{joint}{urlencode(asked)}", Accept="text/html")
        )
    except NoResponse as exc:
        chart.add_failure(AUTHORIZE, str(exc), "Correct the endpoint's URL, or start its server.")
        return
    if answer.location and "error=" not in answer.location:
        where = answer.location.partition("?")[0]
        chart.add_ok(AUTHORIZE, f"{answer.status}: sends the user to {where}")
    elif answer.status == 200:
        chart.add_ok(AUTHORIZE, "200: a page for the user")
    else:
        told = answer.location.partition("?")[2] or str(answer.status)
        chart.add_failure(AUTHORIZE, f"rejected: {told}", _suggest_authorize_fix(answer))


def _authorization_request(
    host: HostProfile, client: OAuthClient, found: Discovery, verifier: str
) -> dict[str, str]:
    digest = hashlib.sha256(verifier.encode()).digest()
    scopes = dict.fromkeys((*found.scopes, *_known(host, found)))
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": host.redirects[0],
        "state": secrets.token_urlsafe(16),
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "scope": " ".join(scopes),
        "resource": found.resource if host.reads_resource else "",
    }
    return {name: value for name, value in asked.items() if value}


def _known(host: HostProfile, found: Discovery) -> tuple[str, ...]:
    """Return the scopes that the host itself adds, if the authorization server lists them."""
    listed = found.server.get("scopes_supported") or ()
    return tuple(scope for scope in host.scopes if scope in listed)


def _suggest_authorize_fix(answer: ProbeResponse) -> str:
    if "error=invalid_scope" in answer.location:
        return "Add the scope to MCP_DJANGO['SCOPES']."
    if "error=invalid_target" in answer.location:
        return "The resource must be the URL of a server of this site: check BASE_URL."
    if answer.status == 404:
        return "Include 'mcp_django.oauth.urls' at the root of ROOT_URLCONF."
    return "Set LOGIN_URL to a page of the site, and check the site's log."


def _check_token_endpoint(
    chart: HostReport,
    transport: HttpTransport,
    host: HostProfile,
    client: OAuthClient,
    found: Discovery,
    verifier: str,
) -> None:
    """Send a made-up code to the token endpoint, which must reject it with a JSON error."""
    form = {
        "grant_type": "authorization_code",
        "code": f"doctor-{secrets.token_hex(8)}",
        "redirect_uri": host.redirects[0],
        "client_id": client.client_id,
        "code_verifier": verifier,
        **({"client_secret": client.secret} if client.secret else {}),
        **({"resource": found.resource} if host.reads_resource else {}),
    }
    try:
        answer = transport.send(form_request(found.server["token_endpoint"], urlencode(form)))
    except NoResponse as exc:
        chart.add_failure(TOKEN, str(exc), "Correct the endpoint's URL, or start its server.")
        return
    error = (answer.json() or {}).get("error")
    if answer.status in (400, 401) and error in REJECTIONS:
        chart.add_ok(TOKEN, f"rejects a made-up code with {answer.status} {error}")
    elif answer.location:
        chart.add_failure(
            TOKEN, f"{answer.status}: redirects to {answer.location}", FIX_TRAILING_SLASH
        )
    elif answer.status == 429:
        chart.add_warning(TOKEN, "429: token requests are rate limited", "Wait, and try again.")
    else:
        kind = answer.content_type or "nothing"
        chart.add_failure(
            TOKEN,
            f"{answer.status} {error or kind} instead of 400 invalid_grant as JSON",
            "Serve the token endpoint of mcp_django.oauth, exempt from CSRF and login middleware.",
        )
