"""One host from its first request to its token request, as far as it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from urllib.parse import urlsplit

from mcp_django.management.doctor import discovery, everybody, knocking, registration, signing_in
from mcp_django.management.doctor.chart import Chart
from mcp_django.management.doctor.hosts import Host
from mcp_django.management.doctor.messages import Answer, Door
from mcp_django.management.doctor.network import LOOPBACK
from mcp_django.management.doctor.registration import Client

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
    everybody.examine(chart, door, url)
    if chart.steps:
        yield chart
    for host in hosts:
        register = partial(
            registration.examine, may_register=may_register, document_problem=document_problem
        )
        yield _host(door, url, host, register, is_sure=is_sure)


def is_public(url: str) -> bool:
    """Whether a vendor's cloud can call an address."""
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname not in LOOPBACK


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
    answer = knocking.examine(chart, door, url, host)
    if answer is None or answer.status == 200:
        return chart
    if not has_oauth(door, url, answer):
        _without_oauth(chart, host)
        return chart
    found = discovery.examine(chart, door, url, host, answer)
    if found is None:
        return chart
    client = register(chart, door, host, found.server)
    if client is not None:
        signing_in.examine(chart, door, host, client, found)
    return chart


def has_oauth(door: Door, url: str, answer: Answer) -> bool:
    """Whether a site has anything to do with OAuth: a challenge or a document that says so."""
    if "resource_metadata" in (answer.challenge() or {}):
        return True
    root = discovery.server_address(discovery.origin_of(url), "root")
    addresses = [*discovery.resource_addresses(url, answer), root]
    return everybody.first(door, addresses) is not None


def _without_oauth(chart: Chart, host: Host) -> None:
    if host.sends_token:
        chart.ok("token", "no sign-in here: give it a token, see manage.py mcp connect")
    else:
        chart.failed(
            "sign-in", f"{host.title} cannot be given a token, and has to sign in", INSTALL
        )
