"""What every component has in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.function import ComponentFunction
from mcp_django.protocol.capabilities import check_askable
from mcp_django.protocol.content import Icon
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.meta import check_author_meta
from mcp_django.rates import Rate

# RFC 6749, section 3.3: a scope travels in a list that spaces separate, within quotes.
SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A declared tool, resource, resource template or prompt.

    ``permission`` and ``scopes`` narrow what its server lets in (runtime.policy reads them);
    ``atomic`` opens a transaction around the function (``None``: as ``ATOMIC_REQUESTS`` says);
    ``timeout`` is in seconds. ``needs`` names what the client must have declared before anything
    runs (``ctx.supports`` has the names). ``read_only`` says that the function changes nothing, and
    unless ``enforce`` is off the runtime sees to it. ``rates`` say how often it may be used;
    ``log_arguments`` puts the values of its arguments into the call log (``None``: as its server
    says), but for those named by ``sensitive``. ``aliases`` are former names (addresses, of what is
    read by URI): it answers to them and is listed under its own. ``kind`` is the specification's
    word for it.
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
    needs: tuple[str, ...] = ()
    read_only: bool | None = None
    enforce: bool = True
    rates: tuple[Rate, ...] = ()
    log_arguments: bool | None = None
    sensitive: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

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
        for number, alias in enumerate(self.aliases):
            self.require(
                bool(alias) and str(alias) == alias,
                f"aliases has {alias!r}; write each former name as a text.",
            )
            self.require(
                alias != self.key and alias not in self.aliases[:number],
                f"aliases has {alias!r}, which is its name already; leave it out.",
            )
        for option, value in (("read_only", self.read_only or False), ("enforce", self.enforce)):
            self.require(isinstance(value, bool), f"{option} is {value!r}; write True or False.")
        for need in self.needs:
            try:
                check_askable(need)
            except ValueError as exc:
                raise ImproperlyConfigured(f"{self}: needs: {exc}.") from None
        self.require(
            not self.needs or self.function.context_parameter is not None,
            "it needs something of the client and cannot ask: give it a parameter ctx: Context.",
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
    def is_governed(self) -> bool:
        """Whether its database work is limited and kept from writing (runtime.governor)."""
        return bool(self.read_only) and self.enforce

    @property
    def callable(self) -> Callable[..., Any]:
        """The developer's own function."""
        return self.function.function

    @property
    def origin(self) -> str:
        """Where it comes from, in words: a module, or the class that it was generated for."""
        declaration = getattr(self.callable, "declared_by", None)
        return str(declaration or self.callable.__module__)
