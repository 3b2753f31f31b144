"""Servers with the same components: one for each handshake revision, and one for each mount."""

from __future__ import annotations

from mcp_django import Context, Image, MCPServer
from mcp_django.auth.permissions import AllowAny
from tests.interop.session_site import HANDSHAKES
from tests.interop.session_site.components import declare


class Dated(MCPServer):
    """A server that speaks one revision, as on a site that sets `PROTOCOL_VERSIONS`."""

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The revision in its name."""
        return (self.name,)


dated = {version: Dated(version, permission=AllowAny) for version in HANDSHAKES}
# Each of these has one mount, so that a change at one mount is notified only there.
raw, view, old = (MCPServer(name, permission=AllowAny) for name in ("raw", "view", "old"))
pictures = MCPServer("pictures", permission=AllowAny)
for server in (*dated.values(), raw, view, old):
    declare(server)


@pictures.tool
def picture(ctx: Context, announced: bool = False) -> Image:
    """A picture of 1.5 MB, announced by progress if that is wanted."""
    if announced:
        ctx.report_progress(1)
    return Image(b"\x89PNG" + b"x" * 1_500_000)
