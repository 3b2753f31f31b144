"""The files of an object as resources of their own: its URI, a slash and the name of the field."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_django.core import declare
from mcp_django.core.context import Context
from mcp_django.core.resource import ResourceTemplate
from mcp_django.exceptions import ToolError
from mcp_django.protocol.content import ResourceContents
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.finding import find
from mcp_django.sources.models.paths import nearest

if TYPE_CHECKING:
    from mcp_django.sources.models.resource import ModelResource

# What a compressed file is, as far as its name says; the name inside says nothing of these bytes.
COMPRESSED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


def templates(declaration: ModelResource[Any]) -> Iterator[ResourceTemplate]:
    """A template for each file field of ``blobs``.

    Raises:
        ImproperlyConfigured: one of them is no file among ``fields``.
    """
    limit: Any = declaration.max_blob_bytes
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        declaration.refuse(f"max_blob_bytes={limit!r}; give a number of bytes.")
    for name in declaration.sequence("blobs"):
        _check(declaration, name)
        yield _template(declaration, name)


def _template(declaration: ModelResource[Any], name: str) -> ResourceTemplate:
    words = str(declaration.exposed.columns[name].help_text) or f"The file {name!r}."
    return ResourceTemplate(
        name=f"{declaration.singular}_{name}",
        title=f"{declaration.noun.capitalize()}: {declaration.exposed.columns[name].verbose_name}",
        description=f"{words} Of one {declaration.noun}, at most {declaration.max_blob_bytes} "
        "bytes.",
        function=declare.function(partial(read, declaration, name), name=name),
        template=URITemplate(f"{declaration.uri}/{name}", is_lookup=True),
        arguments=declaration.variables,
        subscribe=declaration.subscribe,
        permission=declaration.guards("view"),
        scopes=declaration.needed_scopes("view"),
        read_only=True,
    )


def read(
    declaration: ModelResource[Any], name: str, ctx: Context, values: Mapping[str, Any]
) -> ResourceContents:
    """The bytes of a file of an object.

    Raises:
        ObjectDoesNotExist: the object is not to be seen, or has no such file.
        ToolError: the file is larger than ``max_blob_bytes``.
    """
    file: Any = getattr(find(declaration, ctx, values), name)
    if not file:
        raise declaration.model.DoesNotExist
    limit = declaration.max_blob_bytes
    try:
        size = file.size
        if size > limit:
            raise _too_large(declaration, name, size)
        with file.open("rb") as opened:
            # One more than is allowed: the file may have grown, or its storage knows no sizes.
            content = opened.read(limit + 1)
    except FileNotFoundError:
        raise declaration.model.DoesNotExist from None
    if len(content) > limit:
        raise _too_large(declaration, name, len(content))
    return ResourceContents(bytes(content), mime_type=_mime_type(file.name))


def _too_large(declaration: ModelResource[Any], name: str, size: int) -> ToolError:
    return ToolError(
        f"The {name} of this {declaration.noun} has {size} bytes, and at most "
        f"{declaration.max_blob_bytes} can be read here."
    )


def _mime_type(name: str) -> str:
    kind, encoding = mimetypes.guess_type(name)
    if encoding is not None:
        return COMPRESSED.get(encoding, "application/octet-stream")
    return kind or "application/octet-stream"


def _check(declaration: ModelResource[Any], name: str) -> None:
    columns = declaration.exposed.columns
    files = [one for one, field in columns.items() if Column(field).kind == "file"]
    if name not in files:
        declaration.refuse(
            f"blobs has {name!r}, which is no file among its fields; {nearest(name, files)}"
        )
