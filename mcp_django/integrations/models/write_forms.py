"""Model forms that validate what a write tool saves: the developer's own or a generated one.

A generated form has only the fields that were sent. A developer's form may use all of its fields,
so for an update it also gets the object's current values of the fields that were not sent, as from
a browser.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from typing import Any

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

from mcp_django.components.context import Context
from mcp_django.integrations.models.columns import (
    add_validator_limits,
    has_own_manager,
    validate_duration,
)
from mcp_django.integrations.models.declaration import WriteHooks
from mcp_django.integrations.models.row_access import apply_row_rules, limit_to_visible
from mcp_django.integrations.models.write_effects import (
    OtherFieldError,
    form_problems,
    related_noun,
    remove_duplicates,
)
from mcp_django.integrations.site_responses import is_value_resent
from mcp_django.protocol.text import did_you_mean
from mcp_django.schema.arguments import InvalidArguments, ValidationProblem
from mcp_django.schema.django_forms import FormArguments, widget_entries
from mcp_django.schema.problems import type_error_rule, type_rule
from mcp_django.schema.structure import Schema
from mcp_django.schema.vocabulary import append_sentence

FLAGS = ("true", "false")


class FormInputs(FormArguments):
    """Validates values with a model form; ``without`` names a field that updates do not write."""

    def __init__(self, declaration: Any, *, is_change: bool, without: str = "") -> None:
        self._declaration = declaration
        form_class = self.form_class(declaration, is_change=is_change)
        excluded = self.excluded_fields(form_class, is_change=is_change)
        super().__init__(form_class, excluded={without, *excluded})
        self.properties = {name: self._property(name, is_change=is_change) for name in self._fields}
        self.required = list(self._shape["required"])
        # Fields that can be empty and for which JSON has no value, such as [] or false.
        classes = (forms.BooleanField, forms.MultipleChoiceField, forms.ModelMultipleChoiceField)
        self.emptiable = [
            name
            for name, field in self._fields.items()
            if not field.required
            and (isinstance(field, forms.NullBooleanField) or not isinstance(field, classes))
        ]

    def form_class(self, declaration: Any, *, is_change: bool) -> Any:
        """Return the class of the form."""
        return _form_class(declaration)

    def excluded_fields(self, form_class: Any, *, is_change: bool) -> Collection[str]:
        """Return fields of the form that are not arguments; by default none."""
        return ()

    def _property(self, name: str, *, is_change: bool) -> Schema:
        field = self._fields[name]
        columns = {column.name: column for column in self._declaration.model._meta.concrete_fields}
        rules = [*field.validators]
        if name in columns and not columns[name].is_relation:
            rules += columns[name].validators
        distinct_rules = [rule for index, rule in enumerate(rules) if rule not in rules[:index]]
        schema = add_validator_limits(self._shape["properties"][name], distinct_rules)
        if is_change:
            # A field that is not sent keeps its value.
            schema.pop("default", None)
        if schema.get("type") == "string" and "default" in schema:
            # The default of a decimal field may be a number.
            schema["default"] = str(schema["default"])
        if isinstance(field, forms.ModelChoiceField):
            noun = related_noun(field)
            many = isinstance(field, forms.ModelMultipleChoiceField)
            words = f"Keys of {noun} objects." if many else f"The key of one {noun}."
            schema["description"] = append_sentence(schema.get("description", ""), words)
            if many:
                schema["maxItems"] = MAX_KEYS
        return schema

    def check_types(self, values: Mapping[str, Any]) -> Iterator[ValidationProblem]:
        """Yield problems of the values that can be found without the database."""
        for name, value in values.items():
            field = self._fields[name]
            rule = type_error_rule(value, self.json_schema["properties"].get(name, {}))
            if isinstance(field, forms.BooleanField) and str(value).lower() not in FLAGS:
                # A checkbox accepts any other text as true.
                rule = type_rule("boolean")
            if rule is not None:
                yield ValidationProblem(path=name, value=value, message=rule)
            else:
                yield from _key_problems(field, name, value)

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """Return the valid form.

        Raises:
            InvalidArguments: a value is not valid; the caller can correct it.
        """
        # The datetimes and times of the object before the form changes it.
        moments = {
            column.name: getattr(instance, column.name)
            for column in (() if instance is None else instance._meta.concrete_fields)
            if isinstance(column, models.DateTimeField | models.TimeField)
        }
        form = self._form(call, instance)
        server = self._declaration.server
        limit_querysets(form.fields, call.written, server, ctx)
        if not form.is_valid():
            names = {*self._declaration.exposed.object_schema["properties"], *self.properties}
            problems = form_problems(form, dict(call.values), self.properties, names)
            raise InvalidArguments(remove_duplicates(problems))
        if instance is not None:
            keep_hidden_links(form.cleaned_data, instance, server, ctx)
        # Restore what the call does not write and the form truncated: inputs show no microseconds,
        # and those with a format of their own possibly no seconds.
        for name, moment in moments.items():
            field: Any = form.fields.get(name)
            if field is None or moment is None or name in call.written:
                continue
            value = form[name].initial if field.disabled else form[name].data
            # If the form itself has set a different time, keep that time.
            if form.cleaned_data.get(name) == field.clean(value):
                form.cleaned_data[name] = moment
                setattr(form.instance, name, moment)
        return form

    def _form(self, call: Any, instance: Any) -> forms.BaseModelForm[Any]:
        make: Any = self._form_class
        data = self._values(call)
        options: dict[str, Any] = {} if instance is None else {"instance": instance}
        if instance is not None and issubclass(self._form_class, WriteForm):
            options["only"] = call.written
        elif instance is not None:
            data |= self._current(make(instance=instance), call)
        form: forms.BaseModelForm[Any] = make(data=data, **options)
        return form

    def _values(self, call: Any) -> dict[str, Any]:
        """Return what the caller sent as form data, as the form's widgets expect it."""
        emptied = {
            # For a JSON field, "" is a value.
            name: None if isinstance(self._fields[name], forms.JSONField) else ""
            for name in call.clear
        }
        data = self.form_data({**call.values, **emptied}, prefix=self._form_class.prefix)
        for key, value in data.items():
            is_moment = hasattr(value, "utcoffset") and hasattr(value, "date")
            if is_moment and not settings.USE_TZ and timezone.is_aware(value):
                # The site has no time zones. Forms do not remove the offset.
                data[key] = timezone.make_naive(value, timezone.get_default_timezone())
        return data

    def _current(self, form: forms.BaseModelForm[Any], call: Any) -> dict[str, Any]:
        """Return the object's current values of the fields that were not sent, as form data."""
        data: dict[str, Any] = {}
        for name, field in form.fields.items():
            if name in call.written or field.disabled or not is_value_resent(field):
                continue
            value = field.prepare_value(form.get_initial_for_field(field, name))
            initial = "" if value is None else value
            data |= widget_entries(field.widget, form.add_prefix(name), initial)
        return data


