"""What every component has in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.function import ComponentFunction
from mcp_django.protocol.content import Icon
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.meta import check_author_meta

# RFC 6749, section 3.3: a scope travels in a list that spaces separate, within quotes.
SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A declared tool, resource, resource template or prompt.

    ``permission`` and ``scopes`` narrow what its server lets in (runtime.policy reads them);
    ``atomic`` opens a transaction around the function (``None``: as ``ATOMIC_REQUESTS`` says);
    ``timeout`` is in seconds. ``kind`` is the specification's word for it.
    """

    kind: ClassVar[str]

    name: str
    function: ComponentFunction
    title: str = ""
    description: str = ""
    icons: tuple[Icon, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    permission: Any = None
    scopes: tuple[str, ...] = ()
    atomic: bool | None = None
    timeout: float | None = None
    slow: bool = False

    def __post_init__(self) -> None:
        try:
            check_author_meta(self.meta)
            encode(dict(self.meta))
        except (TypeError, ValueError) as exc:
            raise ImproperlyConfigured(f"{self}: meta: {exc}") from None
        for icon in self.icons:
            self.require(
                isinstance(icon, Icon), f"icons has {icon!r}; write Icon('https://…') for each."
            )
        for scope in self.scopes:
            self.require(
                bool(SCOPE.fullmatch(str(scope))),
                f"{scope!r} is no scope; write printable ASCII without spaces, quotes and \\.",
            )
        self.require(
            self.timeout is None or self.timeout > 0,
            f"timeout={self.timeout} leaves no time; give seconds, or leave it out.",
        )

    def require(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001
        """Refuse a declaration that cannot work, naming the component.

        Raises:
            ImproperlyConfigured: it does not hold.
        """
        if not holds:
            raise ImproperlyConfigured(f"{self}: {otherwise}")

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    @property
    def key(self) -> str:
        """What identifies the component among those of its kind on a server."""
        return self.name

    @property
    def callable(self) -> Callable[..., Any]:
        """The developer's own function."""
        return self.function.function
