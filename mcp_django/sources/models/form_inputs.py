"""Values that are validated by a model form: the author's own, or one made for the model.

The made form holds the fields that were sent. One of the author's may look at all of its fields,
so a change hands it the object's own values for the others, as a browser would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.utils import timezone

from mcp_django.core.context import Context
from mcp_django.schema.arguments import InvalidArguments, Problem
from mcp_django.schema.django_forms import FormArguments, widget_entries
from mcp_django.schema.portable import with_sentence
from mcp_django.schema.problems import of_kind, wrong_kind
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.forms import WriteForm, write_form
from mcp_django.sources.models.limits import with_limits
from mcp_django.sources.models.linking import (
    MAX_KEYS,
    keep_hidden_links,
    key_problems,
    limit_keys,
)
from mcp_django.sources.models.repair import once, problems_of, related_noun
from mcp_django.sources.models.writable import writable_fields
from mcp_django.sources.site.shown import is_shown

FLAGS = ("true", "false")


class FormInputs(FormArguments):
    """Reads values through a model form; ``without`` names fields that a change leaves alone."""

    def __init__(self, declaration: Any, *, is_change: bool, without: str = "") -> None:
        self._declaration = declaration
        form_class = self.form_class(declaration, is_change=is_change)
        left_out = self.left_out(form_class, is_change=is_change)
        super().__init__(form_class, without={without, *left_out})
        self.properties = {name: self._property(name, is_change=is_change) for name in self._fields}
        self.required = list(self._shape["required"])
        self.emptiable = [name for name, field in self._fields.items() if _can_be_emptied(field)]

    def form_class(self, declaration: Any, *, is_change: bool) -> Any:
        """The class of the form."""
        return _form_class(declaration)

    def left_out(self, form_class: Any, *, is_change: bool) -> Collection[str]:
        """Fields that no argument fills: a class that has a form says itself what is written."""
        return ()

    def _property(self, name: str, *, is_change: bool) -> Schema:
        schema = with_limits(self._shape["properties"][name], self._rules(name))
        if is_change:
            # What is left out stays as it is.
            schema.pop("default", None)
        if schema.get("type") == "string" and "default" in schema:
            # The default of a decimal may be written as a number.
            schema["default"] = str(schema["default"])
        field = self._fields[name]
        if isinstance(field, forms.ModelChoiceField):
            noun = related_noun(field)
            many = isinstance(field, forms.ModelMultipleChoiceField)
            words = f"Keys of {noun} objects." if many else f"The key of one {noun}."
            schema["description"] = with_sentence(schema.get("description", ""), words)
            if many:
                schema["maxItems"] = MAX_KEYS
        return schema

    def _rules(self, name: str) -> list[Any]:
        """The validators of the form field and of the model field behind it."""
        columns = {one.name: one for one in self._declaration.model._meta.concrete_fields}
        rules = [*self._fields[name].validators]
        if name in columns and not columns[name].is_relation:
            rules += columns[name].validators
        return [rule for index, rule in enumerate(rules) if rule not in rules[:index]]

    def look_over(self, values: Mapping[str, Any]) -> Iterator[Problem]:
        """What is wrong with the values at a glance."""
        for name, value in values.items():
            field = self._fields[name]
            rule = wrong_kind(value, self.json_schema["properties"].get(name, {}))
            if isinstance(field, forms.BooleanField) and str(value).lower() not in FLAGS:
                # A checkbox would take any other text for a yes.
                rule = of_kind("boolean")
            if rule is not None:
                yield Problem(path=name, value=value, message=rule)
            else:
                yield from key_problems(field, name, value)

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """The valid form.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        moments = _moments(instance)
        form = self._form(call, instance)
        server = self._declaration.server
        limit_keys(form.fields, call.written, server, ctx)
        if not form.is_valid():
            known = {*self._declaration.exposed.schema["properties"], *self.properties}
            found = problems_of(form, dict(call.values), self.properties, known)
            raise InvalidArguments(once(found))
        if instance is not None:
            keep_hidden_links(form.cleaned_data, instance, server, ctx)
            _keep_moments(form, moments, call.written)
        return form

    def _form(self, call: Any, instance: Any) -> forms.BaseModelForm[Any]:
        make: Any = self._form_class
        if instance is None:
            form: forms.BaseModelForm[Any] = make(data=self._values(call))
            return form
        if not issubclass(self._form_class, WriteForm):
            data = {**self._values(call), **self._current(make(instance=instance), call)}
            whole: forms.BaseModelForm[Any] = make(data=data, instance=instance)
            return whole
        part: forms.BaseModelForm[Any] = make(
            data=self._values(call), instance=instance, only=call.written
        )
        return part

    def _values(self, call: Any) -> dict[str, Any]:
        """What the caller sent, as the form's widgets would hand it over."""
        emptied = {name: _nothing(self._fields[name]) for name in call.clear}
        data = self.data({**call.values, **emptied}, prefix=self._form_class.prefix)
        return {key: _as_stored(value) for key, value in data.items()}

    def _current(self, form: forms.BaseModelForm[Any], call: Any) -> dict[str, Any]:
        """The object's own values of the fields that were not sent."""
        data: dict[str, Any] = {}
        for name, field in form.fields.items():
            if name in call.written or field.disabled or not is_shown(field):
                continue
            value = field.prepare_value(form.get_initial_for_field(field, name))
            shown = "" if value is None else value
            data |= widget_entries(field.widget, form.add_prefix(name), shown)
        return data


