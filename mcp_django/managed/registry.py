"""``ManagedRegistry``: what code declares, and what the owner of the site made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from django.core.exceptions import ImproperlyConfigured

from mcp_django.conf import Rate, get_settings, parse_all
from mcp_django.core.catalog import Offered
from mcp_django.managed.current import Managed
from mcp_django.sources.models.generic import Generic
from mcp_django.sources.registering import Registering


class ManagedRegistry(Registering):
    """The registry of one server, by whose name the admin knows it."""

    def __init__(
        self,
        name: str,
        *,
        generic: Generic = None,
        rate: str | Sequence[str] = (),
        log_arguments: bool | None = None,
    ) -> None:
        super().__init__(generic=generic)
        self.name = name
        try:
            self._rates = parse_all(rate)
        except ValueError as exc:
            raise ImproperlyConfigured(f"rate of the server {name!r}: {exc}.") from None
        self._log_arguments = log_arguments
        self._managed = Managed(name, self)

    @property
    def offered(self) -> Offered:
        """What callers are offered now: what code declares, as the admin adds to it and narrows it.

        ``tools``, ``resources``, ``templates`` and ``prompts`` are what code declares.
        """
        return self._managed.offered

    @property
    def available(self) -> Offered:
        """What there would be to offer if the admin narrowed nothing."""
        return self._managed.available

    def refresh(self, *, is_list: bool = False) -> None:
        """See that ``offered`` is not older than a second, or of this moment for a list.

        Raises:
            Busy: the database cannot say what the admin decided, and never could.
        """
        self._managed.refresh(is_list=is_list)

    def as_in_code(self) -> None:
        """Take it that the admin says nothing, until the next ``refresh``."""
        self._managed.forget()

    @property
    def rates(self) -> tuple[Rate, ...]:
        """How often anything of it may be used, as code and its owner say."""
        return (*self.rates_in_code, *self.offered.rates)

    @property
    def rates_in_code(self) -> tuple[Rate, ...]:
        """The same, whatever its owner says in the admin."""
        return self._rates or get_settings().rate

    @property
    def log_arguments(self) -> bool:
        """Whether the call log gets the values of arguments."""
        in_code = self._log_arguments
        return get_settings().log_arguments if in_code is None else in_code

    @property
    def itself(self) -> Self:
        """This server; what stands before it in a test answers with it, too."""
        return self
