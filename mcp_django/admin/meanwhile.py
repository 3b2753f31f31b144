"""Forms that give nobody back what somebody else took away while they were open.

A form sends every field, also those that its user never touched. One that was opened before a tool
was switched off would switch it on again.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from django import forms
from django.utils.translation import gettext as _

# What says who may do what; a model has some of these columns.
COLUMNS = ("is_enabled", "groups", "permissions", "scopes", "rate", "approval", "options")

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Any]
else:
    # Generic in the stubs only.
    ModelForm = forms.ModelForm


class MeanwhileForm(ModelForm):
    """A form that is refused once when its row was narrowed otherwise since it was opened.

    ``meanwhile`` is not among the fieldsets: the templates of the forms put it at their top.
    """

    is_kept = True
    """Whether what it says is to be saved, and not only looked at."""

    meanwhile = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._now = mark_of(self.instance)
        self.fields["meanwhile"].initial = self._now

    def clean(self) -> Any:
        """See that nobody was faster."""
        cleaned = super().clean() or self.cleaned_data
        seen = cleaned.get("meanwhile")
        if self.is_kept and self.instance.pk is not None and seen and seen != self._now:
            # Whoever saves once more has read this.
            self.data = self.data.copy()  # type: ignore[attr-defined]
            self.data[self.add_prefix("meanwhile")] = self._now  # type: ignore[index]
            message = _(
                "Somebody else has changed meanwhile who may use this, and nothing of yours was "
                "saved. Look at it in another tab, and take over what you need. If you save again, "
                "yours replaces it."
            )
            self.add_error(None, message)
        return cleaned


def mark_of(row: Any) -> str:
    """What a row says of who may do what, as a text to compare."""
    said = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
    return sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
