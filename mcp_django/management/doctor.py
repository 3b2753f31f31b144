"""``mcp doctor``: find out why a host cannot connect.

It sends the requests that each host sends before its first call, until a step fails.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from mcp_django import __version__
from mcp_django.conf import docs_url, get_settings
from mcp_django.hosts.configuration import is_public, server_paths
from mcp_django.management.doctor_hosts import HOSTS, SDK_FORMS, HostProfile
from mcp_django.management.doctor_oauth import (
    FIX_CHECK_LOG,
    FIX_TRAILING_SLASH,
    Registration,
    diagnose_discovery,
    diagnose_registration,
    diagnose_sign_in,
    origin_of,
    report_rejected_documents,
    resource_addresses,
    server_address,
)
from mcp_django.management.doctor_transport import (
    MARKS,
    HostReport,
    HttpTransport,
    InProcessTransport,
    NetworkTransport,
    NoResponse,
    Probe,
    ProbeRequest,
    ProbeResponse,
    StepFailed,
    form_request,
    get_request,
    json_request,
    own_origin,
    roll_back_writes,
)
from mcp_django.management.lookups import check_url, find_server, known_name
from mcp_django.management.text_output import escape_control_characters
from mcp_django.protocol import headers as names
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.headers import ACCEPT, EVENT_STREAM, JSON
from mcp_django.protocol.revisions import LATEST, REVISIONS

TIMEOUT_SECONDS = 10.0
OAUTH_APP = "mcp_django.oauth"


def add_arguments(subcommands: Any) -> None:
    """Add the parser of the subcommand."""
    parser = subcommands.add_parser("doctor", help="Find out why a host cannot connect.")
    parser.add_argument(
        "url",
        nargs="?",
        help="The endpoint to test over HTTP; without it, a server in this process is tested.",
    )
    parser.add_argument("--server", metavar="NAME", help="The server (default: the default one).")
    parser.add_argument(
        "--host",
        action="append",
        dest="hosts",
        metavar="NAME",
        help=f"Only this host; repeatable. One of: {', '.join(HOSTS)}.",
    )
    parser.add_argument(
        "--client-id",
        metavar="ID",
        help="The client that you registered for the host at the authorization server.",
    )
    parser.add_argument(
        "--register",
        action="store_true",
        help="Over HTTP, also register each host as a client; the clients stay on the site.",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="The timeout of one request over HTTP.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the report of each host.

    Raises:
        CommandError: a step of a host failed, or an option is not valid.
    """
    hosts = [HOSTS[known_name("host", name, HOSTS)] for name in options["hosts"] or HOSTS]
    if options["timeout"] <= 0:
        raise CommandError(f"--timeout {options['timeout']:g} must be more than 0 seconds.")
    if options["url"]:
        url = check_url(options["url"])
        if options["server"]:
            raise CommandError(
                "--server selects a server of this process; omit it if you pass a URL."
            )
        transport = NetworkTransport(timeout=options["timeout"])
        registration = Registration(
            client_id=options["client_id"] or "", may_register=options["register"]
        )
        reports = diagnose(
            transport, url, hosts, registration, is_sure=True, is_chosen=bool(options["hosts"])
        )
    else:
        server = find_server(options["server"])
        mounted = server_paths(server)
        if not mounted:
            raise CommandError(
                f"The URLconf has no URL without arguments for server {server.name!r}; pass the "
                "URL of the running site: mcp doctor URL."
            )
        url = urljoin(get_settings().base_url or own_origin(), mounted[0])
        reports = _diagnose_in_process(
            url, hosts, options["client_id"] or "", is_chosen=bool(options["hosts"])
        )
    printed = _print_reports(command, url, reports, is_json=options["json"])
    failing = [report.title for report in printed if not report.is_ok]
    if failing:
        raise CommandError(f"These hosts cannot connect: {', '.join(failing)}.")


