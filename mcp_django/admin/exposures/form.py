"""What the forms of both kinds of exposures share: they are tried before they are kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.exposures.preview import Preview, preview_of
from mcp_django.admin.meanwhile import MeanwhileForm
from mcp_django.admin.narrowing_fields import (
    GroupsField,
    NamesField,
    PermissionsField,
    ScopesField,
)
from mcp_django.admin.servers import server_of
from mcp_django.models import Exposure
from mcp_django.overrides.exposures import build
from mcp_django.overrides.override_values import ExposureSpec, read_exposures, spec_of

PREVIEW = "_preview"
"""The name of the button that shows what would be, and keeps nothing."""


class ExposureForm(MeanwhileForm):
    """Who may use it, and whether it is offered; ``choice`` is the server and target of a new one.

    ``show`` takes the preview where one is asked for. The form is then never valid, so whoever made
    it shows it again and keeps nothing.
    """

    groups = GroupsField(
        label=_("Groups"), help_text=_("Only who is in one of them, beside all else that is asked.")
    )
    permissions = PermissionsField(
        label=_("Permissions"),
        help_text=_("Only who holds all of them, beside all else that is asked."),
    )
    scopes = ScopesField(help_text=_("What a token needs; with spaces in between."))

    user: Any = None
    choice: ClassVar[Mapping[str, str]] = {}
    show: ClassVar[Callable[[Preview], None] | None] = None
    places: ClassVar[Mapping[str, str]] = {}
    """The field of the form where a mistake in an option is shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in self.choice.items():
            setattr(self.instance, name, value)
        for name, field in self.fields.items():
            field.label = capfirst(field.label)
            if isinstance(field, NamesField):
                field.offer(getattr(self.instance, name))
        self.instance.kind = self.kind

    kind: ClassVar[str] = ""

    def is_valid(self) -> bool:
        """Whether it may be kept, which a preview never is."""
        is_valid = super().is_valid()
        if type(self).show is None:
            return is_valid
        if is_valid:
            type(self).show(self.preview())  # type: ignore[misc]  # it was just seen
        return False

    def preview(self) -> Preview:
        """What clients would be shown, and the user of the form."""
        return preview_of(self.spec(), self.user)

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What the form says, as the row keeps it.

        Raises:
            ImproperlyConfigured: it cannot be meant.
        """

    def spec(self) -> ExposureSpec:
        """What the row would say."""
        values = {name: self.cleaned_data.get(name) or [] for name in ("groups", "permissions")}
        return spec_of(
            Exposure(
                pk=self.instance.pk,
                kind=self.kind,
                server=self.instance.server,
                target=self.instance.target,
                name=self.cleaned_data.get("name") or "",
                options=self.options(),
                scopes=self.cleaned_data.get("scopes") or [],
                **values,
            )
        )

    def clean(self) -> dict[str, Any]:
        """Refuse what could not be offered, in the words of the class that code would use."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        self.check_rights()
        if self.errors:
            return cleaned
        spec = self.spec()
        for problem in problems_of(spec):
            self.add_error(self._place(problem), problem)
        if not self.errors:
            self.instance.options = self.options()
        return cleaned

    def check_rights(self) -> None:
        """Refuse what the user himself has no right to."""

    def _place(self, problem: str) -> str | None:
        word = problem.split(maxsplit=1)[0].rstrip(":=")
        found = self.places.get(word.partition("=")[0])
        return found if found in self.fields else None


def problems_of(spec: ExposureSpec) -> list[str]:
    """Why a row could not be offered beside those that are there, without the words around it."""
    others = [one for one in read_exposures().get(spec.server, ()) if one.pk != spec.pk]
    found = build(server_of(spec.server), spec.server, [*others, spec]).wrong_with(spec)
    before = f"exposure of {spec.target}: "
    # The form knows what it is about, and nobody wrote a call there.
    call = f"register_view({spec.target!r}): "
    return [one.reason.removeprefix(before).removeprefix(call) for one in found]
