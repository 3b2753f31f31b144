"""``mcp doctor``: why a host cannot connect, found by doing what the host does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from mcp_django.conf import get_settings
from mcp_django.management.addresses import check_url, paths
from mcp_django.management.doctor.chart import MARKS, Chart
from mcp_django.management.doctor.examination import examine
from mcp_django.management.doctor.hosts import HOSTS, Host
from mcp_django.management.doctor.in_process import ProcessDoor, own_origin, taken_back
from mcp_django.management.doctor.network import NetworkDoor
from mcp_django.management.doctor.registration import refused_lately
from mcp_django.management.lookups import find_server, nearest
from mcp_django.management.rendering import printable

TIMEOUT_SECONDS = 10.0
OAUTH_APP = "mcp_django.oauth"


def add_arguments(subcommands: Any) -> None:
    """Describe the subcommand."""
    parser = subcommands.add_parser("doctor", help="Find out why a host cannot connect.")
    parser.add_argument(
        "url", nargs="?", help="The endpoint, asked over HTTP; else a server in this process."
    )
    parser.add_argument("--server", metavar="NAME", help="The server; else the default one.")
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
