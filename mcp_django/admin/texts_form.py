"""The form of a prompt or a skill: nobody's work is lost, and nothing of code's is hidden."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.meanwhile import MeanwhileForm
from mcp_django.admin.narrowing_fields import ScopesField
from mcp_django.admin.texts_kinds import Kind
from mcp_django.server import all_servers


class TextForm(MeanwhileForm):
    """What is written here; ``based_on`` is the version that its author has before him."""

    kind: ClassVar[Kind]
    lines: ClassVar[tuple[str, ...]] = ("text",)
    """The fields that are kept with the line ends of their kind, whatever a browser sends."""

    server = forms.ChoiceField(label=_("Server"))
    scopes = ScopesField(
        label=_("Scopes"), help_text=_("What an OAuth token needs; with spaces in between.")
    )
    based_on = forms.IntegerField(widget=forms.HiddenInput, initial=0, required=False)

    def __init__(self, *args: Any, is_draft: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_kept = not is_draft
        if "server" in self.fields:
            names = [one.name for one in all_servers()]
            self.fields["server"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        for name in ("groups", "permissions"):
            self.fields[name].offer(getattr(self.instance, name))  # type: ignore[attr-defined]
        self.fields["based_on"].initial = self.instance.version

    def clean(self) -> dict[str, Any]:
        """See that nobody was faster, and that code has nothing of this name."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for field in self.lines:
            if field in cleaned:
                cleaned[field] = str(cleaned[field]).replace("\r\n", "\n")
        self.clean_together(cleaned)
        server, name = cleaned.get("server"), cleaned.get("name")
        if server and name and self.kind.is_taken(server, name):
            self.add_error("name", self.kind.name_is_taken % {"name": name, "server": server})
        if self.instance.pk is not None and self.is_kept:
            self._check_version(cleaned)
        return cleaned

    def clean_together(self, cleaned: dict[str, Any]) -> None:
        """See that the fields go together, beyond what ``check`` of the kind sees."""

    def _check_version(self, cleaned: dict[str, Any]) -> None:
        newest = self.kind.versions.newest_version(self.instance.pk)
        if newest is None or cleaned.get("based_on") == newest:
            return
        # Whoever saves once more has read this.
        self.data = self.data.copy()  # type: ignore[attr-defined]
        self.data[self.add_prefix("based_on")] = str(newest)  # type: ignore[index]
        self.add_error(None, self.kind.changed_meanwhile % {"newest": newest})

    def _post_clean(self) -> None:
        """The instance as it would be kept, tried out as a whole."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors:
            return
        try:
            self.kind.versions.check(self.instance)
        except self.kind.error as exc:
            field = getattr(exc, "field", "")
            if field in self.fields:
                self.add_error(field, str(exc))
            else:
                self.add_error(None, self.kind.not_offered % {"why": exc})
