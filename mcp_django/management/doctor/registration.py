"""How a host becomes a client: a metadata document where that is taken, else RFC 7591."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from mcp_django.management.doctor.chart import Chart
from mcp_django.management.doctor.hosts import Host
from mcp_django.management.doctor.messages import Answer, Door, DoorError, post_json
from mcp_django.models import AuthEvent

NAME = "registration"
OPEN = "MCP_DJANGO['OAUTH']['DCR'] = 'open' lets hosts register themselves."
REACH = (
    "Let this machine reach the address by https (DNS, firewall; no proxy is used), and its host "
    "be among MCP_DJANGO['OAUTH']['CIMD_HOSTS']; with OAUTH = {'CIMD': False} hosts register "
    "themselves instead."
)
LATELY = timedelta(days=1)
MAX_LATELY, MAX_EVENTS = 5, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who the host is to the authorization server; the secret is kept for one request."""

    client_id: str
    secret: str = ""
    is_document: bool = False


def examine(
    chart: Chart,
    door: Door,
    host: Host,
    server: dict[str, Any],
    *,
    may_register: bool,
    document_problem: Callable[[str], str] | None,
) -> Client | None:
    """The client that the host becomes.

    ``None`` if it becomes none; the chart says whether that is a failure or was not tried.
    """
    if host.client_id and takes_documents(server):
        return _by_document(chart, host.client_id, document_problem)
    address = server.get("registration_endpoint")
    if not address:
        documents = " nor takes metadata documents" if host.client_id else ""
        chart.failed(NAME, f"the site offers no registration endpoint{documents}", OPEN)
        return None
    if not may_register:
        chart.skipped(NAME, f"offered at {address}; --register tries it and leaves a client behind")
        return None
    return _register(chart, door, host, address)


def refused_lately() -> Chart | None:
    """The documents of clients that the site did not take within a day, whatever host they are of.

    They are in the security log; ``None`` if there are none.
    """
    events = AuthEvent.objects.filter(
        kind=AuthEvent.Kind.DOCUMENT, at__gte=timezone.now() - LATELY
    ).values_list("client_id", "details")
    chart = Chart(slug="documents", title="Documents of clients, within the last day")
    told: set[str] = set()
    for client_id, details in events[:MAX_EVENTS]:
        if client_id not in told and len(told) < MAX_LATELY:
            told.add(client_id)
            chart.warned(NAME, f"{client_id}: {details.get('reason', '')}", REACH)
    return chart if told else None


def _by_document(
    chart: Chart, client_id: str, document_problem: Callable[[str], str] | None
) -> Client | None:
    """The client of a document that the site can have, as far as that can be known from here."""
    if document_problem is None:
        unknown = "whether the site gets it, mcp doctor tells in its own process"
        chart.ok(NAME, f"by its metadata document {client_id}; {unknown}")
        return Client(client_id=client_id, is_document=True)
    problem = document_problem(client_id)
    if problem:
        chart.failed(NAME, f"{client_id}: {problem}", REACH)
        return None
    chart.ok(NAME, f"by its metadata document {client_id}, which the site can fetch")
    return Client(client_id=client_id, is_document=True)


def takes_documents(server: dict[str, Any]) -> bool:
    """Whether a host may be known by its metadata document."""
    methods = server.get("token_endpoint_auth_methods_supported") or []
    return server.get("client_id_metadata_document_supported") is True and "none" in methods


def _register(chart: Chart, door: Door, host: Host, address: str) -> Client | None:
    try:
        answer = door.send(post_json(address, host.metadata))
    except DoorError as exc:
        chart.failed(NAME, str(exc), "Name an endpoint that answers.")
        return None
    document = answer.json()
    if answer.status != 201 or document is None:
        chart.failed(NAME, _refusal(answer, document), _fix(answer, host))
        return None
    problem = _problem(document, host)
    if problem:
        chart.failed(NAME, problem, "Serve the registration of mcp_django.oauth.")
        return None
    chart.ok(NAME, f"201, method {document.get('token_endpoint_auth_method', 'none')}")
    return Client(
        client_id=str(document["client_id"]), secret=str(document.get("client_secret") or "")
    )


def _refusal(answer: Answer, document: dict[str, Any] | None) -> str:
    said = (document or {}).get("error_description") or (document or {}).get("error") or ""
    return f"{answer.status} {said}".strip()


def _fix(answer: Answer, host: Host) -> str:
    document = answer.json() or {}
    if answer.status in (401, 403):
        return OPEN
    if answer.status == 429:
        seconds = answer.headers.get("retry-after")
        return f"Wait {seconds} seconds." if seconds else "Wait; registrations are limited."
    if document.get("error") == "invalid_redirect_uri":
        apps = [one for one in host.redirects if not one.startswith("http")]
        return f"Add {apps!r} to MCP_DJANGO['OAUTH']['APP_REDIRECTS']." if apps else OPEN
    if answer.status >= 500:
        return "Look at the site's log; did you run manage.py migrate?"
    if 300 <= answer.status < 400:
        return "Answer both spellings of the address, with and without the slash at its end."
    return "Serve the registration of mcp_django.oauth."


def _problem(document: dict[str, Any], host: Host) -> str:
    """What is wrong with the answer to a registration (RFC 7591, section 3.2.1)."""
    if not document.get("client_id"):
        return "201 without a client_id"
    redirects = document.get("redirect_uris") or []
    if {*redirects} != {*host.redirects}:
        return f"asked for the redirects {list(host.redirects)}, got {redirects}"
    if document.get("token_endpoint_auth_method", "none") != host.auth_method:
        got = document.get("token_endpoint_auth_method")
        return f"asked for the method {host.auth_method}, got {got}"
    if document.get("client_secret") and "client_secret_expires_at" not in document:
        return "a client_secret without client_secret_expires_at"
    if host.auth_method != "none" and not document.get("client_secret"):
        return f"the method {host.auth_method} without a client_secret"
    return ""
