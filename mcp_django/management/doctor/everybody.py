"""What concerns every host: origins, spellings, browsers and compression."""

from __future__ import annotations

from urllib.parse import urlsplit

from mcp_django.conf import get_settings
from mcp_django.management.doctor.chart import Chart
from mcp_django.management.doctor.discovery import origin_of, resource_addresses, server_address
from mcp_django.management.doctor.hosts import SDK_FORMS
from mcp_django.management.doctor.in_process import ProcessDoor
from mcp_django.management.doctor.knocking import knock
from mcp_django.management.doctor.messages import Answer, Door, DoorError, Request, get, post_json
from mcp_django.protocol.revisions import LATEST

STRANGER = "https://elsewhere.invalid"
# Where the Inspector runs, a client in a browser.
INSPECTOR = "http://localhost:6274"
LOG = "Look at the site's log; did you run manage.py migrate?"
SPELLINGS = "Answer both spellings, with and without the slash at the end; redirect neither."


def examine(chart: Chart, door: Door, url: str) -> None:
    """Note what all hosts meet."""
    try:
        knock(door, url, LATEST.version)
    except DoorError:
        return  # told at each host
    _origin(chart, door, url)
    _both_spellings(chart, door, url)
    _compression(chart, door, url)
    _streams(chart, door, url)
    document = first(door, resource_addresses(url))
    if document is None:
        return
    _preflight(chart, door, resource_addresses(url)[0], "GET")
    issuers = (document.json() or {}).get("authorization_servers") or []
    if not issuers or origin_of(issuers[0]) != origin_of(url):
        return
    addresses = dict.fromkeys(server_address(issuers[0], form) for form in SDK_FORMS)
    _forms(chart, door, list(addresses))
    server = (first(door, list(addresses)) or document).json() or {}
    for name in ("registration_endpoint", "token_endpoint"):
        if server.get(name):
            _spellings_of(chart, door, name, server[name])
            _preflight(chart, door, server[name], "POST")


def _origin(chart: Chart, door: Door, url: str) -> None:
    answer = knock(door, url, LATEST.version, Origin=STRANGER)
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
    own = knock(door, url, LATEST.version, Origin=origin_of(url))
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
    answer = knock(door, other, LATEST.version)
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
    answer = knock(door, url, LATEST.version, Accept_Encoding="gzip")
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
    silent = [address for address in addresses if first(door, [address]) is None]
    if len(silent) == len(addresses):
        return  # told at each host
    if silent:
        paths = ", ".join(silent)
        chart.warned("well-known", f"no answer at {paths}", "Have the proxy pass it to the site.")
    else:
        chart.ok("well-known", "every form of the authorization server's metadata answers")


def first(door: Door, addresses: list[str]) -> Answer | None:
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
