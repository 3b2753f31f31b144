"""Run an ASGI application with Daphne in this process, and report when it is listening."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

# Twisted selects its event loop when it is first imported, so this module is imported late.
from daphne.access import AccessLogGenerator
from daphne.endpoints import build_endpoint_description_strings
from daphne.server import Server


class CannotListenError(Exception):
    """The address is in use, or is not an address of this machine."""


def run_daphne(
    application: Any, *, host: str, port: int, when_listening: Callable[[int], None]
) -> None:
    """Serve until interrupted; `when_listening` is called with the port, even if `port` is 0.

    Raises:
        CannotListenError: the server cannot listen on the address.
    """

    def announce() -> None:
        when_listening(server.listening_addresses[0][1])

    server = Server(
        application,
        endpoints=build_endpoint_description_strings(host=host, port=port),
        action_logger=AccessLogGenerator(sys.stderr),
        ready_callable=announce,
    )
    server.run()
    if not server.listening_addresses:
        raise CannotListenError(f"Cannot listen on {host}, port {port}.")