def _form_class(declaration: Any) -> Any:
    if declaration.form is None:
        fields = writable_fields(declaration)
        return forms.modelform_factory(declaration.model, form=WriteForm, fields=fields)
    form = declaration.form
    is_fit = isinstance(form, type) and issubclass(form, forms.ModelForm)
    model = form._meta.model if is_fit else None
    if model is None or not issubclass(declaration.model, model):
        raise ImproperlyConfigured(
            f"{declaration}: form = {getattr(form, '__name__', form)!r}; name a ModelForm of "
            f"{declaration.model.__name__}."
        )
    if declaration.write_fields is not None:
        declaration.refuse("has a form and write_fields; the form defines what can be written.")
    return form


class WriteForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """Validates a new object, or an update of those fields of an object that are in ``only``.

    The form validates what Django's own model forms validate. An update has only some fields, so
    rules about several fields are checked with the current values of the other fields.
    """

    def __init__(self, *, only: Sequence[str] | None = None, **options: Any) -> None:
        if only is not None:
            # Values of other fields are not loaded: a many-to-many relation can have many rows.
            self._meta = copy(type(self)._meta)
            self._meta.fields = list(only)
        super().__init__(**options)
        if only is not None:
            for name in set(self.fields) - set(only):
                del self.fields[name]
        for field in self.fields.values():
            if isinstance(field, forms.DurationField):
                field.validators.append(_validate_duration)

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]
        if self.instance._state.adding or self.errors:
            return
        # ``super()`` has skipped constraints that include fields that were not sent.
        try:
            self.instance.validate_constraints()
        except ValidationError as exc:
            self._update_errors(exc)

    def validate_unique(self) -> None:
        """Validate uniqueness, also of combinations with fields that were not sent."""
        if self.instance._state.adding:
            super().validate_unique()
            return
        try:
            self.instance.validate_unique(exclude=set(self.errors))
        except ValidationError as exc:
            self._update_errors(exc)

    def save(self, commit: bool = True) -> Any:  # noqa: FBT001, FBT002 - Django's signature
        """Save the object; a new object never overwrites a row that now has the same key."""
        if not commit or self.errors or not self.instance._state.adding:
            return super().save(commit)
        self.instance.save(force_insert=True)
        self._save_m2m()
        return self.instance

    def _save_m2m(self) -> None:
        """Save the relations, also those whose managers wait until the object is saved."""
        super()._save_m2m()  # type: ignore[misc]
        fields = self.instance._meta.many_to_many
        if any(field.name in self.cleaned_data and has_own_manager(field) for field in fields):
            self.instance.save()

    def _update_errors(self, errors: ValidationError) -> None:
        """Add errors, also those that a model's ``clean`` raises for fields not in the form."""
        if hasattr(errors, "error_dict"):
            errors_by_name: dict[str, list[Any]] = {}
            for name, field_errors in errors.error_dict.items():
                if name in self.fields or name == NON_FIELD_ERRORS:
                    errors_by_name.setdefault(name, []).extend(field_errors)
                else:
                    elsewhere = [OtherFieldError(name, error) for error in field_errors]
                    errors_by_name.setdefault(NON_FIELD_ERRORS, []).extend(elsewhere)
            errors = ValidationError(errors_by_name)
        super()._update_errors(errors)  # type: ignore[misc]


