"""The OAuth steps of ``mcp doctor``: discovery, client registration, sign-in and token request.

Discovery leads from the challenge to the authorization server (RFC 9728 and RFC 8414), in the
order of the host.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.utils import timezone

from mcp_django.management.doctor_hosts import Form, HostProfile
from mcp_django.management.doctor_transport import (
    HostReport,
    NoResponse,
    Probe,
    ProbeResponse,
    StepFailed,
    form_request,
    get_request,
    json_request,
)
from mcp_django.models import AuthEvent
from mcp_django.protocol.headers import JSON
from mcp_django.tenants import of_tenant

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
FIX_ENDPOINT = "Correct the endpoint's URL, or start its server."
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
    metadata_url = (answer.challenge() or {}).get("resource_metadata", "") if answer else ""
    origin, path = origin_of(url), urlsplit(url).path.rstrip("/")
    addresses = [
        metadata_url,
        f"{origin}{WELL_KNOWN_RESOURCE}{path}",
        f"{origin}{WELL_KNOWN_RESOURCE}",
    ]
    return [address for address in dict.fromkeys(addresses) if address]


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
    probe: Probe, url: str, host: HostProfile, answer: ProbeResponse
) -> Discovery:
    """Return the authorization server of an endpoint.

    Raises:
        StepFailed: the host does not find it, or cannot use it.
    """
    challenge = answer.challenge()
    if challenge is None:
        raise StepFailed(
            "challenge",
            "401 without a WWW-Authenticate header",
            "Have middleware and proxies pass WWW-Authenticate.",
        )
    if not host.reads_resource:
        return _find_server_metadata(probe, host, issuer=origin_of(url), resource=url)
    if "resource_metadata" in challenge:
        probe.add_ok(
            "challenge", f"has resource_metadata, scope {challenge.get('scope') or 'none'}"
        )
    else:
        probe.add_warning(
            "challenge", "has no resource_metadata; hosts have to guess its URL", FIX_INCLUDE_URLS
        )
    document = _find_document(probe, RESOURCE, resource_addresses(url, answer), FIX_INCLUDE_URLS)
    resource = document.get("resource")
    if resource != url:
        raise StepFailed(
            "resource", f"{resource!r} is not {url!r}; hosts compare the two", FIX_BASE_URL
        )
    probe.add_ok("resource", str(resource))
    issuers = document.get("authorization_servers") or []
    if not issuers:
        raise StepFailed(
            "issuer",
            "the resource metadata has no authorization_servers",
            "Install mcp_django.oauth, or configure an issuer in MCP_DJANGO['JWT'].",
        )
    scope = challenge.get("scope") or " ".join(document.get("scopes_supported") or [])
    return _find_server_metadata(
        probe, host, issuer=issuers[0], resource=url, scopes=tuple(scope.split())
    )


def _find_document(probe: Probe, step: str, addresses: Iterable[str], fix: str) -> dict[str, Any]:
    """Return the first public JSON document at one of the addresses.

    Raises:
        StepFailed: there is none; the text gives the reason for each address.
    """
    tried = []
    for address in addresses:
        try:
            answer = probe.transport.send(get_request(address, Accept=JSON))
        except NoResponse as exc:
            tried.append(f"{address}: {exc}")
            continue
        document = answer.json()
        if answer.status != 200:
            tried.append(f"{address}: {answer.status}")
        elif document is None or answer.content_type != JSON:
            kind = answer.content_type or "nothing"
            tried.append(f"{address}: 200, but {kind} instead of application/json")
        else:
            probe.add_ok(step, address)
            return document
    raise StepFailed(step, "; ".join(tried), fix)


def _find_server_metadata(
    probe: Probe, host: HostProfile, *, issuer: str, resource: str, scopes: tuple[str, ...] = ()
) -> Discovery:
    fix = FIX_INCLUDE_URLS
    if host.forms == ("root",) and urlsplit(issuer).path.strip("/"):
        fix = "Use the site's origin as the issuer: remove MCP_DJANGO['OAUTH']['ISSUER']."
    addresses = dict.fromkeys(server_address(issuer, form) for form in host.forms)
    document = _find_document(probe, SERVER, addresses, fix)
    _check_complete(probe, document, issuer, resource)
    return Discovery(resource=resource, server=document, scopes=scopes)


def _check_complete(probe: Probe, document: dict[str, Any], issuer: str, resource: str) -> None:
    """Check that a metadata document has everything that every host needs.

    Raises:
        StepFailed: something is missing or wrong.
    """
    if document.get("issuer") != issuer:
        problem = f"the document has the issuer {document.get('issuer')!r} instead of {issuer!r}"
        raise StepFailed(
            "issuer", problem, f"Correct MCP_DJANGO['OAUTH']['ISSUER']. {FIX_BASE_URL}"
        )
    probe.add_ok("issuer", issuer)
    if "S256" not in (document.get("code_challenge_methods_supported") or []):
        is_own = origin_of(issuer) == origin_of(resource)
        raise StepFailed(
            "PKCE",
            "S256 is not among code_challenge_methods_supported",
            "Serve the metadata of mcp_django.oauth instead of the toolkit's own."
            if is_own
            else f"Have {issuer} list S256 for PKCE in its metadata (RFC 8414), or let this site "
            "issue the tokens: mcp_django.oauth.",
        )
    probe.add_ok("PKCE", "S256")
    endpoints = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
    for name in endpoints:
        value = document.get(name)
        if value and urlsplit(value).scheme != urlsplit(issuer).scheme:
            raise StepFailed("addresses", f"{name} is {value}", FIX_BASE_URL)
    missing = [name for name in endpoints[:2] if not document.get(name)]
    if missing or "code" not in (document.get("response_types_supported") or []):
        problem = f"no {', '.join(missing) or 'response type code'}"
        raise StepFailed("addresses", problem, "Serve the metadata of mcp_django.oauth.")
    if not METHODS & {*(document.get("token_endpoint_auth_methods_supported") or ())}:
        raise StepFailed(
            "addresses",
            "no token endpoint authentication method that hosts support",
            "Support none, client_secret_basic or client_secret_post at the token endpoint.",
        )


# Client registration ------------------------------------------------------------------------------

REGISTRATION = "registration"
FIX_SERVE_REGISTRATION = "Serve the registration of mcp_django.oauth."
FIX_OPEN_REGISTRATION = (
    "Set MCP_DJANGO['OAUTH']['DCR'] = 'open' so that hosts can register themselves."
)
FIX_REGISTER = (
    "For mcp_django.oauth, set MCP_DJANGO['OAUTH']['DCR'] = 'open'. At another provider, register "
    "a client by hand, and pass its id: mcp doctor --client-id ID."
)
FIX_REACHABILITY = (
    "This site has to fetch the host's document by https (DNS, firewall; no proxy is used), and "
    "MCP_DJANGO['OAUTH']['CIMD_HOSTS'] has to allow its host; or set MCP_DJANGO['OAUTH']['CIMD'] "
    "= False, so that hosts register themselves."
)
REJECTED_WITHIN = timedelta(days=1)
MAX_REJECTED, MAX_EVENTS = 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The OAuth client that a host acts as; the secret is used for one token request."""

    client_id: str
    secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """How hosts get a client.

    ``client_id`` is a client that was registered by hand; if it is empty, ``may_register`` allows
    clients to be registered. ``document_problem`` returns why the site cannot fetch a client's
    metadata document, if that can be tested.
    """

    client_id: str = ""
    may_register: bool = False
    document_problem: Callable[[str], str] | None = None


