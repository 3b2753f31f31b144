"""What a client is told of: a server by its address, or by the command that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_VARIABLE = "MCP_TOKEN"
PLACEHOLDER = "YOUR_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """Where a client has the bearer token from.

    ``token`` is the token itself and ``variable`` the environment variable that holds it; with
    neither, it is as safe a place as the client has.
    """

    token: str = field(default="", repr=False)
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One server.

    ``name`` is what the client calls it. Either ``url`` or ``command`` is given; ``credential``
    is ``None`` where none is asked for.
    """

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    credential: Credential | None = None

    @property
    def is_local(self) -> bool:
        """Whether the client starts it and speaks to its standard streams."""
        return bool(self.command)
