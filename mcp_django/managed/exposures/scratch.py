"""``Scratch``: the registry that takes what the admin exposes on one server.

Code's registry stays as code wrote it. Whatever a registration asks of its server, it is answered
by the real one; the rules for related objects are those of code, if code has any.
"""

from __future__ import annotations

import weakref
from typing import Any

from django.db.models import Model

from mcp_django.sources.models.declaration import ModelComponents
from mcp_django.sources.registering import Registering


class Scratch(Registering):
    """A registry beside the one of a server; ``None`` where this process has no such server."""

    def __init__(self, name: str, server: Any) -> None:
        # One set of tools for all models would change the names of tools with their number.
        super().__init__(generic=False)
        self.name = name
        # It is kept as long as its server, and must not keep it.
        self._reference = None if server is None else weakref.ref(server)

    @property
    def _real(self) -> Any:
        reference = self.__dict__.get("_reference")
        return None if reference is None else reference()

    def __getattr__(self, name: str) -> Any:
        """What hooks of code find on a server."""
        real = self._real
        if real is None or name.startswith("_"):
            raise AttributeError(name)
        return getattr(real, name)

    @property
    def generated_scopes(self) -> bool | str:  # type: ignore[override]  # a class attribute there
        """The scopes that the server makes for what is registered."""
        return getattr(self._real, "generated_scopes", False)

    def twins(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """What code registers of a model on this server."""
        found: list[ModelComponents[Any]] = self._real.declared(model) if self._real else []
        return found

    def shown_by_code(self, model: type[Model]) -> set[str]:
        """The columns of a model that code shows on this server."""
        paths = (path for twin in self.twins(model) for path in twin.exposed.paths.values())
        return {path.field.name for path in paths if not path.hops}

    def declared(self, model: type[Model]) -> list[ModelComponents[Any]]:
        """The rules for the rows of a model: those of code, else those of exposures."""
        return self.twins(model) or super().declared(model)
