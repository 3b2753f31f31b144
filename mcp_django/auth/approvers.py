"""A mail to whoever may approve calls of others, for sites that connect it to the signal."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from mcp_django.auth.principal import key_of

PERMISSION = "mcp_django.decide_approval"
BACKEND = "django.contrib.auth.backends.ModelBackend"


def mail_approvers(sender: Any, *, approval: Any, url: str, **kwargs: Any) -> None:
    """Tell those who may approve a call that one waits; a receiver of ``approval_requested``.

    Whose own calls wait for himself is told by his client. The mail names the tool, the user and
    the page, and no arguments: those are shown where the reader has signed in. Users who hold the
    permission by another backend than Django's own are not found.
    """
    if approval.by != approval.By.STAFF:
        return
    addresses = [found for found in map(_address, _approvers(approval)) if found]
    if not addresses:
        return
    # A name is somebody's own choice, and a header is one line.
    who = " ".join(str(approval.user_name).split())
    EmailMessage(
        subject=_("%(tool)s waits for approval") % {"tool": approval.component},
        body=_("%(user)s wants to use %(tool)s. See what it would do, and decide:\n\n%(url)s\n")
        % {"user": who, "tool": approval.component, "url": url},
        bcc=addresses,
    ).send()


def _approvers(approval: Any) -> list[Any]:
    """The users who may decide about a call: all with the permission but the caller."""
    found = get_user_model()._default_manager.with_perm(PERMISSION, backend=BACKEND)
    return [user for user in found if key_of(user) != approval.user_key]


def _address(user: Any) -> str:
    return str(getattr(user, user.get_email_field_name(), "") or "")
