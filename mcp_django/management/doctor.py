"""``mcp doctor``: why a host cannot connect, found by doing what the host does.

It replays what each host does before its first call, until a step fails.
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
from mcp_django.management.doctor_hosts import HOSTS, SDK_FORMS, Host
from mcp_django.management.doctor_oauth import (
    LOG,
    Client,
    examine_discovery,
    examine_registration,
    examine_sign_in,
    origin_of,
    refused_lately,
    resource_addresses,
    server_address,
)
from mcp_django.management.doctor_transport import (
    MARKS,
    Answer,
    Chart,
    Door,
    DoorError,
    NetworkDoor,
    ProcessDoor,
    Request,
    get,
    own_origin,
    post_json,
    taken_back,
)
from mcp_django.management.lookups import check_url, find_server, is_public, nearest, paths
from mcp_django.management.text_output import printable
from mcp_django.protocol import headers as names
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.revisions import LATEST, REVISIONS

TIMEOUT_SECONDS = 10.0
OAUTH_APP = "mcp_django.oauth"


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser("doctor", help="Find out why a host cannot connect.")
    parser.add_argument(
        "url", nargs="?", help="The endpoint, asked over HTTP; else a server in this process."
    )
    parser.add_argument("--server", metavar="ENDPOINT", help="The server; else the default one.")
    parser.add_argument(
        "--host",
        action="append",
        dest="hosts",
        metavar="ENDPOINT",
        help=f"Only this host; repeatable. One of: {', '.join(HOSTS)}.",
    )
    parser.add_argument(
        "--register",
        action="store_true",
        help="Over HTTP, register each host as a client too; it stays on the site.",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="How long one request over HTTP may take.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.set_defaults(run=run, skip_checks=True)


def run(command: BaseCommand, options: Mapping[str, Any]) -> None:
    """Print the chart of each host.

    Raises:
        CommandError: a host does not get to its end, or the command line is wrong.
    """
    hosts = _hosts(options["hosts"])
    if options["timeout"] <= 0:
        raise CommandError(f"--timeout {options['timeout']:g} has to be more than 0 seconds.")
    if options["url"]:
        url, charts = check_url(options["url"]), _over_http(hosts, options)
    else:
        url = _own_url(options["server"])
        charts = _in_process(url, hosts)
    found = _printed(command, url, charts, is_json=options["json"])
    failing = [chart.title for chart in found if not chart.is_well]
    if failing:
        raise CommandError(f"Something is in the way of: {', '.join(failing)}.")


def _over_http(hosts: Sequence[Host], options: Mapping[str, Any]) -> Iterator[Chart]:
    if options["server"]:
        raise CommandError("--server names a server of this process; a URL says which one itself.")
    door = NetworkDoor(timeout=options["timeout"])
    return examine(door, options["url"], hosts, may_register=options["register"], is_sure=True)


def _in_process(url: str, hosts: Sequence[Host]) -> Iterator[Chart]:
    parts = urlsplit(url)
    door = ProcessDoor(f"{parts.scheme}://{parts.netloc}")
    with taken_back():
        yield from examine(
            door,
            url,
            hosts,
            may_register=True,
            is_sure=bool(get_settings().base_url),
            document_problem=_document_problem if apps.is_installed(OAUTH_APP) else None,
        )
        lately = refused_lately()
        if lately is not None:
            yield lately


def _document_problem(client_id: str) -> str:
    # An app beside this one, not below it.
    oauth: Any = apps.get_app_config("mcp_oauth")
    return str(oauth.document_problem(client_id))


def _own_url(name: str | None) -> str:
    server = find_server(name)
    mounted = paths(server)
    if not mounted:
        raise CommandError(
            f"The URLconf has no fixed address for server {server.name!r}; give the address of the "
            "running site: mcp doctor URL."
        )
    return urljoin(get_settings().base_url or own_origin(), mounted[0])


def _hosts(names: Sequence[str] | None) -> list[Host]:
    for name in names or ():
        if name not in HOSTS:
            raise CommandError(
                f"There is no host {name!r} here.{nearest(name, HOSTS)} "
                f"The hosts are: {', '.join(HOSTS)}."
            )
    return [HOSTS[name] for name in names] if names else [*HOSTS.values()]


def _printed(
    command: BaseCommand, url: str, charts: Iterator[Chart], *, is_json: bool
) -> list[Chart]:
    """The charts, printed as they come; as JSON all at once."""
    if is_json:
        found = list(charts)
        described = [
            {
                "host": chart.slug,
                "ok": chart.is_well,
                "steps": [step.as_dict() for step in chart.steps],
            }
            for chart in found
        ]
        command.stdout.write(json.dumps({"url": url, "hosts": described}, ensure_ascii=False))
        return found
    found = []
    command.stdout.write(url)
    for chart in charts:
        command.stdout.write(printable(_text(chart)))
        found.append(chart)
    return found


def _text(chart: Chart) -> str:
    lines = ["", chart.title]
    for step in chart.steps:
        lines.append(f"  {MARKS[step.verdict]} {step.name}: {step.found}")
        if step.fix:
            lines.append(f"    → {step.fix}")
    return "\n".join(lines)


# One host, step by step ---------------------------------------------------------------------------

INSTALL = (
    "Install the authorization server: 'oauth2_provider' and 'mcp_django.oauth' in "
    "INSTALLED_APPS, OAUTH2_PROVIDER = provider_settings(), include('mcp_django.oauth.urls')."
)


def examine(
    door: Door,
    url: str,
    hosts: Iterable[Host],
    *,
    may_register: bool,
    is_sure: bool,
    document_problem: Callable[[str], str] | None = None,
) -> Iterator[Chart]:
    """The chart of what concerns everybody, then one for each host.

    ``may_register`` lets clients be registered; ``is_sure`` says that hosts know the site by this
    address, so that what is wrong with it is wrong; ``document_problem`` says what keeps the site
    from a client's document, where that can be known.
    """
    chart = Chart(slug="everybody", title="Every host")
    _examine_everybody(chart, door, url)
    if chart.steps:
        yield chart
    for host in hosts:
        register = partial(
            examine_registration,
            may_register=may_register,
            document_problem=document_problem,
        )
        yield _host(door, url, host, register, is_sure=is_sure)


def _host(
    door: Door, url: str, host: Host, register: Callable[..., Client | None], *, is_sure: bool
) -> Chart:
    chart = Chart(slug=host.slug, title=host.title)
    if host.is_cloud and not is_public(url):
        what = f"{url} cannot be called from the vendor's cloud"
        if is_sure:
            chart.failed("address", what, "Serve the site at a public https:// address.")
        else:
            chart.skipped("address", f"{what}; set BASE_URL, or give the public address")
    answer = _examine_endpoint(chart, door, url, host)
    if answer is None or answer.status == 200:
        return chart
    if not _has_oauth(door, url, answer):
        _without_oauth(chart, host)
        return chart
    found = examine_discovery(chart, door, url, host, answer)
    if found is None:
        return chart
    client = register(chart, door, host, found.server)
    if client is not None:
        examine_sign_in(chart, door, host, client, found)
    return chart


def _has_oauth(door: Door, url: str, answer: Answer) -> bool:
    """Whether a site has anything to do with OAuth: a challenge or a document that says so."""
    if "resource_metadata" in (answer.challenge() or {}):
        return True
    root = server_address(origin_of(url), "root")
    addresses = [*resource_addresses(url, answer), root]
    return _first(door, addresses) is not None


def _without_oauth(chart: Chart, host: Host) -> None:
    if host.sends_token:
        chart.ok("token", "no sign-in here: give it a token, see manage.py mcp connect")
    else:
        chart.failed(
            "sign-in", f"{host.title} cannot be given a token, and has to sign in", INSTALL
        )


# What concerns every host -------------------------------------------------------------------------

STRANGER = "https://elsewhere.invalid"
# Where the Inspector runs, a client in a browser.
INSPECTOR = "http://localhost:6274"
SPELLINGS = "Answer both spellings, with and without the slash at the end; redirect neither."


def _examine_everybody(chart: Chart, door: Door, url: str) -> None:
    """Note what all hosts meet: origins, spellings of addresses, browsers and compression."""
    try:
        _knock(door, url, LATEST.version)
    except DoorError:
        return  # told at each host
    _origin(chart, door, url)
    _both_spellings(chart, door, url)
    _compression(chart, door, url)
    _streams(chart, door, url)
    document = _first(door, resource_addresses(url))
    if document is None:
        return
    _preflight(chart, door, resource_addresses(url)[0], "GET")
    issuers = (document.json() or {}).get("authorization_servers") or []
    if not issuers or origin_of(issuers[0]) != origin_of(url):
        return
    addresses = dict.fromkeys(server_address(issuers[0], form) for form in SDK_FORMS)
    _forms(chart, door, list(addresses))
    server = (_first(door, list(addresses)) or document).json() or {}
    for name in ("registration_endpoint", "token_endpoint"):
        if server.get(name):
            _spellings_of(chart, door, name, server[name])
            _preflight(chart, door, server[name], "POST")


def _origin(chart: Chart, door: Door, url: str) -> None:
    answer = _knock(door, url, LATEST.version, Origin=STRANGER)
    if answer.status == 403:
        chart.ok("foreign origin", "403: a page elsewhere cannot use a visitor's browser")
    elif "*" in get_settings().allowed_origins:
        chart.warned("foreign origin", str(answer.status), "ALLOWED_ORIGINS is open to all.")
    else:
        chart.failed(
            "foreign origin",
            f"{answer.status} instead of 403 for Origin {STRANGER}",
            "Name origins in MCP_DJANGO['ALLOWED_ORIGINS'], and let proxies pass Origin on.",
        )
    own = _knock(door, url, LATEST.version, Origin=origin_of(url))
    if own.status == 403:
        chart.failed(
            "own origin",
            f"403 for {origin_of(url)}",
            f"Add it to MCP_DJANGO['ALLOWED_ORIGINS'], or set BASE_URL = {origin_of(url)!r}.",
        )


def _both_spellings(chart: Chart, door: Door, url: str) -> None:
    if not urlsplit(url).path.strip("/"):
        return
    other = _other(url)
    answer = _knock(door, other, LATEST.version)
    if answer.location or answer.status in (404, 405):
        chart.warned("spelling", f"{other}: {answer.status}", SPELLINGS)
    else:
        chart.ok("spelling", f"{other} answers too")


def _spellings_of(chart: Chart, door: Door, name: str, address: str) -> None:
    """A POST of nothing has to be refused as JSON at both addresses; nothing is registered."""
    for spelling in (address, _other(address)):
        try:
            answer = door.send(post_json(spelling, {}))
        except DoorError as exc:
            chart.failed(name, str(exc), SPELLINGS)
            return
        if answer.status == 429:
            chart.warned(name, "429: requests are limited", "Wait, and try again.")
            return
        if answer.json() is None or not 400 <= answer.status < 500 or answer.status in (404, 405):
            found = f"{spelling}: {answer.status} {answer.location or answer.content_type}"
            fix = LOG if answer.status >= 500 else SPELLINGS
            chart.failed(name, found.rstrip(), fix)
            return
    chart.ok(name, "answers both spellings with JSON")


def _compression(chart: Chart, door: Door, url: str) -> None:
    answer = _knock(door, url, LATEST.version, Accept_Encoding="gzip")
    encoding = answer.headers.get("content-encoding", "")
    if encoding and answer.content_type == "text/event-stream":
        chart.failed(
            "compression",
            f"streams come as {encoding}, of which clients read the beginning alone",
            "Keep compression off this address in the proxy (nginx: gzip off).",
        )
    else:
        chart.ok("compression", "streams stay as they are")


def _streams(chart: Chart, door: Door, url: str) -> None:
    """Where there are sessions, a server that streams allows GET beside DELETE."""
    if isinstance(door, ProcessDoor):
        chart.skipped("streams", "give the address of the running site to learn whether it streams")
        return
    allowed = door.send(Request(method="OPTIONS", url=url)).headers.get("allow", "")
    methods = {one.strip() for one in allowed.split(",")}
    if "GET" in methods:
        chart.ok("streams", "progress and changes are sent as they come")
    elif "DELETE" in methods:
        chart.warned(
            "streams",
            "none: the site is served over WSGI, so progress, log messages and changes are lost",
            "Serve the site over ASGI.",
        )


def _preflight(chart: Chart, door: Door, address: str, method: str) -> None:
    """What a browser asks before a page may read the answer (Fetch, CORS)."""
    headers = {
        "Origin": INSPECTOR,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "content-type, mcp-protocol-version",
    }
    answer = door.send(Request(method="OPTIONS", url=address, headers=headers))
    path = urlsplit(address).path
    if answer.status < 300 and answer.headers.get("access-control-allow-origin"):
        chart.ok("preflight", path)
        return
    found = f"{path}: {answer.status} without Access-Control-Allow-Origin"
    chart.warned(
        "preflight", found, "Clients in a browser need it; let OPTIONS through to the site."
    )


def _forms(chart: Chart, door: Door, addresses: list[str]) -> None:
    silent = [address for address in addresses if _first(door, [address]) is None]
    if len(silent) == len(addresses):
        return  # told at each host
    if silent:
        paths = ", ".join(silent)
        chart.warned("well-known", f"no answer at {paths}", "Have the proxy pass it to the site.")
    else:
        chart.ok("well-known", "every form of the authorization server's metadata answers")


def _first(door: Door, addresses: list[str]) -> Answer | None:
    """The first JSON document that is public at one of these addresses."""
    for address in addresses:
        try:
            answer = door.send(get(address, Accept="application/json"))
        except DoorError:
            continue
        if answer.status == 200 and answer.json() is not None:
            return answer
    return None


def _other(address: str) -> str:
    return address.rstrip("/") if address.endswith("/") else f"{address}/"


# The first request, without a token ---------------------------------------------------------------

ENDPOINT = "endpoint"
CLIENT = {"name": "mcp doctor", "version": __version__}
ACCEPT = "application/json, text/event-stream"


def _knock(door: Door, url: str, revision: str, **headers: str) -> Answer:
    """What the endpoint answers to the first message of a client of a revision.

    Raises:
        DoorError: nothing answers.
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
    answer = door.send(post_json(url, message, Accept=ACCEPT, **routing, **headers))
    session = answer.headers.get(names.SESSION_ID.lower())
    if session:
        door.send(Request(method="DELETE", url=url, headers={names.SESSION_ID: session}))
    return answer