def _diagnose_in_process(
    url: str, hosts: Sequence[HostProfile], client_id: str, *, is_chosen: bool
) -> Iterator[HostReport]:
    transport = InProcessTransport(origin_of(url))
    registration = Registration(
        client_id=client_id,
        may_register=True,
        document_problem=_document_problem if apps.is_installed(OAUTH_APP) else None,
    )
    with roll_back_writes():
        # Log nothing below ERROR: the responses that the site logs are part of the report.
        before = logging.root.manager.disable
        logging.disable(max(before, logging.WARNING))
        try:
            yield from diagnose(
                transport,
                url,
                hosts,
                registration,
                is_sure=bool(get_settings().base_url),
                is_chosen=is_chosen,
            )
            if rejected := report_rejected_documents():
                yield rejected
        finally:
            logging.disable(before)


def _document_problem(client_id: str) -> str:
    # Looked up at run time: mcp_django.oauth is optional, and a layer above this package.
    oauth: Any = apps.get_app_config("mcp_oauth")
    return str(oauth.document_problem(client_id))


def _print_reports(
    command: BaseCommand, url: str, reports: Iterator[HostReport], *, is_json: bool
) -> list[HostReport]:
    """Print and return the reports: each when it is complete, or all together as JSON."""
    if not is_json:
        command.stdout.write(url)
    printed = []
    for report in reports:
        printed.append(report)
        if not is_json:
            command.stdout.write(escape_control_characters(_report_text(report)))
    if is_json:
        described = [
            {
                "host": report.slug,
                "ok": report.is_ok,
                "steps": [step.as_dict() for step in report.steps],
            }
            for report in printed
        ]
        command.stdout.write(json.dumps({"url": url, "hosts": described}, ensure_ascii=False))
    return printed


def _report_text(report: HostReport) -> str:
    lines = ["", report.title]
    for step in report.steps:
        lines.append(f"  {MARKS[step.verdict]} {step.name}: {step.found}")
        if step.fix:
            lines.append(f"    → {step.fix}")
    return "\n".join(lines)


FIX_INSTALL_OAUTH = (
    "Install the authorization server: 'oauth2_provider' and 'mcp_django.oauth' in "
    "INSTALLED_APPS, OAUTH2_PROVIDER = provider_settings(), include('mcp_django.oauth.urls')."
)


def diagnose(
    transport: HttpTransport,
    url: str,
    hosts: Iterable[HostProfile],
    registration: Registration,
    *,
    is_sure: bool,
    is_chosen: bool = True,
) -> Iterator[HostReport]:
    """Yield a report of what applies to every host, then one for each host.

    ``is_sure`` says that hosts use this URL, so that problems with the URL itself are failures.
    ``is_chosen`` says that these hosts have to connect; otherwise, a host that cannot use tokens is
    skipped on a site without OAuth.
    """
    probe = Probe(slug="every-host", title="Every host", transport=transport)
    _diagnose_all_hosts(probe, url)
    if probe.steps:
        yield probe
    for host in hosts:
        probe = Probe(slug=host.slug, title=host.title, transport=transport)
        if host.is_cloud and not is_public(url):
            what = f"{url} cannot be reached from the vendor's cloud"
            if is_sure:
                probe.add_failure("address", what, "Serve the site at a public https:// URL.")
            else:
                probe.add_skipped("address", f"{what}; set BASE_URL, or pass the public URL")
        with probe.recording():
            answer = _diagnose_endpoint(probe, url, host)
            addresses = [*resource_addresses(url, answer), server_address(origin_of(url), "root")]
            # Whether the site uses OAuth: by its challenge, or by a metadata document.
            is_challenged = "resource_metadata" in (answer.challenge() or {})
            if answer.status == 200:
                pass  # no client has to sign in
            elif is_challenged or _first(probe, addresses) is not None:
                discovery = diagnose_discovery(probe, url, host, answer)
                client = diagnose_registration(probe, host, discovery.server, registration)
                if client is not None:
                    diagnose_sign_in(probe, host, client, discovery)
            elif host.sends_token:
                what = "the site has no sign-in: use a token, see manage.py mcp connect"
                probe.add_ok("token", what)
            else:
                what = f"{host.title} does not support tokens and has to sign in"
                if is_chosen:
                    probe.add_failure("sign-in", what, FIX_INSTALL_OAUTH)
                else:
                    what += f", which needs OAuth: {docs_url('howto/oauth')}"
                    probe.add_skipped("sign-in", what)
        yield probe


