"""Rows that stand for access: written by the package, and ended in the admin, never deleted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from mcp_django.admin_base import Base


class EndingAdmin(Base):
    """A list whose rows can be ended by whoever may delete them.

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
