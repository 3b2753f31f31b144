"""The values of a write, read by the form that the ``ModelAdmin`` makes for this caller."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext

from mcp_django.core.context import Context
from mcp_django.schema.arguments import InvalidArguments, Problem, unknown_argument
from mcp_django.sources.models.form_inputs import FormInputs

if TYPE_CHECKING:
    from mcp_django.sources.model_admin.declaration import AdminTools


# What the admin tells a person with a mouse, in Django's own words.
_HOW_TO_SELECT = "Hold down “Control”, or “Command” on a Mac, to select more than one."


class AdminInputs(FormInputs):
    """Published is the widest form; which fields a caller may write is decided by his own."""

    _declaration: AdminTools[Any]

    def form_class(self, declaration: AdminTools[Any], *, is_change: bool) -> Any:
        """The class of the form that somebody gets who may do everything."""
        return declaration.widest_form(is_change=is_change)

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """The valid form.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        own = copy.copy(self)
        own._form_class = self._declaration.make_form(ctx, instance)
        fields = own._form_class.base_fields  # type: ignore[attr-defined]  # not in the stubs
        own._fields = {name: one for name, one in fields.items() if name in self._fields}
        if problems := list(own._not_for_this_caller(call)):
            raise InvalidArguments(problems)
        return super(AdminInputs, own).bind(ctx, call, instance)

    def _not_for_this_caller(self, call: Any) -> Iterator[Problem]:
        for name in call.written:
            if name not in self._fields or self._fields[name].disabled:
                yield unknown_argument(name, self._fields)


def plain(form_class: Any) -> Any:
    """The form without the inputs that want lists of keys as one text."""
    for field in form_class.base_fields.values():
        if isinstance(field, forms.ModelMultipleChoiceField):
            # The class was made for this call; Django keeps no other reference to its fields.
            field.widget = forms.SelectMultiple()
            field.help_text = str(field.help_text).replace(gettext(_HOW_TO_SELECT), "").strip()
    return form_class
