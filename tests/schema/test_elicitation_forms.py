"""Forms from Django's forms and from schemas written by hand, and what their answers become."""

from __future__ import annotations

from typing import Any

import pytest
from django import forms
from django.contrib.auth.models import Group
from django.test import override_settings
from django.utils import translation
from django.utils.translation import gettext_lazy
from typing_extensions import TypedDict

from mcp_django.schema.elicitation import build_elicitation_form
from tests.schema.elicited import problem, read, refusal, schema_of
from tests.spec import spec

# Django forms ---------------------------------------------------------------------------------


def shades() -> list[tuple[str, str]]:
    return [(group.name, group.name.title()) for group in Group.objects.all()]


class NoteForm(forms.Form):
    subject = forms.CharField(max_length=60, help_text="In a few words", initial="Hello")
    urgency = forms.ChoiceField(
        choices=[("low", gettext_lazy("No")), ("high", gettext_lazy("Yes"))], help_text="How soon"
    )
    channels = forms.MultipleChoiceField(
        choices=[("mail", "Mail"), ("Others", [("sms", "Text message")])], required=False
    )
    until = forms.DateField(required=False)
    copies = forms.IntegerField(min_value=0, max_value=3, initial=1)
    loud = forms.BooleanField(required=False, label="Read aloud")

    def clean(self) -> dict[str, Any]:
        if self.cleaned_data.get("loud") and self.cleaned_data.get("copies"):
            raise forms.ValidationError("Either read it aloud or print it.")
        return super().clean() or {}


class GroupForm(forms.Form):
    group = forms.ModelChoiceField(Group.objects.all())


class ShadeForm(forms.Form):
    shade = forms.ChoiceField(choices=shades)


@spec("ASK-11")
def test_a_django_form_is_shown_with_its_labels():
    assert schema_of(NoteForm) == {
        "type": "object",
        "properties": {
            "subject": {
                "type": "string",
                "maxLength": 60,
                "description": "In a few words",
                "default": "Hello",
            },
            "urgency": {
                "type": "string",
                "description": "How soon",
                "oneOf": [
                    {"const": "low", "title": "No"},
                    {"const": "high", "title": "Yes"},
                ],
            },
            "channels": {
                "type": "array",
                "items": {
                    "anyOf": [
                        {"const": "mail", "title": "Mail"},
                        {"const": "sms", "title": "Text message"},
                    ]
                },
            },
            "until": {"type": "string", "format": "date"},
            "copies": {"type": "integer", "minimum": 0, "maximum": 3, "default": 1},
            "loud": {"type": "boolean", "description": "Read aloud"},
        },
        "required": ["urgency"],
    }


@spec("ASK-14")
def test_a_django_form_comes_back_valid():
    form = read(NoteForm, {"urgency": "high", "channels": ["sms"], "more": 1})
    assert form.cleaned_data == {
        "subject": "Hello",
        "urgency": "high",
        "channels": ["sms"],
        "until": None,
        "copies": 1,
        "loud": False,
    }
    assert problem(NoteForm, {"urgency": "never", "until": "soon"}).splitlines() == [
        'urgency: Select a valid choice. never is not one of the available choices (got "never")',
        'until: Enter a valid date (got "soon")',
    ]
    assert problem(NoteForm, {"urgency": "low", "loud": True}) == (
        "Either read it aloud or print it"
    )


class RemarkForm(forms.Form):
    plain = forms.CharField(required=False)
    greeting = forms.CharField(required=False, initial="Hello")
    mail = forms.EmailField(required=False)
    day = forms.DateField(required=False)
    number = forms.IntegerField(required=False)


@spec("ASK-11", "ASK-14")
def test_optional_text_of_a_django_form_may_be_left_empty():
    properties = schema_of(RemarkForm)["properties"]
    assert properties["plain"] == {"type": "string", "default": ""}
    assert "default" not in properties["mail"]
    left_out = {"plain": "", "greeting": "Hello", "mail": "", "day": None, "number": None}
    texts = {"plain": "", "mail": "", "day": ""}
    for answer in ({}, texts, dict.fromkeys(left_out)):
        assert read(RemarkForm, answer).cleaned_data == left_out
    assert read(RemarkForm, {"greeting": ""}).cleaned_data["greeting"] == ""


@pytest.mark.django_db
def test_a_row_is_chosen_by_its_key():
    group = Group.objects.create(name="a")
    assert schema_of(GroupForm)["properties"]["group"] == {"type": "integer"}
    assert read(GroupForm, {"group": group.pk}).cleaned_data == {"group": group}
    assert "Select a valid choice" in problem(GroupForm, {"group": group.pk + 1})
    assert build_elicitation_form(GroupForm).uses_database
    assert not build_elicitation_form(str).uses_database


