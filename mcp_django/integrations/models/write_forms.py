"""Model forms that validate what a write tool saves: the author's own, or one made for the model.

A form made for the model holds the fields that were sent. A form of the author's may look at all
of its fields, so for a change it also gets the object's own values for the others, as from a
browser.
"""

from __future__ import annotations

import datetime as dt
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.core.exceptions import (
    NON_FIELD_ERRORS,
    FieldDoesNotExist,
    ImproperlyConfigured,
    ValidationError,
)
from django.db import models
from django.db.models import Field, FileField, ManyToManyField, Model, Q, QuerySet
from django.db.models.fields import NOT_PROVIDED
from django.db.models.fields.proxy import OrderWrt
from django.utils import timezone

from mcp_django.core.context import Context
from mcp_django.integrations.models.columns import bounded_duration, with_limits
from mcp_django.integrations.models.row_access import gate, limited
from mcp_django.integrations.models.write_effects import (
    ElsewhereError,
    once,
    problems_of,
    related_noun,
)
from mcp_django.integrations.site_responses import is_shown
from mcp_django.schema.arguments import InvalidArguments, Problem
from mcp_django.schema.django_forms import FormArguments, widget_entries
from mcp_django.schema.portable import with_sentence
from mcp_django.schema.problems import of_kind, wrong_kind
from mcp_django.schema.structure import Schema

if TYPE_CHECKING:
    from mcp_django.integrations.models.declaration import WriteHooks

    _ModelForm = forms.ModelForm[Any]
else:
    # Generic in the stubs only.
    _ModelForm = forms.ModelForm

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
                yield from _key_problems(field, name, value)

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
        return _write_form(declaration.model, writable_fields(declaration))
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


# The form where the author names none -------------------------------------------------------------

# It validates what Django's own model forms validate. A change names only some fields, so rules
# over several fields are checked with the values that the others have.


def _write_form(model: type[Model], fields: Sequence[str]) -> type[forms.ModelForm[Any]]:
    """A form class for these fields of a model."""
    made: type[forms.ModelForm[Any]] = forms.modelform_factory(
        model, form=WriteForm, fields=list(fields)
    )
    return made


class WriteForm(_ModelForm):
    """Validates a new object, or a change of some fields of an existing one: those in ``only``."""

    def __init__(self, *, only: Sequence[str] | None = None, **options: Any) -> None:
        if only is not None:
            # The values of the others are not even read, which for links are rows without an end.
            self._meta = copy(type(self)._meta)
            self._meta.fields = list(only)
        super().__init__(**options)
        if only is not None:
            for name in set(self.fields) - set(only):
                del self.fields[name]
        for field in self.fields.values():
            if isinstance(field, forms.DurationField):
                field.validators.append(_fits)

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.instance._state.adding or self.errors:
            return
        # Above, rules that also look at a field that was not sent were left out.
        try:
            self.instance.validate_constraints()
        except ValidationError as exc:
            self._update_errors(exc)

    def validate_unique(self) -> None:
        """Check uniqueness, also of combinations with fields that were not sent."""
        if self.instance._state.adding:
            super().validate_unique()
            return
        try:
            self.instance.validate_unique(exclude=set(self.errors))
        except ValidationError as exc:
            self._update_errors(exc)

    def save(self, commit: bool = True) -> Any:  # noqa: FBT001, FBT002 - Django's signature
        """Save the object; a new one never over another that got the same key meanwhile."""
        if not commit or self.errors or not self.instance._state.adding:
            return super().save(commit)
        self.instance.save(force_insert=True)
        self._save_m2m()  # type: ignore[attr-defined]
        return self.instance

    def _update_errors(self, errors: ValidationError) -> None:
        """A model's ``clean`` may complain of a field that is not in the form."""
        if hasattr(errors, "error_dict"):
            placed: dict[str, list[Any]] = {}
            for name, found in errors.error_dict.items():
                if name in self.fields or name == NON_FIELD_ERRORS:
                    placed.setdefault(name, []).extend(found)
                else:
                    elsewhere = [ElsewhereError(name, one) for one in found]
                    placed.setdefault(NON_FIELD_ERRORS, []).extend(elsewhere)
            errors = ValidationError(placed)
        super()._update_errors(errors)  # type: ignore[misc]


