"""Where the code of a component is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_django.integrations.models.form_tools import FormTools
from mcp_django.integrations.skills import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in the code; ``line`` is ``None`` for what was not written in Python."""

    module: str
    name: str
    file: str | None
    line: int | None

    def __str__(self) -> str:
        place = self.module if self.line is None else f"{self.module}:{self.line}"
        return f"{place} {self.name}()"


def source_of(function: Callable[..., Any]) -> Source:
    """Where a registered function was written, whatever it is wrapped in.

    Of a function that was generated for a class, where that class was.
    """
    declaration = getattr(function, "declared_by", None)
    if isinstance(declaration, Folder):
        file = str(declaration.path)
        return Source(module=declaration.module, name="register_skills", file=file, line=None)
    if isinstance(declaration, FormTools) and declaration.form is not None:
        return _source_of_class(declaration.form)
    if declaration is not None:
        return _source_of_class(type(getattr(declaration, "model_admin", declaration)))
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not inspect.isroutine(function):
        # An instance that can be called: its class is what somebody wrote.
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return Source(
        module=function.__module__,
        name=name,
        file=code.co_filename if code else None,
        line=code.co_firstlineno if code else None,
    )


def _source_of_class(cls: type) -> Source:
    try:
        file, line = inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        # Made at run time, or typed into a shell.
        file, line = None, None
    return Source(module=cls.__module__, name=cls.__qualname__, file=file, line=line)