# Checks that apply to every host ------------------------------------------------------------------

FOREIGN_ORIGIN = "https://elsewhere.invalid"
# The origin of MCP Inspector, a client in a browser.
INSPECTOR_ORIGIN = "http://localhost:6274"


def _diagnose_all_hosts(probe: Probe, url: str) -> None:
    """Check what applies to all hosts: origins, trailing slashes, browsers and compression."""
    try:
        answer = _probe_endpoint(probe, url, LATEST.version)
    except NoResponse:
        return  # reported for each host
    if answer.status not in (*WELCOMES, 403):
        return  # likewise
    _check_origins(probe, url)
    _check_trailing_slash(probe, url)
    _check_compression(probe, url)
    _check_chunks(probe, url)
    _check_streams(probe, url)
    document = _first(probe, resource_addresses(url))
    if document is None:
        return
    _check_preflight(probe, resource_addresses(url)[0], "GET")
    issuers = (document.json() or {}).get("authorization_servers") or []
    if not issuers or origin_of(issuers[0]) != origin_of(url):
        return
    addresses = list(dict.fromkeys(server_address(issuers[0], form) for form in SDK_FORMS))
    silent = [address for address in addresses if _first(probe, [address]) is None]
    if not silent:
        probe.add_ok("well-known", "every well-known URL of the authorization server responds")
    elif len(silent) < len(addresses):  # else reported for each host
        problem = f"no metadata at {', '.join(silent)}"
        probe.add_warning("well-known", problem, "Have the proxy pass it to the site.")
    server = (_first(probe, addresses) or document).json() or {}
    for name in ("registration_endpoint", "token_endpoint"):
        if server.get(name):
            with probe.recording():
                _check_post_endpoint(probe, name, server[name])
            _check_preflight(probe, server[name], "POST")


def _check_origins(probe: Probe, url: str) -> None:
    answer = _probe_endpoint(probe, url, LATEST.version, Origin=FOREIGN_ORIGIN)
    if answer.status == 403:
        probe.add_ok("foreign origin", "403: pages of other sites cannot call it from a browser")
    elif "*" in get_settings().allowed_origins:
        probe.add_warning(
            "foreign origin", str(answer.status), "ALLOWED_ORIGINS allows every origin."
        )
    else:
        probe.add_failure(
            "foreign origin",
            f"{answer.status} instead of 403 for Origin {FOREIGN_ORIGIN}",
            "List origins in MCP_DJANGO['ALLOWED_ORIGINS'], and have proxies forward Origin.",
        )
    own = _probe_endpoint(probe, url, LATEST.version, Origin=origin_of(url))
    if own.status == 403:
        probe.add_failure(
            "own origin",
            f"403 for {origin_of(url)}",
            f"Add it to MCP_DJANGO['ALLOWED_ORIGINS'], or set BASE_URL = {origin_of(url)!r}.",
        )


def _check_trailing_slash(probe: Probe, url: str) -> None:
    if not urlsplit(url).path.strip("/"):
        return
    other = _toggle_trailing_slash(url)
    answer = _probe_endpoint(probe, other, LATEST.version)
    if answer.location or answer.status in (404, 405):
        probe.add_warning("spelling", f"{other}: {answer.status}", FIX_TRAILING_SLASH)
    else:
        probe.add_ok("spelling", f"{other} responds as well")