def _fits(value: dt.timedelta) -> None:
    """Refuse what some databases cannot hold, before they say so."""
    try:
        bounded_duration(value)
    except ValueError as exc:
        raise ValidationError(str(exc)) from exc


# Keys of related rows -----------------------------------------------------------------------------

# A form accepts only keys of rows that the caller may see. Where the related model is registered
# on the same server, its row rule (``get_queryset``) decides. A key outside of it is refused with
# the same words as one that does not exist.

MAX_KEYS = 1000
# The longest integer that a driver takes.
MAX_INTEGER = 2**63 - 1


def limit_keys(fields: Mapping[str, Any], names: Iterable[str], server: Any, ctx: Context) -> None:
    """Narrow the rows that fields of a form or serializer accept to what the caller may see."""
    for field in _choosing(fields[name] for name in names if name in fields):
        field.queryset = limited(field.queryset.all(), server, ctx)


def _choosing(fields: Iterable[Any]) -> Iterator[Any]:
    """The fields that choose among rows, those of nested serializers, too."""
    for field in fields:
        inner = getattr(field, "child_relation", None) or getattr(field, "child", None)
        if inner is not None:
            yield from _choosing([inner])
        elif hasattr(field, "fields") and not isinstance(field, forms.Field):
            yield from _choosing(field.fields.values())
        elif getattr(field, "queryset", None) is not None:
            yield field


def keep_hidden_links(
    values: MutableMapping[str, Any], instance: Model, server: Any, ctx: Context
) -> None:
    """Leave the links to rows that the caller cannot see, as nobody removes what is hidden.

    A list of keys replaces the links of an object, and could name the visible ones only.
    """
    for name in {field.name for field in instance._meta.many_to_many} & {*values}:
        linked: QuerySet[Any] = getattr(instance, name).all()
        visible = gate(server, linked.model, ctx, among=Q(pk__in=linked.values("pk")))
        if visible is not None:
            hidden = linked.exclude(pk__in=visible.using(linked.db).values("pk"))
            values[name] = [*values[name], *hidden]


def _key_problems(field: Any, name: str, value: Any) -> Iterator[Problem]:
    """What is wrong with keys that a database would stumble over."""
    if not isinstance(field, forms.ModelMultipleChoiceField) or not isinstance(value, list):
        return
    if len(value) > MAX_KEYS:
        yield Problem(path=name, message=f"has {len(value)} keys; send at most {MAX_KEYS}")
        return
    noun = related_noun(field)
    for index, one in enumerate(value):
        if _is_out_of_range(one):
            yield Problem(path=f"{name}[{index}]", value=one, message=f"there is no such {noun}")


def _is_out_of_range(key: Any) -> bool:
    text = str(key).strip().lstrip("+-")
    # A longer text is no number that Python reads.
    return text.isdecimal() and (len(text) > 19 or int(text) > MAX_INTEGER)


# Fields that callers may write --------------------------------------------------------------------

# What an HTML form could not have either, or what Django fills itself.
_NOT_EDITABLE = "is not editable"


def writable_fields(declaration: Any) -> list[str]:
    """The names of the fields that callers may write: ``write_fields``, or what is exposed.

    Raises:
        ImproperlyConfigured: one of ``write_fields`` cannot be written through JSON, or none is
            left.
    """
    if declaration.write_fields is None:
        names = list(_exposed_and_writable(declaration))
    else:
        names = list(declaration.sequence("write_fields"))
        for name in names:
            problem = _problem(declaration.model, name)
            if problem:
                declaration.refuse(f"write_fields: {name!r} {problem}.")
    if not names:
        declaration.refuse("there is nothing to write; name fields of the model in write_fields.")
    return names


def _exposed_and_writable(declaration: Any) -> Iterator[str]:
    """The exposed fields that can be written; ``customer_id`` stands for ``customer``."""
    options = declaration.model._meta
    attnames = {f.attname: f.name for f in options.concrete_fields}
    for path in declaration.fields:
        name = attnames.get(path, path)
        if not _problem(declaration.model, name):
            yield name


