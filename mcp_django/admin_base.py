"""Base classes of this package's ``ModelAdmin`` classes, for the core app and the OAuth app.

They derive from the class that ``MCP_DJANGO["ADMIN_BASE_CLASS"]`` names, so that the theme of a
site applies to the pages of this package too. Where that setting is wrong they derive from
Django's ``ModelAdmin``, and a system check reports it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote, unquote
from django.contrib.auth import get_permission_codename, get_user_model
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _, gettext_lazy

from mcp_django.conf import get_settings


def import_base_class() -> type[Any]:
    """The class that ``ADMIN_BASE_CLASS`` names.

    Raises:
        ImproperlyConfigured: it cannot be imported, or is not a subclass of ``ModelAdmin``.
    """
    name = get_settings().admin_base_class
    named = f"MCP_DJANGO['ADMIN_BASE_CLASS'] names {name!r}"
    try:
        found = import_string(name)
    except ImportError as exc:
        raise ImproperlyConfigured(f"{named}, and {exc}.") from exc
    if not (isinstance(found, type) and issubclass(found, admin.ModelAdmin)):
        raise ImproperlyConfigured(f"{named}, which is not a subclass of ModelAdmin.")
    return found


if TYPE_CHECKING:
    _Themed = admin.ModelAdmin[Any]
else:
    # A theme brings a class of its own, which its templates and widgets come with. Where the
    # settings are wrong a check says so, and this module must not fail before it.
    _Themed = admin.ModelAdmin
    with suppress(ImproperlyConfigured):
        _Themed = import_base_class()


class Base(_Themed):
    """A class of the site's admin to which nothing that stands in an address is an error."""

    linked_lookups: ClassVar[tuple[str, ...]] = ()
    """What pages of ours ask the list for beside its filters."""

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Whether the list may be asked so: by its filters, its dates and our own links alone.

        Django lets every column be asked for, and a yes or no to enough questions says what is in
        one that is not shown.
        """
        filters = [one for one in self.list_filter if isinstance(one, str)]
        known = (*filters, *filter(None, [self.date_hierarchy]))
        return (
            lookup in self.linked_lookups
            or lookup.partition("__")[0] in known
            or any(lookup == getattr(one, "parameter_name", None) for one in self.list_filter)
        )

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Nothing: no link of ours fills in a form, and Django takes any value for a good one."""
        return {}

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """The history of a row; the permission is checked before the row is looked up.

        Django looks it up first: a redirect or a 403 then tells any staff user which keys exist.

        Raises:
            PermissionDenied: the user may not view such rows, whether the row exists or not.
        """
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        return super().history_view(request, object_id, extra_context)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """The row of this key, or ``None``; no key has a NUL, and PostgreSQL knows none."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list as it was asked for.

        Raises:
            IncorrectLookupParameters: nothing can be asked for so; Django then shows the whole.
        """
        for values in request.GET.lists():
            if "\0" in "".join((values[0], *values[1])):
                raise IncorrectLookupParameters("A NUL is in no row.")
        key = self.model._meta.pk
        for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                key.run_validators(key.to_python(chosen))
            except ValidationError:
                raise IncorrectLookupParameters(f"No row has the key {chosen!r}.") from None
            if "\0" in chosen:
                raise IncorrectLookupParameters("A NUL is in no key.")
        try:
            return super().get_changelist_instance(request)
        except OverflowError:  # a year of its dates, which Django takes for one
            raise IncorrectLookupParameters("No database has such a number.") from None


REFUSED = gettext_lazy("Name a user who may do nothing that you may not do yourself.")


def may_give_access(by: Any, user: Any) -> bool:
    """Whether somebody may let others act as a user: by a token, an identity or a client.

    Nobody gives away what he himself may not do. So the user has no permission that he lacks, is in
    no group that he is not in, since components can be for groups, and is a superuser only if he is
    one. What an inactive user may do is not known, so only a superuser prepares that.
    """
    if by.is_superuser or by.pk == user.pk:
        return True
    if user.is_superuser or not user.is_active:
        return False
    return user.get_all_permissions() <= by.get_all_permissions() and _groups(user) <= _groups(by)


def _groups(user: Any) -> set[Any]:
    # A user model may do without.
    return set(user.groups.values_list("pk", flat=True)) if hasattr(user, "groups") else set()


class ActingAdmin(Base):
    """Rows by which somebody else acts as a user, whom the field ``acts_as`` names.

    They are written by whoever may give access to that user, and to the one who was there before.
    """

    acts_as: ClassVar[str]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may change such rows, and may give access to the user of this one."""
        user = getattr(obj, self.acts_as, None)
        return super().has_change_permission(request, obj) and (
            user is None or may_give_access(request.user, user)
        )

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The form, with the requesting user, and without the names of users it may not view.

        Django renders the name of a user next to any submitted key, and has another message for an
        unknown key. Counting up would list all user names and who has more permissions.
        """
        base = super().get_form(request, obj, *args, **kwargs)
        known = {"by": request.user, "acts_as": self.acts_as}
        made: Any = type(base.__name__, (_ActingForm, base), known)
        field = made.base_fields.get(self.acts_as)
        if field is not None:
            field.error_messages["invalid_choice"] = REFUSED
            if not _may_view_users(request.user):
                _hide_other_labels(field.widget, getattr(obj, f"{self.acts_as}_id", None))
        return made