def diagnose_registration(
    probe: Probe, host: HostProfile, server: dict[str, Any], registration: Registration
) -> OAuthClient | None:
    """Return the host's OAuth client: by its metadata document if the site accepts it, or RFC 7591.

    Returns ``None`` if the registration was not tried.

    Raises:
        StepFailed: the host does not get a client.
    """
    if registration.client_id:
        probe.add_ok(REGISTRATION, f"not needed: client {registration.client_id}")
        return OAuthClient(client_id=registration.client_id)
    methods = server.get("token_endpoint_auth_methods_supported") or []
    accepts_documents = server.get("client_id_metadata_document_supported") is True
    if host.client_id and accepts_documents and "none" in methods:
        return _document_client(probe, host.client_id, registration.document_problem)
    address = server.get("registration_endpoint")
    if not address:
        documents = " and does not accept metadata documents" if host.client_id else ""
        problem = f"the site has no registration endpoint{documents}"
        raise StepFailed(REGISTRATION, problem, FIX_REGISTER)
    if not registration.may_register:
        probe.add_skipped(
            REGISTRATION, f"available at {address}; --register tests it, and the client remains"
        )
        return None
    return _register_client(probe, host, address)


def report_rejected_documents() -> HostReport | None:
    """Report the client metadata documents that the site rejected within a day, of any host.

    They are read from the security log. Returns ``None`` if there are none.
    """
    events = (
        of_tenant(AuthEvent)
        .filter(kind=AuthEvent.Kind.DOCUMENT, at__gte=timezone.now() - REJECTED_WITHIN)
        .values_list("client_id", "details")
    )
    reasons: dict[str, str] = {}
    for client_id, details in events[:MAX_EVENTS]:
        reasons.setdefault(client_id, details.get("reason", ""))
    report = HostReport(slug="documents", title="Rejected client documents of the last day")
    for client_id, reason in list(reasons.items())[:MAX_REJECTED]:
        report.add_warning(REGISTRATION, f"{client_id}: {reason}", FIX_REACHABILITY)
    return report if reasons else None


