"""What a ``ModelResource`` offers: a template that reads one object, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_django.core import declare
from mcp_django.core.component import Completion, Component
from mcp_django.core.context import Context
from mcp_django.core.resource import ResourceTemplate
from mcp_django.sources.models import blobs, completing, prompts
from mcp_django.sources.models.finding import find
from mcp_django.sources.models.listing import Listing

if TYPE_CHECKING:
    from mcp_django.sources.models.resource import ModelResource

JSON = "application/json"


def components(declaration: ModelResource[Any]) -> Iterator[Component]:
    """The template of the objects, those of their files, and the prompts.

    Raises:
        ImproperlyConfigured: the declaration cannot work; the message says what to write.
    """
    _check(declaration)
    yield template(declaration)
    yield from blobs.templates(declaration)
    yield from prompts.prompts(declaration)


def completions(declaration: ModelResource[Any]) -> Iterator[Completion]:
    """A completion of each variable, wherever it is an argument."""
    for component in components(declaration):
        yield from completing.completions(declaration, component)


def template(declaration: ModelResource[Any]) -> ResourceTemplate:
    """The template that reads an object as JSON."""
    # Made in any case, since it checks its options.
    listed = Listing(declaration)
    return ResourceTemplate(
        name=declaration.singular,
        title=declaration.noun.capitalize(),
        description=declaration.doc or _description(declaration),
        function=declare.function(partial(read, declaration), name=declaration.singular),
        template=declaration.variables.template,
        arguments=declaration.variables,
        mime_type=JSON,
        subscribe=declaration.subscribe,
        permission=declaration.guards("view"),
        scopes=declaration.needed_scopes("view"),
        read_only=True,
        entries=listed.page if declaration.list else None,
    )


def read(declaration: ModelResource[Any], ctx: Context, values: Mapping[str, Any]) -> Any:
    """An object as the caller may see it.

    Raises:
        ObjectDoesNotExist: there is none, or none that the caller may know of.
    """
    return declaration.exposed.dump(find(declaration, ctx, values), ctx)


def _description(declaration: ModelResource[Any]) -> str:
    names = ", ".join(declaration.exposed.tree.members)
    return f"One {declaration.noun} as JSON: {names}."


def _check(declaration: ModelResource[Any]) -> None:
    if not declaration.uri or not isinstance(declaration.uri, str):
        declaration.refuse(
            f"uri is missing; write uri = "
            f"'{declaration.model._meta.app_label}://{declaration.plurals}/{{FIELD}}' with a "
            "unique field."
        )
    for option in ("list", "subscribe"):
        if not isinstance(getattr(declaration, option), bool):
            declaration.refuse(f"{option}={getattr(declaration, option)!r}; write True or False.")
    _ = declaration.variables
