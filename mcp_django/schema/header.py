"""The marker that mirrors an argument into a header (MCP 2026-07-28, "x-mcp-header").

A gateway can then route a call without reading its body. Which properties may carry the marker is
checked over the whole schema by `mcp_django.protocol.headers`; here only the name is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from mcp_django.protocol.headers import ANNOTATION

# RFC 9110, section 5.6.2.
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """Sends an argument as `Mcp-Param-<name>` too: `region: Annotated[str, Header("Region")]`.

    The value is visible to everything between client and server; keep secrets and personal data
    out of it.
    """

    name: str

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be part of a header name; take letters, digits and hyphens."
            )

    def __get_pydantic_json_schema__(
        self, schema: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), ANNOTATION: self.name}
