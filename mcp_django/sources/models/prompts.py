"""Prompts about one object: ``prompts = {"summarize": "Summarize {object} for a colleague."}``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import Http404

from mcp_django.core import declare
from mcp_django.core.component import Prompt
from mcp_django.core.context import Context
from mcp_django.exceptions import InvalidParams
from mcp_django.execution.results import to_text
from mcp_django.protocol.content import EmbeddedResource, Message
from mcp_django.sources.models.finding import find
from mcp_django.sources.models.listing import Listing
from mcp_django.sources.models.paths import nearest

if TYPE_CHECKING:
    from django.db.models import Model

    from mcp_django.sources.models.resource import ModelResource

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def prompts(declaration: ModelResource[Any]) -> Iterator[Prompt]:
    """A prompt for each entry of ``prompts``, whose arguments are the variables of the URI.

    Raises:
        ImproperlyConfigured: one of them cannot be written.
    """
    declared: Any = declaration.prompts
    if not isinstance(declared, Mapping):
        declaration.refuse(f"prompts={declared!r}; write a dictionary of names and texts.")
    for name, text in declared.items():
        yield ObjectPrompt(declaration, name, text).component()


class ObjectPrompt:
    """One text with room for an object."""

    def __init__(self, declaration: ModelResource[Any], name: Any, text: Any) -> None:
        self._declaration = declaration
        self._listing = Listing(declaration)
        self._name = name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            declaration.refuse(f"prompts has {name!r}; a name has letters, digits, - and _.")
        if not isinstance(text, str) or not text.strip():
            declaration.refuse(f"prompts[{name!r}] is {text!r}; write a text with {{object}}.")
        self._text = text
        self._pieces = self._parsed(text)

    def _parsed(self, text: str) -> list[tuple[str, str | None]]:
        """The text in pieces, each with the placeholder behind it.

        ``str.format`` would follow ``{object.customer.email}`` to what is not exposed.
        """
        known = ["object", "uri", *self._declaration.variables.paths]
        what = f"prompts[{self._name!r}]"
        pieces = []
        try:
            parsed = list(Formatter().parse(text))
        except ValueError as exc:
            self._declaration.refuse(f"{what}: {exc}; write {{{{ and }}}} for braces.")
        for literal, placeholder, rule, conversion in parsed:
            if placeholder is not None and (placeholder not in known or rule or conversion):
                self._declaration.refuse(
                    f"{what} has {{{placeholder}}}; {nearest(placeholder, known)}"
                )
            pieces.append((literal, placeholder))
        return pieces

    def component(self) -> Prompt:
        """The prompt to offer."""
        declaration = self._declaration
        words = self._name.replace("_", " ").replace("-", " ")
        return Prompt(
            name=f"{self._name}_{declaration.singular}",
            title=f"{words} {declaration.noun}".capitalize(),
            description=self._filled({"object": f"one {declaration.noun}"}),
            function=declare.function(self.messages, name=self._name),
            arguments=declaration.variables,
            permission=declaration.guards("view"),
            scopes=declaration.needed_scopes("view"),
            read_only=True,
        )

    def messages(self, ctx: Context, values: Mapping[str, Any]) -> list[Message]:
        """The text about an object, and the object.

        Raises:
            InvalidParams: there is none, or none that the caller may know of.
        """
        declaration = self._declaration
        try:
            obj = find(declaration, ctx, values)
        except (ObjectDoesNotExist, Http404, PermissionDenied):
            raise self._missing(values) from None
        texts = declaration.variables.texts(obj)
        uri = declaration.variables.uri(texts)
        if uri is None or texts is None:
            # As for the text "..", which no URI can have.
            raise self._missing(values)
        text = self._filled({**texts, "uri": uri, "object": self._label(obj, texts, uri)})
        embedded = EmbeddedResource(
            uri,
            text=to_text(declaration.exposed.dump(obj, ctx)),
            mime_type="application/json",
            annotations=self._listing.annotations_of(obj),
        )
        return [Message(text), Message(embedded)]

    def _label(self, obj: Model, texts: Mapping[str, str], uri: str) -> str:
        """The object in a sentence; what the model's ``__str__`` says may be hidden."""
        name = self._listing.title_of(obj)
        return f"{self._declaration.noun} {name or ' '.join(texts.values())} ({uri})"

    def _filled(self, values: Mapping[str, str]) -> str:
        return "".join(
            literal + ("" if name is None else values.get(name, name))
            for literal, name in self._pieces
        )

    def _missing(self, values: Mapping[str, Any]) -> InvalidParams:
        named = ", ".join(f"{name} {str(value)[:80]!r}" for name, value in values.items())
        return InvalidParams(
            f"There is no {self._declaration.noun} with {named}, or you may not see it."
        )