def _validate_duration(value: dt.timedelta) -> None:
    """Raise ``ValidationError`` for a duration that some databases cannot store."""
    try:
        validate_duration(value)
    except ValueError as exc:
        raise ValidationError(str(exc)) from exc


# Keys of related rows -----------------------------------------------------------------------------

# A form accepts only keys of rows that the caller may see. If the related model is registered on
# the same server, its row rule (``get_queryset``) decides. The error for any other key is the same
# as for a key that does not exist.

MAX_KEYS = 1000
# The largest integer that database drivers accept.
MAX_INTEGER = 2**63 - 1


def limit_querysets(
    fields: Mapping[str, Any], names: Iterable[str], server: Any, ctx: Context
) -> None:
    """Limit the rows that form or serializer fields accept to those that the caller may see."""
    for field in _queryset_fields(fields[name] for name in names if name in fields):
        field.queryset = limit_to_visible(field.queryset.all(), server, ctx)


def _queryset_fields(fields: Iterable[Any]) -> Iterator[Any]:
    """Yield the fields that have a queryset, including those of nested serializers."""
    for field in fields:
        inner = getattr(field, "child_relation", None) or getattr(field, "child", None)
        if inner is not None:
            yield from _queryset_fields([inner])
        elif hasattr(field, "fields") and not isinstance(field, forms.Field):
            yield from _queryset_fields(field.fields.values())
        elif getattr(field, "queryset", None) is not None:
            yield field


def keep_hidden_links(
    values: MutableMapping[str, Any], instance: Model, server: Any, ctx: Context
) -> None:
    """Keep many-to-many links to rows that the caller cannot see.

    A list of keys replaces all links of an object, but the caller can name only visible rows.
    """
    for field in instance._meta.many_to_many:
        name = field.name
        if name not in values:
            continue
        linked: QuerySet[Any] = getattr(instance, name).all()
        if has_own_manager(field):
            keys = [row.pk for row in linked]
            linked = field.related_model._default_manager.filter(pk__in=keys)
        visible = apply_row_rules(server, linked.model, ctx, among=Q(pk__in=linked.values("pk")))
        if visible is not None:
            hidden = linked.exclude(pk__in=visible.using(linked.db).values("pk"))
            values[name] = [*values[name], *hidden]


def _key_problems(field: Any, name: str, value: Any) -> Iterator[ValidationProblem]:
    """Yield problems of keys that would cause database errors."""
    if not isinstance(field, forms.ModelMultipleChoiceField) or not isinstance(value, list):
        return
    if len(value) > MAX_KEYS:
        yield ValidationProblem(
            path=name, message=f"has {len(value)} keys; send at most {MAX_KEYS}"
        )
        return
    noun = related_noun(field)
    for index, key in enumerate(value):
        text = str(key).strip().lstrip("+-")
        # The length is checked first: Python refuses to convert very long numbers.
        if text.isdecimal() and (len(text) > 19 or int(text) > MAX_INTEGER):
            yield ValidationProblem(
                path=f"{name}[{index}]", value=key, message=f"this {noun} does not exist"
            )


# Fields that callers write, and required columns that they do not ---------------------------------

# The problem of fields that an HTML form cannot have either, or that Django sets itself.
_NOT_EDITABLE = "is not editable"


def writable_fields(declaration: Any) -> list[str]:
    """Return the names of the fields that callers may write: ``write_fields``, or exposed ones.

    Raises:
        ImproperlyConfigured: one of ``write_fields`` cannot be written through JSON, or there are
            no fields to write.
    """
    if declaration.write_fields is None:
        # ``customer_id`` in ``fields`` means ``customer``.
        columns = declaration.model._meta.concrete_fields
        names_by_attname = {column.attname: column.name for column in columns}
        names = [names_by_attname.get(path, path) for path in declaration.fields]
        names = [name for name in names if not _problem(declaration.model, name)]
    else:
        names = list(declaration.get_name_list("write_fields"))
        for name in names:
            problem = _problem(declaration.model, name)
            if problem:
                declaration.refuse(f"write_fields: {name!r} {problem}.")
    if not names:
        declaration.refuse("no field can be written; name fields of the model in write_fields.")
    return names