async def test_choices_that_are_computed_are_not_computed_for_the_form():
    assert schema_of(ShadeForm)["properties"]["shade"] == {"type": "string"}


@override_settings(USE_I18N=True, LANGUAGE_CODE="en")
def test_a_form_is_shown_in_the_language_of_its_reader():
    for language, no in (("en", "No"), ("de", "Nein"), ("fr", "Non"), ("de", "Nein")):
        with translation.override(language):
            assert schema_of(NoteForm)["properties"]["urgency"]["oneOf"][0]["title"] == no


@spec("ASK-11", "ASK-15")
@pytest.mark.parametrize(
    ("field", "text"),
    [
        (forms.FileField(), "cannot be filled from JSON"),
        (forms.JSONField(), "x is not text, a number"),
        (forms.ModelMultipleChoiceField(Group.objects.all()), "x is a list, but not of choices"),
        (
            forms.TypedChoiceField(choices=[(1, "One")], coerce=int),
            "x is a choice whose values are",
        ),
        (forms.CharField(widget=forms.PasswordInput), "x looks like a secret"),
    ],
)
def test_fields_without_a_place_in_a_form_are_refused(field, text):
    assert text in refusal(type("OddForm", (forms.Form,), {"x": field}))


# By hand --------------------------------------------------------------------------------------

BY_HAND = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "channel": {"type": "array", "items": {"type": "string", "enum": ["mail", "sms"]}},
    },
    "required": ["name"],
}


@spec("ASK-11")
def test_a_form_written_by_hand_is_shown_as_it_is():
    assert schema_of(BY_HAND) == BY_HAND


@spec("ASK-14")
def test_its_answer_is_a_dict_of_what_was_asked():
    content = {"name": "ada", "channel": ["sms"]}
    assert read(BY_HAND, {**content, "admin": True}) == content
    assert problem(BY_HAND, {}) == "name: is required"


@spec("ASK-14")
def test_its_answer_is_checked(engine):
    assert problem(BY_HAND, {"name": "a"}) == 'name: must have at least 2 characters (got "a")'
    assert "must be one of" in problem(BY_HAND, {"name": "ada", "channel": ["post"]})


@spec("ASK-11")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "a form must be an object with named fields and no others"),
        ({"type": "object"}, 'a form must have "properties"'),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "a is not text, a number"),
        ({"type": "object", "properties": {"a": True}}, "a is not text, a number"),
        ({"type": "object", "properties": {"api_key": {"type": "string"}}}, "looks like a secret"),
    ],
)
def test_a_form_written_by_hand_is_refused_where_no_host_could_show_it(schema, text):
    message = refusal(schema)
    assert message.startswith("The form's schema is not valid: ")
    assert text in message


@spec("ASK-14")
@pytest.mark.usefixtures("engine")
def test_null_in_an_optional_field_of_a_schema_by_hand_leaves_it_out():
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"a": text, "b": text}, "required": ["b"]}
    assert schema_of(schema) == schema
    assert read(schema, {"a": None, "b": "x"}) == {"b": "x"}
    assert read(schema, {"a": "", "b": "x"}) == {"a": "", "b": "x"}
    assert problem(schema, {"b": None}).startswith("b")


# Names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("due date", "due_date"),
        ("due-date", "due_date"),
        ("1st", "field_1st"),
        ("class", "class_"),
        ("größe", "gr_e"),
        ("a__b", "a_b"),
        ("?", "field_"),
    ],
)
def test_a_name_that_clients_change_is_warned_of_once(name, better, caplog):
    by_hand = {"type": "object", "properties": {name: {"type": "string"}}}
    typed = TypedDict(f"Odd{len(better)}{ord(name[0])}", {name: str})
    form = type("OddNames", (forms.Form,), {name: forms.CharField()})
    for declared in (by_hand, typed, form):
        caplog.clear()
        for _ in range(2):
            build_elicitation_form(declared)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert f"has the field {name!r}." in record.message
        assert f"Name the field {better!r}," in record.message
        # The form is built nevertheless.
        assert name in schema_of(declared)["properties"]


def test_a_name_that_clients_keep_is_not_warned_of(caplog):
    for name in ("due_date", "dueDate", "_a", "class_", "x1"):
        build_elicitation_form({"type": "object", "properties": {name: {"type": "string"}}})
    assert not caplog.records
