"""``mcp doctor``: find out why a host cannot connect.

It sends the requests that each host sends before its first call, until a step fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from mcp_django import __version__
from mcp_django.conf import get_settings
from mcp_django.management.doctor_hosts import HOSTS, SDK_FORMS, HostProfile
from mcp_django.management.doctor_oauth import (
    FIX_CHECK_LOG,
    OAuthClient,
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
    ProbeRequest,
    ProbeResponse,
    get_request,
    json_request,
    own_origin,
    roll_back_writes,
)
from mcp_django.management.lookups import (
    check_url,
    find_server,
    is_public,
    server_paths,
    suggest_similar,
)
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
    hosts = _hosts(options["hosts"])
    if options["timeout"] <= 0:
        raise CommandError(f"--timeout {options['timeout']:g} must be more than 0 seconds.")
    if options["url"]:
        url, charts = check_url(options["url"]), _diagnose_over_http(hosts, options)
    else:
        url = _default_url(options["server"])
        charts = _diagnose_in_process(url, hosts)
    found = _print_reports(command, url, charts, is_json=options["json"])
    failing = [chart.title for chart in found if not chart.is_ok]
    if failing:
        raise CommandError(f"These hosts cannot connect: {', '.join(failing)}.")


def _diagnose_over_http(
    hosts: Sequence[HostProfile], options: Mapping[str, Any]
) -> Iterator[HostReport]:
    if options["server"]:
        raise CommandError("--server selects a server of this process; omit it if you pass a URL.")
    transport = NetworkTransport(timeout=options["timeout"])
    return diagnose(
        transport, options["url"], hosts, may_register=options["register"], is_sure=True
    )


def _diagnose_in_process(url: str, hosts: Sequence[HostProfile]) -> Iterator[HostReport]:
    parts = urlsplit(url)
    transport = InProcessTransport(f"{parts.scheme}://{parts.netloc}")
    with roll_back_writes():
        yield from diagnose(
            transport,
            url,
            hosts,
            may_register=True,
            is_sure=bool(get_settings().base_url),
            document_problem=_document_problem if apps.is_installed(OAUTH_APP) else None,
        )
        lately = report_rejected_documents()
        if lately is not None:
            yield lately


def _document_problem(client_id: str) -> str:
    # Looked up at run time: mcp_django.oauth is optional, and a layer above this package.
    oauth: Any = apps.get_app_config("mcp_oauth")
    return str(oauth.document_problem(client_id))


def _default_url(name: str | None) -> str:
    server = find_server(name)
    mounted = server_paths(server)
    if not mounted:
        raise CommandError(
            f"The URLconf has no URL without arguments for server {server.name!r}; pass the URL of "
            "the running site: mcp doctor URL."
        )
    return urljoin(get_settings().base_url or own_origin(), mounted[0])


def _hosts(names: Sequence[str] | None) -> list[HostProfile]:
    for name in names or ():
        if name not in HOSTS:
            raise CommandError(
                f"No host named {name!r}.{suggest_similar(name, HOSTS)} The hosts are: "
                f"{', '.join(HOSTS)}."
            )
    return [HOSTS[name] for name in names] if names else [*HOSTS.values()]


def _print_reports(
    command: BaseCommand, url: str, charts: Iterator[HostReport], *, is_json: bool
) -> list[HostReport]:
    """Print and return the reports: each when it is complete, or all together as JSON."""
    if is_json:
        found = list(charts)
        described = [
            {
                "host": chart.slug,
                "ok": chart.is_ok,
                "steps": [step.as_dict() for step in chart.steps],
            }
            for chart in found
        ]
        command.stdout.write(json.dumps({"url": url, "hosts": described}, ensure_ascii=False))
        return found
    found = []
    command.stdout.write(url)
    for chart in charts:
        command.stdout.write(escape_control_characters(_report_text(chart)))
        found.append(chart)
    return found


def _report_text(chart: HostReport) -> str:
    lines = ["", chart.title]
    for step in chart.steps:
        lines.append(f"  {MARKS[step.verdict]} {step.name}: {step.found}")
        if step.fix:
            lines.append(f"    → {step.fix}")
    return "\n".join(lines)


# One host, step by step ---------------------------------------------------------------------------

FIX_INSTALL_OAUTH = (
    "Install the authorization server: 'oauth2_provider' and 'mcp_django.oauth' in "
    "INSTALLED_APPS, OAUTH2_PROVIDER = provider_settings(), include('mcp_django.oauth.urls')."
)


def diagnose(
    transport: HttpTransport,
    url: str,
    hosts: Iterable[HostProfile],
    *,
    may_register: bool,
    is_sure: bool,
    document_problem: Callable[[str], str] | None = None,
) -> Iterator[HostReport]:
    """Yield a report of what applies to every host, then one for each host.

    ``may_register`` allows clients to be registered. ``is_sure`` says that hosts use this URL, so
    that problems with the URL itself are failures. ``document_problem`` returns why the site cannot
    fetch a client's metadata document, if that can be tested.
    """
    chart = HostReport(slug="everybody", title="Every host")
    _diagnose_all_hosts(chart, transport, url)
    if chart.steps:
        yield chart
    for host in hosts:
        register = partial(
            diagnose_registration,
            may_register=may_register,
            document_problem=document_problem,
        )
        yield _diagnose_host(transport, url, host, register, is_sure=is_sure)


def _diagnose_host(
    transport: HttpTransport,
    url: str,
    host: HostProfile,
    register: Callable[..., OAuthClient | None],
    *,
    is_sure: bool,
) -> HostReport:
    chart = HostReport(slug=host.slug, title=host.title)
    if host.is_cloud and not is_public(url):
        what = f"{url} cannot be reached from the vendor's cloud"
        if is_sure:
            chart.add_failure("address", what, "Serve the site at a public https:// URL.")
        else:
            chart.add_skipped("address", f"{what}; set BASE_URL, or pass the public URL")
    answer = _diagnose_endpoint(chart, transport, url, host)
    if answer is None or answer.status == 200:
        return chart
    if not _has_oauth(transport, url, answer):
        _report_without_oauth(chart, host)
        return chart
    found = diagnose_discovery(chart, transport, url, host, answer)
    if found is None:
        return chart
    client = register(chart, transport, host, found.server)
    if client is not None:
        diagnose_sign_in(chart, transport, host, client, found)
    return chart


def _has_oauth(transport: HttpTransport, url: str, answer: ProbeResponse) -> bool:
    """Return whether a site uses OAuth, by its challenge or a metadata document."""
    if "resource_metadata" in (answer.challenge() or {}):
        return True
    root = server_address(origin_of(url), "root")
    addresses = [*resource_addresses(url, answer), root]
    return _first(transport, addresses) is not None


def _report_without_oauth(chart: HostReport, host: HostProfile) -> None:
    if host.sends_token:
        chart.add_ok("token", "the site has no sign-in: use a token, see manage.py mcp connect")
    else:
        chart.add_failure(
            "sign-in", f"{host.title} does not support tokens and has to sign in", FIX_INSTALL_OAUTH
        )


# Checks that apply to every host ------------------------------------------------------------------

FOREIGN_ORIGIN = "https://elsewhere.invalid"
# The origin of MCP Inspector, a client in a browser.
INSPECTOR_ORIGIN = "http://localhost:6274"
FIX_TRAILING_SLASH = "Respond at the URL with and without a trailing slash; do not redirect."


def _diagnose_all_hosts(chart: HostReport, transport: HttpTransport, url: str) -> None:
    """Check what applies to all hosts: origins, trailing slashes, browsers and compression."""
    try:
        _probe_endpoint(transport, url, LATEST.version)
    except NoResponse:
        return  # reported for each host
    _origin(chart, transport, url)
    _check_trailing_slash(chart, transport, url)
    _compression(chart, transport, url)
    _streams(chart, transport, url)
    document = _first(transport, resource_addresses(url))
    if document is None:
        return
    _preflight(chart, transport, resource_addresses(url)[0], "GET")
    issuers = (document.json() or {}).get("authorization_servers") or []
    if not issuers or origin_of(issuers[0]) != origin_of(url):
        return
    addresses = dict.fromkeys(server_address(issuers[0], form) for form in SDK_FORMS)
    _check_well_known_urls(chart, transport, list(addresses))
    server = (_first(transport, list(addresses)) or document).json() or {}
    for name in ("registration_endpoint", "token_endpoint"):
        if server.get(name):
            _check_post_endpoint(chart, transport, name, server[name])
            _preflight(chart, transport, server[name], "POST")


def _origin(chart: HostReport, transport: HttpTransport, url: str) -> None:
    answer = _probe_endpoint(transport, url, LATEST.version, Origin=FOREIGN_ORIGIN)
    if answer.status == 403:
        chart.add_ok("foreign origin", "403: pages of other sites cannot call it from a browser")
    elif "*" in get_settings().allowed_origins:
        chart.add_warning(
            "foreign origin", str(answer.status), "ALLOWED_ORIGINS allows every origin."
        )
    else:
        chart.add_failure(
            "foreign origin",
            f"{answer.status} instead of 403 for Origin {FOREIGN_ORIGIN}",
            "List origins in MCP_DJANGO['ALLOWED_ORIGINS'], and have proxies forward Origin.",
        )
    own = _probe_endpoint(transport, url, LATEST.version, Origin=origin_of(url))
    if own.status == 403:
        chart.add_failure(
            "own origin",
            f"403 for {origin_of(url)}",
            f"Add it to MCP_DJANGO['ALLOWED_ORIGINS'], or set BASE_URL = {origin_of(url)!r}.",
        )


def _check_trailing_slash(chart: HostReport, transport: HttpTransport, url: str) -> None:
    if not urlsplit(url).path.strip("/"):
        return
    other = _toggle_trailing_slash(url)
    answer = _probe_endpoint(transport, other, LATEST.version)
    if answer.location or answer.status in (404, 405):
        chart.add_warning("spelling", f"{other}: {answer.status}", FIX_TRAILING_SLASH)
    else:
        chart.add_ok("spelling", f"{other} responds as well")


def _check_post_endpoint(
    chart: HostReport, transport: HttpTransport, name: str, address: str
) -> None:
    """Check that an empty POST is rejected with JSON with and without a trailing slash.

    An empty POST registers nothing.
    """
    for spelling in (address, _toggle_trailing_slash(address)):
        try:
            answer = transport.send(json_request(spelling, {}))
        except NoResponse as exc:
            chart.add_failure(name, str(exc), FIX_TRAILING_SLASH)
            return
        if answer.status == 429:
            chart.add_warning(name, "429: rate limited", "Wait, and try again.")
            return
        if answer.json() is None or not 400 <= answer.status < 500 or answer.status in (404, 405):
            found = f"{spelling}: {answer.status} {answer.location or answer.content_type}"
            fix = FIX_CHECK_LOG if answer.status >= 500 else FIX_TRAILING_SLASH
            chart.add_failure(name, found.rstrip(), fix)
            return
    chart.add_ok(name, "responds with JSON, with and without a trailing slash")


def _compression(chart: HostReport, transport: HttpTransport, url: str) -> None:
    answer = _probe_endpoint(transport, url, LATEST.version, Accept_Encoding="gzip")
    encoding = answer.headers.get("content-encoding", "")
    if encoding and answer.content_type == EVENT_STREAM:
        chart.add_failure(
            "compression",
            f"streams are compressed with {encoding}, and clients read only the beginning",
            "Disable compression of this URL in the proxy (nginx: gzip off).",
        )
    else:
        chart.add_ok("compression", "streams are not compressed")


def _streams(chart: HostReport, transport: HttpTransport, url: str) -> None:
    """Check that a server with sessions supports streams: it then allows GET besides DELETE."""
    if isinstance(transport, InProcessTransport):
        chart.add_skipped("streams", "pass the URL of the running site to test whether it streams")
        return
    allowed = transport.send(ProbeRequest(method="OPTIONS", url=url)).headers.get("allow", "")
    methods = {one.strip() for one in allowed.split(",")}
    if "GET" in methods:
        chart.add_ok("streams", "progress and change notifications are streamed")
    elif "DELETE" in methods:
        chart.add_warning(
            "streams",
            "none: the site runs on WSGI, so progress, log messages and change notifications are "
            "lost",
            "Serve the site over ASGI.",
        )


def _preflight(chart: HostReport, transport: HttpTransport, address: str, method: str) -> None:
    """Check the CORS preflight request that a browser sends (Fetch standard)."""
    headers = {
        "Origin": INSPECTOR_ORIGIN,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "content-type, mcp-protocol-version",
    }
    answer = transport.send(ProbeRequest(method="OPTIONS", url=address, headers=headers))
    path = urlsplit(address).path
    if answer.status < 300 and answer.headers.get("access-control-allow-origin"):
        chart.add_ok("preflight", path)
        return
    found = f"{path}: {answer.status} without Access-Control-Allow-Origin"
    chart.add_warning(
        "preflight", found, "Clients in a browser need it; have OPTIONS reach the site."
    )


def _check_well_known_urls(
    chart: HostReport, transport: HttpTransport, addresses: list[str]
) -> None:
    silent = [address for address in addresses if _first(transport, [address]) is None]
    if len(silent) == len(addresses):
        return  # reported for each host
    if silent:
        paths = ", ".join(silent)
        chart.add_warning(
            "well-known", f"no metadata at {paths}", "Have the proxy pass it to the site."
        )
    else:
        chart.add_ok("well-known", "every well-known URL of the authorization server responds")


def _first(transport: HttpTransport, addresses: list[str]) -> ProbeResponse | None:
    """Return the first response with a JSON document; ``None`` if no address has one."""
    for address in addresses:
        try:
            answer = transport.send(get_request(address, Accept=JSON))
        except NoResponse:
            continue
        if answer.status == 200 and answer.json() is not None:
            return answer
    return None


def _toggle_trailing_slash(address: str) -> str:
    return address.rstrip("/") if address.endswith("/") else f"{address}/"


# The first request, without a token ---------------------------------------------------------------

ENDPOINT = "endpoint"
CLIENT = {"name": "mcp doctor", "version": __version__}


def _probe_endpoint(
    transport: HttpTransport, url: str, revision: str, **headers: str
) -> ProbeResponse:
    """Send the first message of a client of a revision, and return the endpoint's response.

    Raises:
        NoResponse: no response arrives.
    """
    if REVISIONS[revision].stateless:
        envelope: dict[str, Any] = {
            PROTOCOL_VERSION: revision,
            CLIENT_INFO: CLIENT,
            CLIENT_CAPABILITIES: {},
        }
        message = _message("server/discover", {"_meta": envelope})
        routing = {names.MCP_PROTOCOL_VERSION: revision, names.MCP_METHOD: "server/discover"}
    else:
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT}
        message, routing = _message("initialize", params), {}
    answer = transport.send(json_request(url, message, Accept=ACCEPT, **routing, **headers))
    session = answer.headers.get(names.SESSION_ID.lower())
    if session:
        transport.send(ProbeRequest(method="DELETE", url=url, headers={names.SESSION_ID: session}))
    return answer


def _diagnose_endpoint(
    chart: HostReport, transport: HttpTransport, url: str, host: HostProfile
) -> ProbeResponse | None:
    """Return the response to the first request, or ``None`` if the host is stopped there."""
    try:
        answer = _probe_endpoint(transport, url, host.revision)
    except NoResponse as exc:
        chart.add_failure(ENDPOINT, str(exc), "Start the site, or pass its URL: mcp doctor URL.")
        return None
    if answer.status == 200:
        chart.add_ok(ENDPOINT, "200: anonymous access is allowed")
        return answer
    if answer.status == 401:
        chart.add_ok(ENDPOINT, "401: authentication is required")
        return answer
    chart.add_failure(ENDPOINT, _what(answer), _suggest_fix(answer, url))
    return None


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _what(answer: ProbeResponse) -> str:
    if answer.location:
        return f"{answer.status}: redirects to {answer.location}, which loses the body of a POST"
    return f"{answer.status} instead of 401 or 200"


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
    if answer.status == 400:
        return f"Add {host.partition(':')[0]!r} to ALLOWED_HOSTS."
    if answer.status == 403:
        return "Look for a firewall or middleware that rejects POST; the endpoint is CSRF exempt."
    if answer.status == 404:
        return f"Mount a server there: path({path.lstrip('/')!r}, mcp.urls)."
    if answer.status == 405:
        return "Have the proxy pass POST requests to this URL."
    if answer.status in (502, 503, 504):
        return "The proxy cannot reach the site: start the site, or check the proxy's log."
    return FIX_CHECK_LOG
