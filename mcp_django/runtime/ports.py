"""What the runtime asks of a server; ``mcp_django.server.MCPServer`` is one."""

from __future__ import annotations

from typing import Any, Protocol

from mcp_django.offered import Offered
from mcp_django.rates import Rate


class Server(Protocol):
    """The components of a server and what it says of itself."""

    name: str
    permission: Any
    scopes: tuple[str, ...]
    """What an OAuth token needs for whatever it does here."""
    resource_url: str
    """The URL that tokens are issued for; empty where the URLconf has it."""
    upstream: str
    """The provider that a token for it stands on; empty for none."""

    @property
    def namespace(self) -> str:
        """The namespace of its URLs."""

    @property
    def itself(self) -> Server:
        """The server as its code knows it, where something else stands before it."""

    @property
    def rates(self) -> tuple[Rate, ...]:
        """How often anything of it may be used."""

    @property
    def log_arguments(self) -> bool:
        """Whether the call log gets the values of arguments."""

    @property
    def offered(self) -> Offered:
        """What it offers: what code declares, as its owner narrowed it."""

    def refresh(self, *, is_list: bool = False) -> None:
        """See that ``offered`` is not older than a second, or of this moment for a list."""

    @property
    def auth(self) -> tuple[str, ...]:
        """The authentication backends in use."""

    @property
    def instructions(self) -> str:
        """What a model should know of the server."""

    @property
    def protocol_versions(self) -> tuple[str, ...]:
        """The revisions served."""

    @property
    def page_size(self) -> int:
        """Entries per page of a list."""

    def identity(self) -> dict[str, Any]:
        """Name, version and the rest of ``serverInfo``."""

    def read_resource(self, incoming: Any, uri: str, interaction: Any) -> Any:
        """Read a resource on behalf of a running call, whose questions it may go on with."""