def _examine_endpoint(chart: Chart, door: Door, url: str, host: Host) -> Answer | None:
    """The answer to the first request, ``None`` if a host gets no further."""
    try:
        answer = _knock(door, url, host.revision)
    except DoorError as exc:
        chart.failed(ENDPOINT, str(exc), "Start the site, or give its address: mcp doctor URL.")
        return None
    if answer.status == 200:
        chart.ok(ENDPOINT, "200: open to everybody")
        return answer
    if answer.status == 401:
        chart.ok(ENDPOINT, "401: asks who is calling")
        return answer
    chart.failed(ENDPOINT, _what(answer), _fix(answer, url))
    return None


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _what(answer: Answer) -> str:
    if answer.location:
        return f"{answer.status}: redirects to {answer.location}, and a POST is lost on the way"
    return f"{answer.status} instead of 401 or 200"


def _fix(answer: Answer, url: str) -> str:
    host, path = urlsplit(url).netloc, urlsplit(url).path
    if answer.location.startswith("https://") and url.startswith("http://"):
        return "Give hosts the https:// address (SECURE_SSL_REDIRECT sends them there)."
    if answer.location:
        return (
            f"Answer at {path} itself: mount the server with server.urls, exempt it from "
            "LoginRequiredMiddleware and from redirects of the proxy, or give hosts the address "
            "that is redirected to."
        )
    if answer.status == 400:
        return f"Add {host.partition(':')[0]!r} to ALLOWED_HOSTS."
    if answer.status == 403:
        return "Look for a firewall or middleware that refuses POST; the endpoint needs no CSRF."
    if answer.status == 404:
        return f"Mount a server there: path({path.lstrip('/')!r}, mcp.urls)."
    if answer.status == 405:
        return "Let the proxy pass POST to this address."
    if answer.status in (502, 503, 504):
        return "The proxy reaches no site: start it, or look at the proxy's log."
    return LOG
