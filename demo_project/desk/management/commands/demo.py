"""`manage.py demo`: set up and run the demo site from a fresh clone, in one command."""

from __future__ import annotations

import ipaddress
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from demo_project.desk.accounts import DESK, GUEST, create_accounts, issue_token
from demo_project.desk.first_calls import make_first_calls
from demo_project.desk.welcome import welcome_text


class Command(BaseCommand):
    help = (
        "Prepares the database, loads the airports, creates the demo's users and serves the site. "
        "Later starts keep all data and take a moment."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="0 picks a free port.")
        parser.add_argument("--host", default="127.0.0.1")

    def handle(self, *, host: str, port: int, **options: Any) -> None:
        self._refuse_outside_of_debug()
        if not _is_loopback(host):
            self.stderr.write(
                f"Other machines may be able to reach {host}, and the demo's passwords are public."
            )
        where = f"on http://{_in_url(host)}:{port}/" if port else "on a free port"
        self.stdout.write(f"Preparing the demo, which will be served {where}.")
        # Log messages go to stderr, and would come first if both are redirected to a file.
        self.stdout.flush()
        call_command("migrate", interactive=False, verbosity=0)
        call_command("load_airports", stdout=self.stdout)
        create_accounts()
        make_first_calls(self.stdout)
        self._serve(host, port)

    def _refuse_outside_of_debug(self) -> None:
        if not settings.DEBUG:
            raise CommandError(
                "The demo creates users whose passwords are public, so it needs DEBUG. "
                "Without it, use migrate, load_airports, createsuperuser and an ASGI server."
            )

    def _serve(self, host: str, port: int) -> None:
        if find_spec("daphne") is None:
            raise CommandError("The demo needs Daphne, which is not installed: pip install daphne")
        from demo_project.asgi import application
        from demo_project.desk import serving

        guest, desk = issue_token(GUEST), issue_token(DESK)

        def greet(port: int) -> None:
            base_url = f"http://{_in_url(host)}:{port}"
            self.stdout.write(welcome_text(base_url, guest=guest, desk=desk))
            self.stdout.write(f"\nServing on {base_url}/ (Ctrl-C stops it)")
            # A process that reads the output through a pipe waits for this line.
            self.stdout.flush()

        try:
            serving.run_daphne(
                ASGIStaticFilesHandler(application), host=host, port=port, when_listening=greet
            )
        except serving.CannotListenError as exc:
            raise CommandError(f"{exc} Choose another port with --port.") from exc


def _is_loopback(host: str) -> bool:
    address = _ip_address(host)
    return address.is_loopback if address else host == "localhost"


def _in_url(host: str) -> str:
    """Return the host as clients on this machine write it in a URL."""
    address = _ip_address(host)
    if address and address.is_unspecified:
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
