"""The tools ``create_order``, ``update_order`` and ``delete_order``: names, schemas and words."""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS, router
from django.db.models import FileField
from django.utils.translation import override

from mcp_django.core.declare import MadeHere, function
from mcp_django.core.tool import Tool
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.arguments import CLEAR, PREVIEW, Inputs, Previewing, WriteArguments
from mcp_django.sources.models.form_inputs import FormInputs
from mcp_django.sources.models.hooks import WriteHooks
from mcp_django.sources.models.preview import NOT_SHOWN, not_shown
from mcp_django.sources.models.required import check_filled
from mcp_django.sources.models.writing import Writer

_PREVIEWED = "With preview it answers what would change, and changes nothing."
# What an answer has beside the fields of an object.
_CHANGES: Schema = {
    "type": "object",
    "description": "Of a preview: field by field what was and what would be.",
    "additionalProperties": {
        "type": "object",
        "properties": {"from": {}, "to": {}},
        "required": ["from", "to"],
    },
}
_NOT_SHOWN: Schema = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Of a preview: what would be written and is not shown.",
}
_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer"}}
_IS_PREVIEW: Schema = {"type": "boolean", "description": "Nothing was changed."}


def create_tool(declaration: WriteHooks[Any], *, name: str = "") -> Tool:
    """The tool that saves a new object."""
    name = name or f"create_{declaration.singular}"
    inputs = _inputs(declaration, is_change=False)
    check_filled(declaration, inputs.properties)
    return Tool(
        **_common(declaration, name, "add"),
        description=_words(declaration, f"Create one {declaration.noun}."),
        function=function(
            Writer(declaration=declaration, tool=name, inputs=inputs).create, name=name
        ),
        arguments=WriteArguments(name, key=None, inputs=inputs, files=_files(declaration)),
        output=MadeHere(_object_schema(declaration, inputs)),
        destructive=False,
        idempotent=False,
    )


def update_tool(declaration: WriteHooks[Any], *, name: str = "") -> Tool:
    """The tool that changes some fields of an object."""
    name = name or f"update_{declaration.singular}"
    key = declaration.lookup
    inputs = _inputs(declaration, is_change=True, without=key.name)
    words = f"Change the fields of one {declaration.noun} that are sent, and leave the others."
    return Tool(
        **_common(declaration, name, "change"),
        description=_words(declaration, words),
        function=function(
            Writer(declaration=declaration, tool=name, inputs=inputs).update, name=name
        ),
        arguments=WriteArguments(name, key=key, inputs=inputs, files=_files(declaration)),
        output=MadeHere(_object_schema(declaration, inputs)),
        destructive=True,
        idempotent=True,
    )


def delete_tool(declaration: WriteHooks[Any]) -> Tool:
    """The tool that deletes an object."""
    name = f"delete_{declaration.singular}"
    words = f"Delete one {declaration.noun} with all that depends on it, which the answer counts."
    return Tool(
        **_common(declaration, name, "delete"),
        description=_words(declaration, words),
        function=function(Writer(declaration=declaration, tool=name).delete, name=name),
        arguments=WriteArguments(name, key=declaration.lookup, inputs=None),
        output=MadeHere(_DELETED),
        destructive=True,
    )


_DELETED: Schema = {
    "type": "object",
    "properties": {
        "deleted": {**_COUNTS, "description": "How many objects of each model were deleted."},
        "detached": {
            **_COUNTS,
            "description": "How many of each model referred to them, and now to nothing.",
        },
        PREVIEW: _IS_PREVIEW,
        "cascade": {**_COUNTS, "description": "Of a preview: what would be deleted."},
    },
}


def _common(declaration: WriteHooks[Any], name: str, deed: Any) -> dict[str, Any]:
    on_default = router.db_for_write(declaration.model) == DEFAULT_DB_ALIAS
    return {
        "name": name,
        "permission": declaration.guards(deed),
        "scopes": declaration.needed_scopes(deed),
        "read_only": False,
        "dry_run": Previewing(),
        # On another database the writer opens the transaction alone.
        "atomic": True if on_default else None,
    }


def _inputs(declaration: WriteHooks[Any], *, is_change: bool, without: str = "") -> Inputs:
    # In the language that the site was written in; at registration no other is known.
    with override(None):
        inputs: Inputs = _reader(declaration)(declaration, is_change=is_change, without=without)
    if not inputs.properties:
        declaration.refuse(f"there is nothing to write but {without!r}, which names the object.")
    for name in (PREVIEW, CLEAR):
        if name in inputs.properties:
            declaration.refuse(
                f"{name!r} can be written and is an argument of every write tool; leave it out of "
                "write_fields, or give it another name in a form (form = …)."
            )
    return inputs


def _reader(declaration: WriteHooks[Any]) -> Any:
    if declaration.serializer is None:
        return declaration.form_reader or FormInputs
    # Django REST framework is optional and cannot be imported before settings exist.
    from mcp_django.sources.models.serializer_inputs import SerializerInputs

    return SerializerInputs


def _files(declaration: WriteHooks[Any]) -> list[str]:
    columns = declaration.exposed.columns
    return [name for name, field in columns.items() if isinstance(field, FileField)]


def _object_schema(declaration: WriteHooks[Any], inputs: Inputs) -> Schema:
    """The object, or of a preview what would change: so nothing in it is required."""
    schema = declaration.exposed.schema
    for name in (PREVIEW, "changes", NOT_SHOWN):
        if name in schema["properties"]:
            declaration.refuse(
                f"fields has {name!r}, which a write tool answers in a preview; leave it out of "
                "fields, or leave the write tools away."
            )
    return {
        "type": "object",
        "properties": {**schema["properties"], **_of_preview(declaration, inputs)},
    }


def _of_preview(declaration: WriteHooks[Any], inputs: Inputs) -> dict[str, Schema]:
    """What a preview has instead of the fields."""
    found = {PREVIEW: _IS_PREVIEW, "changes": _CHANGES}
    return found | ({NOT_SHOWN: _NOT_SHOWN} if not_shown(declaration, inputs.properties) else {})


def _words(declaration: WriteHooks[Any], words: str) -> str:
    return " ".join(part for part in (words, _PREVIEWED, declaration.doc) if part)
