"""Base classes of this package's ``ModelAdmin`` classes, for the core app and the OAuth app.

They derive from the class that ``MCP_DJANGO["ADMIN_BASE_CLASS"]`` names, so that the theme of a
site applies to the pages of this package too. If that setting is wrong, they derive from Django's
``ModelAdmin``, and a system check reports it with the reason.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import model_format_dict, quote, unquote
from django.contrib.auth import get_permission_codename, get_user_model
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.db.models import DateTimeField, Model, QuerySet
from django.forms import ModelChoiceField
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.dateparse import parse_datetime
from django.utils.formats import localize, number_format
from django.utils.html import format_html, format_html_join
from django.utils.module_loading import import_string
from django.utils.text import capfirst
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _, gettext_lazy, override, pgettext

from mcp_django.conf import get_settings
from mcp_django.protocol.text import clip
from mcp_django.schema.secrets import is_secret_name
from mcp_django.tenants import (
    current_tenant,
    has_tenant_users,
    is_tenant_app,
    thread_context,
)


def import_base_class() -> type[Any]:
    """Return the class that ``ADMIN_BASE_CLASS`` names.

    Raises:
        ImproperlyConfigured: it cannot be imported, or is not a subclass of ``ModelAdmin``.
    """
    name = get_settings().admin_base_class
    setting = f"MCP_DJANGO['ADMIN_BASE_CLASS'] is {name!r}"
    try:
        base_class = import_string(name)
    except ImportError as exc:
        raise ImproperlyConfigured(f"{setting}, which cannot be imported: {exc}.") from exc
    if not (isinstance(base_class, type) and issubclass(base_class, admin.ModelAdmin)):
        raise ImproperlyConfigured(f"{setting}, which is not a subclass of ModelAdmin.")
    return base_class


theme_problem = ""
"""Why the class was not usable when the admin was imported, for the system check.