def _problem(model: type[Model], name: str) -> str:
    """Why a field cannot be written, as the end of a sentence; empty when it can."""
    options = model._meta
    if "__" in name:
        return "belongs to another model; write_fields are the model's own"
    try:
        field: Any = options.get_field(name)
    except FieldDoesNotExist:
        known = [f.name for f in (*options.concrete_fields, *options.many_to_many)]
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; there are {', '.join(known)}"
        return f"is no field of {options.label}{hint}"
    # Whether links to many count as concrete depends on Django's version.
    if field.auto_created or not (field.concrete or isinstance(field, ManyToManyField)):
        return "is no column of the model; write it from the other side"
    if isinstance(field, FileField):
        return (
            "is a file, which JSON cannot carry; leave it out, or take its contents in a field of "
            "your own form (form = …)"
        )
    if isinstance(field, ManyToManyField) and not _is_plain(field):
        return (
            "has a model of its own between the two (through=…); expose that model, and write its "
            "rows"
        )
    if not field.editable or getattr(field, "generated", False):
        return _NOT_EDITABLE
    if field.formfield() is None:
        return "has no form field; name a form that has one (form = …)"
    return ""


def _is_plain(field: Any) -> bool:
    return bool(field.remote_field.through._meta.auto_created)


# Required columns that callers do not write -------------------------------------------------------

# A form leaves such columns out, and with them the model's rule that they are not empty. A class
# that has them is therefore refused; where a hook is to fill them, the saved object is checked.


def check_filled(declaration: WriteHooks[Any], written: Iterable[str]) -> None:
    """Refuse a ``create`` that leaves a column empty which the model says is never empty.

    Raises:
        ImproperlyConfigured: saying what to write.
    """
    is_made_here = not (declaration.form or declaration.serializer or declaration.form_reader)
    has_hook = declaration.is_overridden("perform_create")
    if not is_made_here or has_hook or _fills_itself(declaration.model):
        return
    missing = list(_unwritten(declaration.model, written))
    if missing:
        names = ", ".join(repr(field.name) for field in missing)
        declaration.refuse(
            f"create needs {names}, which {declaration.model.__name__} requires: "
            f"{_way_out(missing)}, give it a default, set it in perform_create, or leave 'create' "
            "out of tools."
        )


def empty_ones(obj: Model, written: Iterable[str]) -> ValidationError | None:
    """What is wrong with an object: the columns that nobody filled."""
    empty = {
        field.name: ValidationError("This field is required.", code="required")
        for field in _unwritten(type(obj), written)
        if getattr(obj, field.attname) in field.empty_values
    }
    return ValidationError(empty) if empty else None


def _unwritten(model: type[Model], written: Iterable[str]) -> Iterator[Field[Any, Any]]:
    """The columns that have to be filled by somebody, and are not among those that are written."""
    known = {*written}
    for field in model._meta.concrete_fields:
        if field.name not in known and _has_to_be_filled(field):
            yield field


def _has_to_be_filled(field: Any) -> bool:
    if field.null or field.blank or field.auto_created or getattr(field, "generated", False):
        return False
    if isinstance(field, OrderWrt) or getattr(field.remote_field, "parent_link", False):
        # Saving fills these.
        return False
    if field.has_default() or field.db_default is not NOT_PROVIDED:
        return False
    # A field of another package may fill itself.
    return bool(type(field).pre_save.__module__.startswith("django."))


def _fills_itself(model: type[Model]) -> bool:
    """Whether the model has code of its own in which it may fill what is missing."""
    return model.save is not Model.save or model.clean is not Model.clean


def _way_out(missing: list[Field[Any, Any]]) -> str:
    if any(isinstance(field, FileField) for field in missing):
        return "a file cannot be written (name a form that makes it, form = …)"
    if not all(field.editable for field in missing):
        return "what is not editable cannot be written"
    return "add it to write_fields" if len(missing) == 1 else "add them to write_fields"