def _check_post_endpoint(probe: Probe, name: str, address: str) -> None:
    """Check that an empty POST is rejected with JSON with and without a trailing slash.

    An empty POST registers nothing.
    """
    for spelling in (address, _toggle_trailing_slash(address)):
        answer = probe.send(name, json_request(spelling, {}), FIX_TRAILING_SLASH)
        if answer.status == 429:
            probe.add_warning(name, "429: rate limited", "Wait, and try again.")
            return
        if answer.json() is None or not 400 <= answer.status < 500 or answer.status in (404, 405):
            problem = f"{spelling}: {answer.status} {answer.location or answer.content_type}"
            fix = FIX_CHECK_LOG if answer.status >= 500 else FIX_TRAILING_SLASH
            raise StepFailed(name, problem.rstrip(), fix)
    probe.add_ok(name, "responds with JSON, with and without a trailing slash")


def _check_compression(probe: Probe, url: str) -> None:
    answer = _probe_endpoint(probe, url, LATEST.version, Accept_Encoding="gzip")
    encoding = answer.headers.get("content-encoding", "")
    if encoding and answer.content_type == EVENT_STREAM:
        probe.add_failure(
            "compression",
            f"streams are compressed with {encoding}, and clients read only the beginning",
            "Disable compression of this URL in the proxy (nginx: gzip off).",
        )
    else:
        probe.add_ok("compression", "streams are not compressed")


def _check_chunks(probe: Probe, url: str) -> None:
    """Check that a body without Content-Length arrives, with a form that is rejected once read.

    A token in a form is rejected before the caller is authenticated, so no token is needed.
    """
    if isinstance(probe.transport, InProcessTransport):
        probe.add_skipped("chunked", "pass the URL of the running site to test its web server")
        return
    request = form_request(url, "access_token=mcp-doctor", Accept=ACCEPT)
    try:
        expected = probe.transport.send(request)
        answer = probe.transport.send(replace(request, is_chunked=True))
        errors = [(response.json() or {}).get("error") for response in (expected, answer)]
        is_read = answer.status == expected.status and errors[0] == errors[1]
        outcome = f"{answer.status} instead of {expected.status}"
    except NoResponse as exc:
        is_read, outcome = False, str(exc)
    if is_read:
        probe.add_ok("chunked", "bodies without Content-Length are read")
    else:
        probe.add_warning(
            "chunked",
            f"{outcome} for a body with Transfer-Encoding: chunked, as the C# SDK sends it",
            "Use a web server that decodes it, or a proxy that buffers requests: "
            f"{docs_url('howto/deploy#bodies-without-a-length')}",
        )


def _check_streams(probe: Probe, url: str) -> None:
    """Check that a server with sessions supports streams: it then allows GET besides DELETE."""
    if isinstance(probe.transport, InProcessTransport):
        probe.add_skipped("streams", "pass the URL of the running site to test whether it streams")
        return
    answer = probe.transport.send(ProbeRequest(method="OPTIONS", url=url))
    methods = {method.strip() for method in answer.headers.get("allow", "").split(",")}
    if "GET" in methods:
        probe.add_ok("streams", "progress and change notifications are streamed")
    elif "DELETE" in methods:
        probe.add_warning(
            "streams",
            "none: the site runs on WSGI, so progress, log messages and change notifications are "
            "lost",
            "Serve the site over ASGI.",
        )


def _check_preflight(probe: Probe, address: str, method: str) -> None:
    """Check the CORS preflight request that a browser sends (Fetch standard)."""
    headers = {
        "Origin": INSPECTOR_ORIGIN,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "content-type, mcp-protocol-version",
    }
    answer = probe.transport.send(ProbeRequest(method="OPTIONS", url=address, headers=headers))
    path = urlsplit(address).path
    if answer.status < 300 and answer.headers.get("access-control-allow-origin"):
        probe.add_ok("preflight", path)
    else:
        problem = f"{path}: {answer.status} without Access-Control-Allow-Origin"
        fix = "Clients in a browser need it; have OPTIONS reach the site."
        probe.add_warning("preflight", problem, fix)


