"""Where the page is on which a call is approved, and who may see and decide what on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from mcp_django.auth.approvers import PERMISSION
from mcp_django.auth.principal import key_of
from mcp_django.conf import get_settings
from mcp_django.protocol.text import storable
from mcp_django.runtime.incoming import Incoming
from mcp_django.signals import approval_decided
from mcp_django.store import approvals

if TYPE_CHECKING:
    from mcp_django.models import Approval


def page_url(incoming: Incoming, code: str) -> str:
    """The address of the page: whole where the site's is known, empty where there is no page.

    A server that is mounted by ``server.asgi`` alone has none.
    """
    request = incoming.http_request()
    match = getattr(request, "resolver_match", None)
    # A mount may have variables of its own: a language, a tenant.
    variables = match.kwargs if match is not None else {}
    try:
        mount = reverse(f"{incoming.server.namespace}:endpoint", kwargs=variables)
    except NoReverseMatch:
        return ""
    path = f"{mount.rstrip('/')}/approvals/{code}"
    if base := get_settings().base_url:
        return base.rstrip("/") + path
    return request.build_absolute_uri(path) if request is not None else path


def may_decide(row: Approval, user: Any) -> bool:
    """Whether this user may say yes or no: the caller himself, or anybody of the staff but him."""
    if not (user.is_authenticated and user.is_active):
        return False
    is_caller = key_of(user) == row.user_key
    if row.by == row.By.CALLER:
        return is_caller
    # Four eyes: superusers too decide about others' calls alone.
    return not is_caller and bool(user.has_perm(PERMISSION))


def may_see(row: Approval, user: Any) -> bool:
    """Whether this user may look at the page: who may decide, and whose call it is."""
    is_caller = user.is_authenticated and user.is_active and key_of(user) == row.user_key
    return is_caller or may_decide(row, user)


def decide(row: Approval, user: Any, *, is_granted: bool, reason: str = "") -> bool:
    """Decide about a call; ``False`` where that was done before, or it is too late.

    Raises:
        PermissionError: it is not for this user to decide.
    """
    if not may_decide(row, user):
        raise PermissionError("Not for this user to decide.")
    name = user.get_username()[:255]
    if not approvals.decide(row, is_granted=is_granted, by=name, reason=storable(reason[:500])):
        return False
    _log(row, user, is_granted=is_granted)
    approval_decided.send_robust(sender=type(row), approval=row, user=user)
    return True


def _log(row: Approval, user: Any, *, is_granted: bool) -> None:
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry

    text = _("Granted.") if is_granted else _("Refused.")
    LogEntry.objects.log_actions(user.pk, [row], CHANGE, text)
