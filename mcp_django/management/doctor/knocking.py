"""The first request of a host, without a token: what the endpoint says to somebody unknown."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from mcp_django import __version__
from mcp_django.management.doctor.chart import Chart
from mcp_django.management.doctor.hosts import Host
from mcp_django.management.doctor.messages import Answer, Door, DoorError, Request, post_json
from mcp_django.protocol import headers as names
from mcp_django.protocol.envelope import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcp_django.protocol.revisions import REVISIONS

NAME = "endpoint"
CLIENT = {"name": "mcp doctor", "version": __version__}
ACCEPT = "application/json, text/event-stream"


def knock(door: Door, url: str, revision: str, **headers: str) -> Answer:
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


def examine(chart: Chart, door: Door, url: str, host: Host) -> Answer | None:
    """The answer to the first request, ``None`` if a host gets no further."""
    try:
        answer = knock(door, url, host.revision)
    except DoorError as exc:
        chart.failed(NAME, str(exc), "Start the site, or give its address: mcp doctor URL.")
        return None
    if answer.status == 200:
        chart.ok(NAME, "200: open to everybody")
        return answer
    if answer.status == 401:
        chart.ok(NAME, "401: asks who is calling")
        return answer
    chart.failed(NAME, _what(answer), _fix(answer, url))
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
    return "Look at the site's log; did you run manage.py migrate?"