def _document_client(
    probe: Probe, client_id: str, document_problem: Callable[[str], str] | None
) -> OAuthClient:
    """Return the client of a metadata document, if the site can fetch it or that is unknown."""
    note = ", which the site can fetch"
    if document_problem is None:
        note = "; to test whether the site can fetch it, run mcp doctor without a URL"
    elif problem := document_problem(client_id):
        raise StepFailed(REGISTRATION, f"{client_id}: {problem}", FIX_REACHABILITY)
    probe.add_ok(REGISTRATION, f"by its metadata document {client_id}{note}")
    return OAuthClient(client_id=client_id)


def _register_client(probe: Probe, host: HostProfile, address: str) -> OAuthClient:
    answer = probe.send(REGISTRATION, json_request(address, host.metadata), FIX_ENDPOINT)
    document = answer.json()
    if answer.status != 201 or document is None:
        error = document or {}
        text = error.get("error_description") or error.get("error") or ""
        raise StepFailed(
            REGISTRATION, f"{answer.status} {text}".strip(), _suggest_fix(answer, host)
        )
    if problem := _registration_problem(document, host):
        raise StepFailed(REGISTRATION, problem, FIX_SERVE_REGISTRATION)
    probe.add_ok(REGISTRATION, f"201, method {document.get('token_endpoint_auth_method', 'none')}")
    return OAuthClient(
        client_id=str(document["client_id"]), secret=str(document.get("client_secret") or "")
    )


def _suggest_fix(answer: ProbeResponse, host: HostProfile) -> str:
    document = answer.json() or {}
    if answer.status in (401, 403):
        return FIX_OPEN_REGISTRATION
    if answer.status == 429:
        seconds = answer.headers.get("retry-after")
        return f"Wait {seconds} seconds." if seconds else "Wait; registrations are rate limited."
    if document.get("error") == "invalid_redirect_uri":
        apps = [redirect for redirect in host.redirects if not redirect.startswith("http")]
        fix = f"Add {apps!r} to MCP_DJANGO['OAUTH']['APP_REDIRECTS']."
        return fix if apps else FIX_OPEN_REGISTRATION
    if answer.status >= 500:
        return FIX_CHECK_LOG
    if 300 <= answer.status < 400:
        return FIX_TRAILING_SLASH
    return FIX_SERVE_REGISTRATION


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
    probe: Probe, host: HostProfile, client: OAuthClient, discovery: Discovery
) -> None:
    """Test the authorization request up to the sign-in page, and the token endpoint."""
    verifier = secrets.token_urlsafe(48)
    for check in (_check_authorization, _check_token_endpoint):
        # The token endpoint is tested even if the authorization endpoint fails.
        with probe.recording():
            check(probe, host, client, discovery, verifier)


