"""From the challenge to the authorization server: RFC 9728 and RFC 8414, in a host's own order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mcp_django.management.doctor.chart import Chart
from mcp_django.management.doctor.hosts import Form, Host
from mcp_django.management.doctor.messages import Answer, Door, DoorError, get

RESOURCE, SERVER = "resource metadata", "authorization server metadata"
WELL_KNOWN_RESOURCE = "/.well-known/oauth-protected-resource"
WELL_KNOWN_SERVER = "/.well-known/oauth-authorization-server"
WELL_KNOWN_OPENID = "/.well-known/openid-configuration"
INCLUDE = (
    "Include the URLs at the root of ROOT_URLCONF: path('', include('mcp_django.oauth.urls'))."
)
ADDRESS = (
    "Say where the site is: MCP_DJANGO['BASE_URL']; or have it believe its proxy: "
    "SECURE_PROXY_SSL_HEADER and USE_X_FORWARDED_HOST."
)
METHODS = {"none", "client_secret_basic", "client_secret_post"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where discovery led: the resource as the site spells it, and who authorizes for it."""

    resource: str
    server: dict[str, Any]
    scopes: tuple[str, ...] = ()


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def resource_addresses(url: str, answer: Answer | None = None) -> list[str]:
    """Where the metadata of an endpoint is looked for, in order (AUT-15)."""
    named = (answer.challenge() or {}).get("resource_metadata", "") if answer else ""
    origin, path = origin_of(url), urlsplit(url).path.rstrip("/")
    addresses = [named, f"{origin}{WELL_KNOWN_RESOURCE}{path}", f"{origin}{WELL_KNOWN_RESOURCE}"]
    return [one for one in dict.fromkeys(addresses) if one]


def server_address(issuer: str, form: Form) -> str:
    """The address of an issuer's metadata in one of its forms (AUT-18)."""
    origin, path = origin_of(issuer), urlsplit(issuer).path.rstrip("/")
    return {
        "rfc8414": f"{origin}{WELL_KNOWN_SERVER}{path}",
        "oidc-inserted": f"{origin}{WELL_KNOWN_OPENID}{path}",
        "oidc-appended": f"{origin}{path}{WELL_KNOWN_OPENID}",
        "root": f"{origin}{WELL_KNOWN_SERVER}",
    }[form]


def examine(chart: Chart, door: Door, url: str, host: Host, answer: Answer) -> Found | None:
    """Who authorizes for an endpoint, ``None`` if the host does not find out."""
    challenge = answer.challenge()
    if challenge is None:
        chart.failed(
            "challenge",
            "401 without a WWW-Authenticate header",
            "Let middleware and proxies pass WWW-Authenticate.",
        )
        return None
    if not host.reads_resource:
        return _server(chart, door, host, issuer=origin_of(url), resource=url)
    if "resource_metadata" in challenge:
        chart.ok("challenge", f"names the metadata, scope {challenge.get('scope') or 'none'}")
    else:
        chart.warned("challenge", "names no resource_metadata; hosts have to guess", INCLUDE)
    document = _resource(chart, door, url, answer)
    if document is None:
        return None
    named = document.get("resource")
    if named != url:
        chart.failed("resource", f"{named!r} is not {url!r}; hosts compare both", ADDRESS)
        return None
    chart.ok("resource", str(named))
    issuers = document.get("authorization_servers") or []
    if not issuers:
        chart.failed(
            "issuer",
            "the resource metadata names no authorization server",
            "Install mcp_django.oauth, or name an issuer in MCP_DJANGO['JWT'].",
        )
        return None
    wanted = challenge.get("scope") or " ".join(document.get("scopes_supported") or [])
    return _server(chart, door, host, issuer=issuers[0], resource=url, scopes=tuple(wanted.split()))


def _resource(chart: Chart, door: Door, url: str, answer: Answer) -> dict[str, Any] | None:
    tried = []
    for address in resource_addresses(url, answer):
        document, why = _document(door, address)
        if document is not None:
            chart.ok(RESOURCE, address)
            return document
        tried.append(f"{address}: {why}")
    chart.failed(RESOURCE, "; ".join(tried), INCLUDE)
    return None


def _server(
    chart: Chart,
    door: Door,
    host: Host,
    *,
    issuer: str,
    resource: str,
    scopes: tuple[str, ...] = (),
) -> Found | None:
    tried = []
    for address in dict.fromkeys(server_address(issuer, form) for form in host.forms):
        document, why = _document(door, address)
        if document is None:
            tried.append(f"{address}: {why}")
            continue
        chart.ok(SERVER, address)
        if not _is_complete(chart, document, issuer, resource):
            return None
        return Found(resource=resource, server=document, scopes=scopes)
    fix = INCLUDE
    if host.forms == ("root",) and urlsplit(issuer).path.strip("/"):
        fix = "Make the origin the issuer: leave MCP_DJANGO['OAUTH']['ISSUER'] out."
    chart.failed(SERVER, "; ".join(tried), fix)
    return None


def _is_complete(chart: Chart, document: dict[str, Any], issuer: str, resource: str) -> bool:
    """Whether a metadata document has what every host needs of it."""
    if document.get("issuer") != issuer:
        found = f"the document says {document.get('issuer')!r}, its address {issuer!r}"
        chart.failed("issuer", found, f"MCP_DJANGO['OAUTH']['ISSUER'] has to fit. {ADDRESS}")
        return False
    chart.ok("issuer", issuer)
    if "S256" not in (document.get("code_challenge_methods_supported") or []):
        is_own = origin_of(issuer) == origin_of(resource)
        chart.failed(
            "PKCE",
            "S256 is not among code_challenge_methods_supported",
            "Serve the metadata of mcp_django.oauth in place of the toolkit's own."
            if is_own
            else f"Have {issuer} say that it does PKCE with S256 (RFC 8414), or let this site "
            "issue the tokens: mcp_django.oauth.",
        )
        return False
    chart.ok("PKCE", "S256")
    endpoints = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
    for name in endpoints:
        value = document.get(name)
        if value and urlsplit(value).scheme != urlsplit(issuer).scheme:
            chart.failed("addresses", f"{name} is {value}", ADDRESS)
            return False
    missing = [name for name in endpoints[:2] if not document.get(name)]
    if missing or "code" not in (document.get("response_types_supported") or []):
        found = f"no {', '.join(missing) or 'response type code'}"
        chart.failed("addresses", found, "Serve the metadata of mcp_django.oauth.")
        return False
    if not METHODS & {*(document.get("token_endpoint_auth_methods_supported") or ())}:
        chart.failed(
            "addresses",
            "no method of authentication that hosts know",
            "Offer none, client_secret_basic or client_secret_post at the token endpoint.",
        )
        return False
    return True


def _document(door: Door, address: str) -> tuple[dict[str, Any] | None, str]:
    """A JSON document that is public, or why there is none."""
    try:
        answer = door.send(get(address, Accept="application/json"))
    except DoorError as exc:
        return None, str(exc)
    if answer.status != 200:
        return None, str(answer.status)
    document = answer.json()
    if document is None or answer.content_type != "application/json":
        return None, f"200, but {answer.content_type or 'nothing'} instead of application/json"
    return document, ""