A circular import can make it unusable at that moment only.
"""

if TYPE_CHECKING:
    _Themed = admin.ModelAdmin[Any]
else:
    # A theme has its own ``ModelAdmin`` class for its templates and widgets. A system check reports
    # a wrong setting, so this module must not fail before it.
    _Themed = admin.ModelAdmin
    try:
        _Themed = import_base_class()
    except ImproperlyConfigured as exc:
        theme_problem = str(exc)


# Django rejects forms with more than 1000 fields (``DATA_UPLOAD_MAX_NUMBER_FIELDS``).
MAX_CONFIRMED = 900


class MCPModelAdmin(_Themed):
    """A ``ModelAdmin`` that never fails with a server error because of the URL or the query."""

    change_list_template = "admin/mcp_django/change_list.html"
    linked_lookups: ClassVar[tuple[str, ...]] = ()
    """The lookups that links of this package use in addition to the list filters."""

    @property
    def _has_tenant(self) -> bool:
        """Whether the rows of this model have the tenant that they belong to.

        A model of the site may have a field ``tenant`` too, with another meaning.
        """
        return self.model._meta.app_label == "mcp_django" and hasattr(self.model, "tenant")

    @property
    def _is_closed(self) -> bool:
        """Whether the pages are closed, because the rows refer to users of all tenants.

        The same primary key may be that of another user in the current tenant.
        """
        return (
            not self._has_tenant
            and has_tenant_users()
            and not is_tenant_app(self.model._meta.app_config.name)
        )

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may open the section."""
        return not self._is_closed and super().has_module_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may view the rows."""
        return not self._is_closed and super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may add rows."""
        return not self._is_closed and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change the rows."""
        return not self._is_closed and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may delete the rows."""
        return not self._is_closed and super().has_delete_permission(request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows; on a site with tenants, those of the current tenant."""
        rows = super().get_queryset(request)
        if thread_context() is None:
            return rows
        if self._has_tenant:
            return rows.filter(tenant=current_tenant())
        return rows.none() if self._is_closed else rows

    def page_path(self, route: str, view: Callable[..., Any], page: str) -> URLPattern:
        """Return the URL pattern of an additional page; its name follows Django's pattern."""

        def open_page(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if self._is_closed:
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return path(route, self.admin_site.admin_view(open_page), name=self._page_name(page))

    def page_url(self, page: str, *args: Any) -> str:
        """Return the URL of a page of this model, such as ``changelist``."""
        return reverse(f"{self.admin_site.name}:{self._page_name(page)}", args=args)

    def _page_name(self, page: str) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{page}"

    def render_page(
        self, request: HttpRequest, template: str, title: Any, **context: Any
    ) -> TemplateResponse:
        """Return an additional page, with the context that all admin pages have."""
        page = {**self.admin_site.each_context(request), "title": title, "opts": self.opts}
        return TemplateResponse(request, f"admin/mcp_django/{template}.html", {**page, **context})

    def confirm_action(
        self,
        request: HttpRequest,
        action: str,
        rows: Sequence[Any],
        *,
        question: Any,
        shown: Iterable[Any] | None = None,
        template: str = "action_confirmation",
        **context: Any,
    ) -> HttpResponse | None:
        """Return the confirmation page of an action, or ``None`` if the user has confirmed it.

        The page lists the rows, or ``shown`` instead, and submits exactly these rows again with
        ``post=yes``, as the confirmation page of Django's deletion does.
        """
        if request.POST.get("post") == "yes":
            return None
        if len(rows) > MAX_CONFIRMED:
            message = _("Select at most %(n)d rows.") % {"n": MAX_CONFIRMED}
            self.message_user(request, message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        registered_action = self.get_actions(request).get(action)
        # Actions are tuples before Django 6.1.
        label = getattr(registered_action, "plural_description", None) or (
            registered_action[2] if registered_action else action
        )
        label = str(label) % model_format_dict(self.opts)
        return self.render_page(
            request,
            template,
            label,
            rows=rows if shown is None else shown,
            chosen=[row.pk for row in rows],
            action=action,
            question=question,
            word=label,
            back_url=self.page_url("changelist"),
            **context,
        )

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Return whether a lookup is that of a filter, the date hierarchy or our own links.

        Django allows lookups on every column, and enough queries would reveal the values of a
        column that is not shown.
        """
        filters = [list_filter for list_filter in self.list_filter if isinstance(list_filter, str)]
        allowed_fields = (*filters, *filter(None, [self.date_hierarchy]))
        return (
            lookup in self.linked_lookups
            or lookup.partition("__")[0] in allowed_fields
            or any(
                lookup == getattr(list_filter, "parameter_name", None)
                for list_filter in self.list_filter
            )
        )

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return no data: no link prefills a form, and Django does not validate these values."""
        return {}

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Show the history of a row; the permission is checked before the row is fetched.

        Django fetches it first, so a redirect or a 403 would show any staff user which keys exist.

        Raises:
            PermissionDenied: the user may not view such rows, whether the row exists or not.
        """
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        response = super().history_view(request, object_id, extra_context)
        for log_entry in getattr(response, "context_data", {}).get("action_list", ()):
            # The templates of Django and of themes call it without arguments.
            log_entry.get_change_message = partial(describe_entry, log_entry)
        return response

    def construct_change_message(
        self,
        request: HttpRequest,
        form: Any,
        formsets: Any,
        add: bool = False,  # noqa: FBT001, FBT002 - Django's signature
    ) -> Any:
        """Return Django's message for the history, with the old and the new values."""
        message: Any = super().construct_change_message(request, form, formsets, add)
        for part in message:
            if "changed" in part and "fields" in part["changed"]:
                part["changed"]["values"] = changed_values(form)
        return message

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Save the row, and warn about its long texts."""
        super().save_model(request, obj, form, change)
        self.warn_of_long_texts(request, form)

    def warn_of_long_texts(self, request: HttpRequest, form: Any) -> None:
        """Show a message for each changed text that takes up much of a model's context."""
        for warning in getattr(form, "long_text_warnings", tuple)():
            self.message_user(request, warning, messages.WARNING)

    def log_changed_fields(
        self, request: HttpRequest, rows: Sequence[Any], values: Mapping[str, Any]
    ) -> None:
        """Log the new values of the columns in the history of each row, as the form does.

        The rows must still have their old values.
        """
        user: Any = request.user
        entries = []
        for row in rows:
            changed = {
                name: (getattr(row, name), new)
                for name, new in values.items()
                if getattr(row, name) != new
            }
            # Stored in English; the history translates it for each reader.
            with override(None):
                labels = {name: _label_of(self.opts.get_field(name)) for name in changed}
            changes = [
                {"name": name, "label": labels[name], "old": _plain(old), "new": _plain(new)}
                for name, (old, new) in changed.items()
            ]
            message = [{"changed": {"fields": [*labels.values()], "values": changes}}]
            entries.append(
                LogEntry(
                    user_id=user.pk,
                    content_type=ContentType.objects.get_for_model(row, for_concrete_model=False),
                    object_id=str(row.pk),
                    object_repr=str(row)[:200],
                    action_flag=CHANGE,
                    change_message=json.dumps(message),
                )
            )
        LogEntry.objects.bulk_create(entries)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the row with this key, or ``None``; PostgreSQL rejects a key with a NUL."""
        return None if "\0" in object_id else super().get_object(request, object_id, from_field)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the change list for the query.

        Raises:
            IncorrectLookupParameters: the query is not valid; Django then shows the whole list.
        """
        for values in request.GET.lists():
            if "\0" in "".join((values[0], *values[1])):
                raise IncorrectLookupParameters("The query contains a NUL character.")
        key = self.model._meta.pk
        for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                key.run_validators(key.to_python(chosen))
            except ValidationError:
                raise IncorrectLookupParameters(f"{chosen!r} is not a valid key.") from None
            if "\0" in chosen:
                raise IncorrectLookupParameters("A key contains a NUL character.")
        try:
            return super().get_changelist_instance(request)
        except OverflowError:  # a year that Django accepts, in the date hierarchy
            raise IncorrectLookupParameters("A number is too large for the database.") from None


# The history, with old and new values -------------------------------------------------------------

# Django's entries name the changed fields. Entries of this package also contain the old and the new
# values, as JSON; Django ignores these values.


def changed_values(form: Any) -> list[dict[str, Any]]:
    """Return the old and new value of each changed field of a form, without secrets."""
    changes = []
    with override(None):
        for name in form.changed_data:
            field: Any = form.fields[name]
            if is_secret_name(name) or field.widget.is_hidden:
                continue
            old, new = form[name].initial, form.cleaned_data.get(name)
            if isinstance(field, ModelChoiceField) and not isinstance(old, Model):
                # ``to_python`` searches the available choices only.
                model: Any = field.queryset.model  # type: ignore[union-attr]  # never None
                old = model._default_manager.filter(pk=old).first()
            label = _label_of(field) or name.replace("_", " ").capitalize()
            if not isinstance(new, Mapping):
                old, new = {"": old}, {"": new}
            changes += [
                {
                    "name": name,
                    "label": f"{label}: {part.replace('_', ' ')}" if part else label,
                    "old": _plain((old or {}).get(part)),
                    "new": _plain(value),
                }
                for part, value in new.items()
            ]
    return [change for change in changes if change["old"] != change["new"]]


def _label_of(field: Any) -> str:
    label = getattr(field, "verbose_name", None) or field.label
    return capfirst(str(label)) if label else ""


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent; ``None`` for each empty value."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, QuerySet | list | tuple | set | frozenset):
        return [*map(_member_text, value)] or None
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).replace("\r\n", "\n") if value not in (None, "") else None


def _member_text(member: Any) -> str:
    """Return the text of a member of a list, such as a group or an argument of a prompt."""
    if not isinstance(member, Mapping):
        return str(member)
    texts = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in member.items()
        if value
    }
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def describe_entry(log_entry: LogEntry, *, limit: int | None = None) -> Any:
    """Return the text of a history entry: the old and the new values if it has them.

    Each value is cut after ``limit`` characters.
    """
    try:
        parts = json.loads(log_entry.change_message)
        changes = [change for part in parts for change in part["changed"]["values"]]
        model = log_entry.content_type.model_class() if log_entry.content_type else None
        lines = [(_(change["label"]), _describe_values(model, change, limit)) for change in changes]
    except (ValueError, KeyError, TypeError, AttributeError):
        lines = []
    if lines:
        items = format_html_join("", "<li>{}: {}</li>", lines)
        return format_html('<ul class="mcp-list mcp-changes">{}</ul>', items)
    try:
        return LogEntry.get_change_message(log_entry)
    except (KeyError, TypeError, AttributeError):
        return log_entry.change_message


def _describe_values(model: Any, change: Mapping[str, Any], limit: int | None) -> str:
    old, new = change["old"], change["new"]
    if isinstance(old, list) or isinstance(new, list):
        before, after = old or [], new or []
        added = [f"+ {member}" for member in after if member not in before]
        removed = [f"- {member}" for member in before if member not in after]
        text = ", ".join([*added, *removed]) or _("in another order")
        return text if limit is None else clip(text, limit=limit)
    texts = [_value_text(model, change["name"], value) for value in (old, new)]
    return " → ".join(texts if limit is None else (clip(text, limit=limit) for text in texts))


def described_choices(names: Iterable[str], described: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the choices of a form field, each labeled by its name and its description, if any."""
    return [(name, f"{name}: {described[name]}" if described.get(name) else name) for name in names]


def to_local_time(moment: datetime) -> datetime:
    """Return a time in the current time zone; a naive time (``USE_TZ=False``) is unchanged."""
    return localtime(moment) if is_aware(moment) else moment


def _value_text(model: Any, name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return pgettext("switch", "on") if value else pgettext("switch", "off")
    if isinstance(value, int | float):
        return str(number_format(value))
    field = {column.name: column for column in model._meta.fields}.get(name) if model else None
    moment = parse_datetime(value) if isinstance(field, DateTimeField) else None
    if moment is not None:
        return str(localize(to_local_time(moment)))
    return str(dict(field.flatchoices).get(value, value)) if field is not None else str(value)


NOT_DELEGABLE = gettext_lazy("Choose a user who has no more permissions and groups than you have.")


def may_delegate_access(by: Any, user: Any) -> bool:
    """Return whether ``by`` may let others act as ``user``, by a token, an identity or a client.

    Users cannot delegate more access than they have. So ``user`` may not have a permission or a
    group that ``by`` lacks (components can require groups), and may be a superuser only if ``by``
    is one. The permissions of an inactive user are unknown, so only a superuser may delegate them.
    """
    if by.is_superuser or by.pk == user.pk:
        return True
    if user.is_superuser or not user.is_active:
        return False
    return user.get_all_permissions() <= by.get_all_permissions() and _groups(user) <= _groups(by)


def _groups(user: Any) -> set[Any]:
    # A custom user model may not have groups.
    return set(user.groups.values_list("pk", flat=True)) if hasattr(user, "groups") else set()


class DelegationAdmin(MCPModelAdmin):
    """Rows that let others act as a user; ``acts_as`` is the name of the field with this user.

    The requesting user must be allowed to delegate the access of this user, and of the previous one
    if the form changes the user.
    """

    acts_as: ClassVar[str]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change such rows, and delegate the row's user's access."""
        user = getattr(obj, self.acts_as, None)
        return super().has_change_permission(request, obj) and (
            user is None or may_delegate_access(request.user, user)
        )

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the form class for the requesting user, which hides the names of other users.

        Django renders the name of a user next to any submitted key, and has a different message for
        an unknown key. A client that tries all keys would learn all user names, and which users
        have more permissions.
        """
        base = super().get_form(request, obj, *args, **kwargs)
        attributes = {"by": request.user, "acts_as": self.acts_as}
        form_class: Any = type(base.__name__, (_DelegationForm, base), attributes)
        field = form_class.base_fields.get(self.acts_as)
        if field is None:
            return form_class
        field.error_messages["invalid_choice"] = NOT_DELEGABLE
        options = get_user_model()._meta
        codenames = (get_permission_codename(verb, options) for verb in ("view", "change"))
        if not any(request.user.has_perm(f"{options.app_label}.{name}") for name in codenames):
            visible_key = getattr(obj, f"{self.acts_as}_id", None)
            get_label = getattr(field.widget, "label_and_url_for_value", None)
            if get_label is not None:
                # Render no label next to any other raw id.
                field.widget.label_and_url_for_value = lambda value: (
                    get_label(value) if str(value) == str(visible_key) else ("", "")
                )
        return form_class


class _DelegationForm:
    """A form mixin that rejects a user whose access the requesting user may not delegate."""

    by: Any
    acts_as: str

    def clean(self) -> Any:
        cleaned = super().clean()  # type: ignore[misc]  # of a ModelForm
        user = self.cleaned_data.get(self.acts_as)  # type: ignore[attr-defined]
        if user is not None and not may_delegate_access(self.by, user):
            self.add_error(self.acts_as, NOT_DELEGABLE)  # type: ignore[attr-defined]
        return cleaned


class NoEditAdmin(MCPModelAdmin):
    """Rows that only the package writes; in the admin they can at most be deleted."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false: rows cannot be added by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return false: rows cannot be changed by hand."""
        return False


class ReadOnlyAdmin(NoEditAdmin):
    """Rows that only the package writes; read-only in the admin."""

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return false: rows cannot be deleted by hand."""
        return False


# Rows that can be ended, but not deleted ----------------------------------------------------------


class RevocableAdmin(MCPModelAdmin):
    """Rows that users with the delete permission can end: revoke, cancel or terminate.

    The package writes these rows, and the admin ends them. Django's own deletion is disabled, since
    it would not end what is still open in other processes.

    A subclass names the action in ``action_name`` and implements it in ``end``.
    """

    change_form_template = "admin/mcp_django/revocable_change_form.html"
    action_name: ClassVar[str]
    """The name of the action in URLs, such as ``revoke``."""
    action_label: ClassVar[Any]
    confirmation_text: ClassVar[Any]
    """The text of the confirmation page."""
    done_message: ClassVar[Any]
    """The message of the admin history."""
    log_flag: ClassVar[int] = CHANGE

    @abstractmethod
    def end(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        """End the rows, in every process."""

    @abstractmethod
    def is_ended(self, row: Any) -> bool:
        """Return whether the row has ended already."""

    def describe_rows(self, rows: Iterable[Any]) -> list[str]:
        """Return the descriptions of the rows for the confirmation page."""
        return [str(row) for row in rows]

    def end_selected(
        self, request: HttpRequest, queryset: QuerySet[Any], done: Callable[[int], str]
    ) -> HttpResponse | None:
        """Show the confirmation page; after confirmation, end the rows and report their number.

        The action in the list has the name ``action_name``.
        """
        live = [row for row in queryset.select_related("user") if not self.is_ended(row)]
        if not live:
            self.message_user(request, _("This has already ended."), messages.WARNING)
            return None
        page = self.confirm_action(
            request,
            self.action_name,
            live,
            shown=self.describe_rows(live),
            question=self.confirmation_text,
        )
        if page is None:
            n = self.end_and_log(request, live)
            self.message_user(request, done(n) % {"n": n}, messages.SUCCESS)
        return page

    def end_and_log(self, request: HttpRequest, rows: Sequence[Any]) -> int:
        """End the rows that are still open, log it in their histories, and return their number."""
        live = [row for row in rows if not self.is_ended(row)]
        if live:
            user: Any = request.user
            LogEntry.objects.log_actions(user.pk, live, self.log_flag, str(self.done_message))
            self.end(request, live)
        return len(live)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return false: rows can be ended but not edited."""
        return False

    def has_end_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may view and delete rows, which allows ending them."""
        return self.has_view_permission(request) and self.has_delete_permission(request)

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Return the actions without Django's deletion, which notifies no other process."""
        # Django 6.1 passes a location; it deprecates overrides that do not pass it on.
        where = {} if action_location is None else {"action_location": action_location}
        actions: dict[str, Any] = super().get_actions(request, **where)
        actions.pop("delete_selected", None)
        return actions

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Reject the request: a row is only deleted with its user, or because of its age."""
        raise PermissionDenied

    def get_urls(self) -> list[URLPattern]:
        """Add the URL of the confirmation page."""
        name = self.action_name
        return [
            self.page_path(f"<path:object_id>/{name}/", self.end_view, name),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the row, with a button that leads to the confirmation page."""
        row = self.get_object(request, unquote(object_id))
        extra = {"show_delete": False, **(extra_context or {})}
        if row is not None and self.has_end_permission(request) and not self.is_ended(row):
            url = self.page_url(self.action_name, quote(row.pk))
            extra |= {"end_url": url, "end_label": self.action_label}
        return super().change_view(request, object_id, form_url, extra)

    def end_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show the confirmation page; a POST ends the row."""
        if not self.has_end_permission(request):
            raise PermissionDenied
        row = self.get_object(request, unquote(object_id))
        if row is None:
            self.message_user(request, _("This object does not exist any more."), messages.WARNING)
            return HttpResponseRedirect(self.page_url("changelist"))
        if request.method == "POST":
            key = quote(row.pk)
            if self.end_and_log(request, [row]):
                self.message_user(request, self.done_message, messages.SUCCESS)
            is_kept = row.pk is not None and self.get_object(request, unquote(object_id))
            page = self.page_url("change", key) if is_kept else self.page_url("changelist")
            return HttpResponseRedirect(page)
        return self.render_page(
            request,
            "end_confirmation",
            self.action_label,
            object=row,
            described=self.describe_rows([row])[0],
            question=self.confirmation_text,
            word=self.action_label,
            is_over=self.is_ended(row),
        )
