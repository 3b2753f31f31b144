"""Arguments that a Django form declares and validates."""

from datetime import date

import pytest
from django import forms
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy

from mcp_django.schema.django_forms import FormArguments
from mcp_django.schema.lint import lint
from tests.schema.samples import refusal
from tests.spec import spec


def sizes():
    raise AssertionError("computed choices are not asked for when a form is declared")


class Booking(forms.Form):
    name = forms.CharField(min_length=2, max_length=20, help_text="As on the <b>card</b>")
    guests = forms.IntegerField(min_value=1, max_value=9, label="Number of guests", initial=2)
    note = forms.CharField(required=False)
    locked = forms.CharField(disabled=True, initial="x")

    def clean_name(self):
        if self.cleaned_data["name"] == "nobody":
            raise forms.ValidationError("Somebody has to come.")
        return self.cleaned_data["name"]

    def clean(self):
        if self.cleaned_data.get("note") == "fail":
            raise forms.ValidationError("Nothing fits.")


def one_field(field):
    return type("OneForm", (forms.Form,), {"x": field})


def published(field):
    return FormArguments(one_field(field)).json_schema["properties"]["x"]


@spec("TOOL-2")
def test_a_form_becomes_a_plain_object_schema():
    schema = FormArguments(Booking).json_schema
    assert schema == {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "minLength": 2,
                "maxLength": 20,
                "description": "As on the card",
            },
            "guests": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "default": 2,
                "description": "Number of guests",
            },
            "note": {"type": "string"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert lint(schema) == []


def test_the_function_receives_the_valid_form():
    form = FormArguments(Booking).parse(b'{"name": "Ada"}')["form"]
    assert isinstance(form, Booking)
    assert form.cleaned_data == {"name": "Ada", "guests": 2, "note": "", "locked": "x"}


def test_null_for_an_optional_argument_means_that_it_was_left_out():
    form = FormArguments(Booking).parse(b'{"name": "Ada", "guests": null, "note": null}')["form"]
    assert form.cleaned_data["guests"] == 2


@spec("TOOL-8")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{}", "name: is required"),
        (b'{"name": null}', "name: is required (got null)"),
        (b'{"name": ""}', 'name: is required (got "")'),
        (b'{"name": ["a"]}', 'name: must be a string (got ["a"])'),
        (b'{"name": true}', "name: must be a string (got true)"),
        (b'{"name": "nobody"}', 'name: Somebody has to come (got "nobody")'),
        (
            b'{"name": "Ada", "guests": 10}',
            "guests: Ensure this value is less than or equal to 9 (got 10)",
        ),
        (b'{"name": "Ada", "note": "fail"}', "Nothing fits"),
        (
            b'{"name": "Ada", "nam": 1}',
            'unknown argument "nam"; known: name, guests, note; did you mean "name"?',
        ),
        (
            b'{"name": "Ada", "locked": "y"}',
            'unknown argument "locked"; known: name, guests, note',
        ),
    ],
)
def test_a_refusal_names_field_rule_and_value(raw, text):
    assert refusal(FormArguments(Booking), raw) == text


def test_a_secret_is_marked():
    assert published(forms.CharField(widget=forms.PasswordInput)) == {
        "type": "string",
        "writeOnly": True,
    }


def test_computed_choices_are_not_asked_for():
    assert published(forms.ChoiceField(choices=sizes)) == {"type": "string"}


@pytest.mark.parametrize(
    ("initial", "default"),
    [("a", {"default": "a"}), (date(2026, 1, 1), {"default": "2026-01-01"}), (object(), {})],
)
def test_an_initial_value_is_the_default(initial, default):
    schema = FormArguments(one_field(forms.CharField(initial=initial))).json_schema
    assert schema["properties"]["x"] == {"type": "string", **default}
    assert "required" not in schema


def test_an_initial_value_may_be_computed():
    arguments = FormArguments(one_field(forms.CharField(initial=lambda: "now")))
    assert arguments.json_schema["properties"]["x"] == {"type": "string"}
    assert arguments.parse(b"{}")["form"].cleaned_data == {"x": "now"}


def test_a_label_says_more_than_the_name_or_nothing():
    assert published(forms.CharField(label="X")) == {"type": "string"}
    field = forms.CharField(label=gettext_lazy("The tenth"), help_text="Roman.")
    assert published(field) == {"type": "string", "description": "The tenth. Roman."}


@pytest.mark.parametrize(
    "field", [forms.FileField(), forms.ImageField(), forms.MultiValueField([])]
)
def test_a_field_that_json_cannot_fill_is_refused(field):
    with pytest.raises(ImproperlyConfigured, match=r"OneForm.x: A .* cannot be filled from JSON"):
        FormArguments(one_field(field))


class Personal(forms.Form):
    def __init__(self, user, data=None):
        super().__init__(data)


def test_a_form_that_needs_more_than_data_is_refused():
    with pytest.raises(ImproperlyConfigured, match="Personal cannot be created from data alone"):
        FormArguments(Personal)


class Prefixed(forms.Form):
    prefix = "p"
    name = forms.CharField()


def test_a_prefix_is_no_part_of_the_names():
    assert FormArguments(Prefixed).parse(b'{"name": "a"}')["form"].cleaned_data == {"name": "a"}


# --- rows


class Membership(forms.Form):
    group = forms.ModelChoiceField(Group.objects.all())
    others = forms.ModelMultipleChoiceField(Group.objects.all(), required=False)
    by_name = forms.ModelChoiceField(Group.objects.all(), to_field_name="name", required=False)


class GroupForm(forms.ModelForm):
    class Meta:
        model = Group
        fields = ["name"]


def test_a_choice_among_rows_is_described_by_the_key_without_asking_the_database():
    assert FormArguments(Membership).json_schema["properties"] == {
        "group": {"type": "integer"},
        "others": {"type": "array", "items": {"type": "integer"}},
        "by_name": {"type": "string"},
    }


@pytest.mark.django_db
def test_rows_are_found_by_their_key():
    first, second = Group.objects.create(name="one"), Group.objects.create(name="two")
    raw = f'{{"group": {first.pk}, "others": [{second.pk}], "by_name": "two"}}'.encode()
    data = FormArguments(Membership).parse(raw)["form"].cleaned_data
    assert (data["group"], list(data["others"]), data["by_name"]) == (first, [second], second)
    assert refusal(FormArguments(Membership), b'{"group": 0}') == (
        "group: Select a valid choice. That choice is not one of the available choices (got 0)"
    )


@pytest.mark.django_db
def test_a_model_form_can_be_saved():
    arguments = FormArguments(GroupForm)
    assert arguments.json_schema["properties"] == {"name": {"type": "string", "maxLength": 150}}
    assert arguments.parse(b'{"name": "staff"}')["form"].save() == Group.objects.get()
    assert refusal(FormArguments(GroupForm), b'{"name": "staff"}') == (
        'name: Group with this Name already exists (got "staff")'
    )


def test_keys_of_every_kind():
    class Kinds(forms.Form):
        user = forms.ModelChoiceField(User.objects.all())
        permission = forms.ModelChoiceField(Permission.objects.all(), to_field_name="content_type")

    assert FormArguments(Kinds).json_schema["properties"] == {
        "user": {"type": "integer"},
        "permission": {"type": "integer"},
    }