def _form_class(declaration: Any) -> Any:
    if declaration.form is None:
        return write_form(declaration.model, writable_fields(declaration))
    form = declaration.form
    is_fit = isinstance(form, type) and issubclass(form, forms.ModelForm)
    model = form._meta.model if is_fit else None
    if model is None or not issubclass(declaration.model, model):
        raise ImproperlyConfigured(
            f"{declaration}: form = {getattr(form, '__name__', form)!r}; name a ModelForm of "
            f"{declaration.model.__name__}."
        )
    if declaration.write_fields is not None:
        declaration.refuse("has a form and write_fields; the form says what can be written.")
    return form


def _moments(instance: Any) -> dict[str, Any]:
    """The moments of an object, before a form writes into it."""
    if instance is None:
        return {}
    named = {
        one.name: getattr(instance, one.name)
        for one in instance._meta.concrete_fields
        if isinstance(one, models.DateTimeField | models.TimeField)
    }
    return {name: one for name, one in named.items() if one is not None}


def _keep_moments(form: Any, moments: Mapping[str, Any], written: Collection[str]) -> None:
    """Give back what a form cut off moments that it was to leave alone.

    An input shows no microseconds, and one with a format of its own perhaps no seconds.
    """
    for name, moment in moments.items():
        field = form.fields.get(name)
        if field is None or name in written:
            continue
        read = form[name].initial if field.disabled else form[name].data
        # Where the form decided on another moment, it is meant.
        if form.cleaned_data.get(name) == field.clean(read):
            form.cleaned_data[name] = moment
            setattr(form.instance, name, moment)


def _can_be_emptied(field: forms.Field) -> bool:
    """Whether nothing is a value of the field that JSON could not say otherwise."""
    says_so = (forms.BooleanField, forms.MultipleChoiceField, forms.ModelMultipleChoiceField)
    is_flag = isinstance(field, says_so) and not isinstance(field, forms.NullBooleanField)
    return not field.required and not is_flag


def _nothing(field: forms.Field) -> Any:
    # To a JSON field an empty text is a text.
    return None if isinstance(field, forms.JSONField) else ""


def _as_stored(value: Any) -> Any:
    """A moment without its offset where the site keeps none, which a form would not see to."""
    is_moment = hasattr(value, "utcoffset") and hasattr(value, "date")
    if is_moment and not settings.USE_TZ and timezone.is_aware(value):
        return timezone.make_naive(value, timezone.get_default_timezone())
    return value