def _problem(model: type[Model], name: str) -> str:
    """Return why a field cannot be written, as the end of a sentence; empty if it can."""
    options = model._meta
    if "__" in name:
        return "belongs to another model; write_fields must be fields of the model itself"
    try:
        field: Any = options.get_field(name)
    except FieldDoesNotExist:
        names = [f.name for f in (*options.concrete_fields, *options.many_to_many)]
        hint = did_you_mean(name, names, f"choices: {', '.join(names)}")
        return f"is not a field of {options.label}; {hint}"
    is_many = isinstance(field, ManyToManyField)
    # Whether many-to-many fields are concrete depends on Django's version.
    if field.auto_created or not (field.concrete or is_many):
        return "is not a column of the model; write it on the related model"
    if isinstance(field, FileField):
        return (
            "is a file, which JSON cannot contain; leave it out, or accept its content in a field "
            "of your own form (form = …)"
        )
    if is_many and not field.remote_field.through._meta.auto_created:
        return "has its own intermediate model (through=…); expose that model, and write its rows"
    if not field.editable or getattr(field, "generated", False):
        return _NOT_EDITABLE
    if field.formfield() is None:
        return "has no form field; set a form that has one (form = …)"
    return ""


def check_required_columns(declaration: WriteHooks[Any], written: Iterable[str]) -> None:
    """Check that a ``create`` tool sets every column that the model requires.

    A generated form leaves out the required columns that callers do not write, so it does not check
    that they have a value. Therefore a class with such columns is rejected, unless
    ``perform_create`` is overridden and may set them: then the saved object is checked.

    Raises:
        ImproperlyConfigured: a required column is not set; the message says what to write.
    """
    is_made_here = not (declaration.form or declaration.serializer or declaration.inputs_class)
    has_hook = declaration.is_overridden("perform_create")
    if not is_made_here or has_hook:
        return
    missing = missing_columns(declaration.model, written)
    if not missing:
        return
    if any(isinstance(field, FileField) for field in missing):
        hint = "a file cannot be written (set a form that creates it, form = …)"
    elif not all(field.editable for field in missing):
        hint = "a field that is not editable cannot be written"
    else:
        hint = "add it to write_fields" if len(missing) == 1 else "add them to write_fields"
    names = ", ".join(repr(field.name) for field in missing)
    declaration.refuse(
        f"create does not set {names}, which {declaration.model.__name__} requires: {hint}, give "
        "the model a default, set the value in perform_create, or remove 'create' from tools."
    )


def possibly_missing_columns(declaration: WriteHooks[Any]) -> list[str]:
    """Return required columns that ``create`` does not set, if the model itself may set them.

    A model with its own ``save`` or ``clean`` may set them; if it does not, each call fails.
    """
    is_made_here = not (declaration.form or declaration.serializer or declaration.inputs_class)
    has_hook = declaration.is_overridden("perform_create")
    if not is_made_here or has_hook or not _has_custom_save(declaration.model):
        return []
    return [field.name for field in _unwritten(declaration.model, writable_fields(declaration))]


def missing_columns(model: type[Model], written: Iterable[str]) -> list[Field[Any, Any]]:
    """Return the required columns that are not written; none if the model may set them itself."""
    return [] if _has_custom_save(model) else list(_unwritten(model, written))


def missing_values_error(obj: Model, written: Iterable[str]) -> ValidationError | None:
    """Return a validation error for the required columns of an object that are empty, if any."""
    empty = {
        field.name: ValidationError("This field is required.", code="required")
        for field in _unwritten(type(obj), written)
        if getattr(obj, field.attname) in field.empty_values
    }
    return ValidationError(empty) if empty else None


def _unwritten(model: type[Model], written: Iterable[str]) -> Iterator[Field[Any, Any]]:
    """Yield the columns that must be set explicitly and are not among the written ones."""
    written_names = {*written}
    columns: Iterable[Any] = model._meta.concrete_fields
    for field in columns:
        if field.name in written_names:
            continue
        is_optional = (
            field.null
            or field.blank
            or field.auto_created
            or getattr(field, "generated", False)
            # Django sets these when it saves the object.
            or isinstance(field, OrderWrt)
            or getattr(field.remote_field, "parent_link", False)
            or field.has_default()
            or field.db_default is not NOT_PROVIDED
            # A custom field may set its own value in ``pre_save``.
            or not type(field).pre_save.__module__.startswith("django.")
        )
        if not is_optional:
            yield field


def _has_custom_save(model: type[Model]) -> bool:
    """Return whether the model overrides ``save`` or ``clean``, which may set missing values."""
    return model.save is not Model.save or model.clean is not Model.clean