def _may_view_users(by: Any) -> bool:
    options = get_user_model()._meta
    codenames = (get_permission_codename(verb, options) for verb in ("view", "change"))
    return any(by.has_perm(f"{options.app_label}.{one}") for one in codenames)


def _hide_other_labels(widget: Any, known: Any) -> None:
    """Render no label next to a raw id other than ``known``."""
    named = getattr(widget, "label_and_url_for_value", None)
    if named is not None:
        widget.label_and_url_for_value = lambda value: (
            named(value) if str(value) == str(known) else ("", "")
        )


class _ActingForm:
    """Refuses a user whom those who fill the form in may not give access to."""

    by: Any
    acts_as: str

    def clean(self) -> Any:
        cleaned = super().clean()  # type: ignore[misc]  # that of a model's form
        user = self.cleaned_data.get(self.acts_as)  # type: ignore[attr-defined]
        if user is not None and not may_give_access(self.by, user):
            self.add_error(self.acts_as, REFUSED)  # type: ignore[attr-defined]
        return cleaned


class ReadOnlyAdmin(Base):
    """Rows that are written by the package alone, to be looked at."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody writes them by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nor changes them."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nor takes one away."""
        return False


# Rows that are ended, never deleted ---------------------------------------------------------------


class EndingAdmin(Base):
    """A list whose rows can be ended by whoever may delete them.

    The package writes these rows, and the admin ends them. Django's own deletion is switched off,
    since it would not end what is still open in other processes.

    A class below it says with ``word`` what that is called, and does it in ``end``.
    """

    change_form_template = "admin/mcp_django/ending_change_form.html"
    word: ClassVar[str]
    """As it is in the address: ``revoke``."""
    word_label: ClassVar[Any]
    question: ClassVar[Any]
    """What somebody is asked who is about to do it."""
    done: ClassVar[Any]
    """What the history says afterwards."""

    @abstractmethod
    def end(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        """End these, in every process."""

    @abstractmethod
    def is_over(self, row: Any) -> bool:
        """Whether there is nothing left to end."""

    def end_and_log(self, request: HttpRequest, rows: Sequence[Any]) -> int:
        """End those that are not over, with a line in the history of each; how many there were."""
        live = [row for row in rows if not self.is_over(row)]
        if live:
            user: Any = request.user
            LogEntry.objects.log_actions(user.pk, live, CHANGE, str(self.done))
            self.end(request, live)
        return len(live)

    # Who may ----------------------------------------------------------------------------------

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody edits what somebody was given."""
        return False

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Whoever may delete them may end them."""
        return self.has_view_permission(request) and self.has_delete_permission(request)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Without Django's own deletion, which tells nobody."""
        # Django 6.1 says where they are to be offered, and takes the omission for an old signature.
        where = {} if action_location is None else {"action_location": action_location}
        actions: dict[str, Any] = super().get_actions(request, **where)
        actions.pop("delete_selected", None)
        return actions

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Nobody deletes one by itself; it goes with its user, and with its age."""
        raise PermissionDenied

    # Pages ------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        """With the page that asks."""
        view = self.admin_site.admin_view(self.end_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_{self.word}"
        return [path(f"<path:object_id>/{self.word}/", view, name=name), *super().get_urls()]

    def _address(self, page: str, *args: Any) -> str:
        name = f"{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(f"{self.admin_site.name}:{name}", args=args)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The row, with the button that leads to the question."""
        row = self.get_object(request, unquote(object_id))
        extra = {"show_delete": False, **(extra_context or {})}
        if row is not None and self.has_end_permission(request) and not self.is_over(row):
            url = self._address(self.word, quote(row.pk))
            extra |= {"end_url": url, "end_label": self.word_label}
        return super().change_view(request, object_id, form_url, extra)

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Ask, and end it once that was answered with a POST."""
        if not self.has_end_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            self.message_user(request, _("It is not there any more."), messages.WARNING)
            return HttpResponseRedirect(self._address("changelist"))
        if request.method == "POST":
            if self.end_and_log(request, [row]):
                self.message_user(request, self.done, messages.SUCCESS)
            return HttpResponseRedirect(self._address("change", quote(row.pk)))
        context = {
            **self.admin_site.each_context(request),
            "title": self.word_label,
            "opts": self.opts,
            "object": row,
            "question": self.question,
            "word": self.word_label,
            "is_over": self.is_over(row),
        }
        return TemplateResponse(request, "admin/mcp_django/end_confirmation.html", context)