def _check_authorization(
    probe: Probe, host: HostProfile, client: OAuthClient, discovery: Discovery, verifier: str
) -> None:
    address = discovery.server["authorization_endpoint"]
    digest = hashlib.sha256(verifier.encode()).digest()
    # The host itself adds scopes that the authorization server lists.
    listed = discovery.server.get("scopes_supported") or ()
    scopes = dict.fromkeys(
        [*discovery.scopes, *(scope for scope in host.scopes if scope in listed)]
    )
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": host.redirects[0],
        "state": secrets.token_urlsafe(16),
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        "scope": " ".join(scopes),
        "resource": discovery.resource if host.reads_resource else "",
    }
    query = urlencode({name: value for name, value in parameters.items() if value})
    request = get_request(f"{address}{'&' if '?' in address else '?'}{query}", Accept="text/html")
    answer = probe.send(AUTHORIZE, request, FIX_ENDPOINT)
    if answer.location and "error=" not in answer.location:
        where = answer.location.partition("?")[0]
        probe.add_ok(AUTHORIZE, f"{answer.status}: sends the user to {where}")
    elif answer.status == 200:
        probe.add_ok(AUTHORIZE, "200: a page for the user")
    else:
        fix = "Set LOGIN_URL to a page of the site, and check the site's log."
        if "error=invalid_scope" in answer.location:
            fix = "Add the scope to MCP_DJANGO['SCOPES']."
        elif "error=invalid_target" in answer.location:
            fix = "The resource must be the URL of a server of this site: check BASE_URL."
        elif answer.status == 404:
            fix = "Include 'mcp_django.oauth.urls' at the root of ROOT_URLCONF."
        reason = answer.location.partition("?")[2] or str(answer.status)
        raise StepFailed(AUTHORIZE, f"rejected: {reason}", fix)


def _check_token_endpoint(
    probe: Probe, host: HostProfile, client: OAuthClient, discovery: Discovery, verifier: str
) -> None:
    """Send a made-up code to the token endpoint, which must reject it with a JSON error."""
    form = {
        "grant_type": "authorization_code",
        "code": f"doctor-{secrets.token_hex(8)}",
        "redirect_uri": host.redirects[0],
        "client_id": client.client_id,
        "code_verifier": verifier,
        **({"client_secret": client.secret} if client.secret else {}),
        **({"resource": discovery.resource} if host.reads_resource else {}),
    }
    request = form_request(discovery.server["token_endpoint"], urlencode(form))
    answer = probe.send(TOKEN, request, FIX_ENDPOINT)
    error = (answer.json() or {}).get("error")
    if answer.status in (400, 401) and error in REJECTIONS:
        probe.add_ok(TOKEN, f"rejects a made-up code with {answer.status} {error}")
    elif answer.location:
        what = f"{answer.status}: redirects to {answer.location}"
        raise StepFailed(TOKEN, what, FIX_TRAILING_SLASH)
    elif answer.status == 429:
        probe.add_warning(TOKEN, "429: token requests are rate limited", "Wait, and try again.")
    else:
        kind = answer.content_type or "nothing"
        raise StepFailed(
            TOKEN,
            f"{answer.status} {error or kind} instead of 400 invalid_grant as JSON",
            "Serve the token endpoint of mcp_django.oauth, exempt from CSRF and login middleware.",
        )
