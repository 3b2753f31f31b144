"""The arguments of a prompt as a table of inputs, which needs no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from mcp_django.overrides.prompt_language import PromptError
from mcp_django.overrides.texts import MAX_ARGUMENTS, arguments_of

BLANK_ROWS = 3
_COLUMNS = ("name", "description", "required", "choices")

Row = dict[str, Any]


class ArgumentsWidget(forms.Widget):
    """A row for each argument, and some more to fill in."""

    template = "admin/mcp_django/prompt_arguments.html"

    def render(
        self, name: str, value: Any, attrs: Mapping[str, Any] | None = None, renderer: Any = None
    ) -> SafeString:
        """The table; rows without a name are arguments that are not there."""
        rows = [*_shown(value), *[dict.fromkeys(_COLUMNS, "") for _row in range(BLANK_ROWS)]]
        rows = rows[:MAX_ARGUMENTS]
        prefix = (attrs or {}).get("id", f"id_{name}")
        described = (attrs or {}).get("aria-describedby", "")
        context = {"rows": rows, "name": name, "prefix": prefix, "described": described}
        # Of the site's own templates, as the rest of the page: forms may be rendered by others.
        return render_to_string(self.template, context)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[Row]:
        """The rows that have a name, in their order."""
        return [row for row in _sent(data, name) if row["name"]]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """No row at all is what a form without arguments sends."""
        return False

    def id_for_label(self, id_: str) -> str:
        """The table is labelled as a whole."""
        return ""


def _shown(value: Any) -> Iterator[Row]:
    """What was kept, or sent and refused, as texts for inputs."""
    for one in value if isinstance(value, list) else ():
        if isinstance(one, Mapping):
            choices = one.get("choices") or ()
            lines = choices if isinstance(choices, list) else ()
            yield {**one, "choices": "\n".join(map(str, lines))}


def _sent(data: Any, name: str) -> Iterator[Row]:
    for index in range(MAX_ARGUMENTS):
        key = f"{name}-{index}"
        lines = (data.get(f"{key}-choices") or "").splitlines()
        yield {
            "name": (data.get(f"{key}-name") or "").strip(),
            "description": (data.get(f"{key}-description") or "").strip(),
            "required": bool(data.get(f"{key}-required")),
            "choices": [line.strip() for line in lines if line.strip()],
        }


class ArgumentsField(forms.Field):
    """Arguments as the row keeps them."""

    widget = ArgumentsWidget

    def __init__(self) -> None:
        super().__init__(
            required=False,
            label=_("Arguments"),
            help_text=_(
                "Empty a name to take its argument away. Save and continue editing for more rows."
            ),
        )

    def to_python(self, value: Any) -> list[Row]:
        """The arguments, as they are kept.

        Raises:
            ValidationError: one of them is none, or there are two of one name.
        """
        try:
            return [one.as_json() for one in arguments_of(value or [])]
        except PromptError as exc:
            raise ValidationError(str(exc)) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether they are others than before."""
        return bool(list(initial or []) != list(data or []))