def _first(probe: Probe, addresses: list[str]) -> ProbeResponse | None:
    """Return the first response with a JSON document; ``None`` if no address has one."""
    for address in addresses:
        with suppress(NoResponse):
            answer = probe.transport.send(get_request(address, Accept=JSON))
            if answer.status == 200 and answer.json() is not None:
                return answer
    return None


def _toggle_trailing_slash(address: str) -> str:
    return address.rstrip("/") if address.endswith("/") else f"{address}/"


# The first request, without a token ---------------------------------------------------------------

ENDPOINT = "endpoint"
CLIENT = {"name": "mcp doctor", "version": __version__}
WELCOMES = {200: "anonymous access is allowed", 401: "authentication is required"}


def _probe_endpoint(probe: Probe, url: str, revision: str, **headers: str) -> ProbeResponse:
    """Send the first message of a client of a revision, and return the endpoint's response.

    Raises:
        NoResponse: no response arrives.
    """
    method, routing = "initialize", {}
    params: dict[str, Any] = {
        "protocolVersion": revision,
        "capabilities": {},
        "clientInfo": CLIENT,
    }
    if REVISIONS[revision].stateless:
        method = "server/discover"
        routing = {names.MCP_PROTOCOL_VERSION: revision, names.MCP_METHOD: method}
        envelope = {PROTOCOL_VERSION: revision, CLIENT_INFO: CLIENT, CLIENT_CAPABILITIES: {}}
        params = {"_meta": envelope}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    request = json_request(url, message, Accept=ACCEPT, **routing, **headers)
    answer = probe.transport.send(request)
    if session := answer.headers.get(names.SESSION_ID.lower()):
        ending = ProbeRequest(method="DELETE", url=url, headers={names.SESSION_ID: session})
        probe.transport.send(ending)
    return answer


def _diagnose_endpoint(probe: Probe, url: str, host: HostProfile) -> ProbeResponse:
    """Return the response to the first request.

    Raises:
        StepFailed: the response stops the host, or no response arrives.
    """
    try:
        answer = _probe_endpoint(probe, url, host.revision)
    except NoResponse as exc:
        fix = "Start the site, or correct the URL."
        raise StepFailed(ENDPOINT, str(exc), fix) from None
    if answer.status not in WELCOMES:
        problem = f"{answer.status} instead of 401 or 200"
        if answer.location:
            problem = (
                f"{answer.status}: redirects to {answer.location}, which loses the body of a POST"
            )
        raise StepFailed(ENDPOINT, problem, _suggest_fix(answer, url))
    probe.add_ok(ENDPOINT, f"{answer.status}: {WELCOMES[answer.status]}")
    return answer


def _suggest_fix(answer: ProbeResponse, url: str) -> str:
    host, path = urlsplit(url).netloc, urlsplit(url).path
    if answer.location.startswith("https://") and url.startswith("http://"):
        return "Use the https:// address in hosts (SECURE_SSL_REDIRECT redirects to it)."
    if answer.location:
        return (
            f"Respond at {path} without a redirect: mount the server with server.urls, exempt it "
            "from LoginRequiredMiddleware and from redirects of the proxy, or use the target of "
            "the redirect as the URL in hosts."
        )
    # The default server of this project, on the host of the URL.
    paths = server_paths(find_server(None))
    endpoint = urljoin(url, paths[0] if paths else "/mcp")
    unreachable = "The proxy cannot reach the site: start the site, or check the proxy's log."
    return {
        400: f"Add {host.partition(':')[0]!r} to ALLOWED_HOSTS.",
        403: "Look for a firewall or middleware that rejects POST; the endpoint is CSRF exempt.",
        404: f"Pass the URL of the endpoint, such as {endpoint}, or mount a server "
        f"there: path({path.lstrip('/')!r}, mcp.urls).",
        405: "Have the proxy pass POST requests to this URL.",
        **dict.fromkeys((502, 503, 504), unreachable),
    }.get(answer.status, FIX_CHECK_LOG)
