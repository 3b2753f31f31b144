"""The request that a ``ModelAdmin`` is asked with: the caller's, to the list of the model.

It went through no middleware, so it has a user and messages, and no session.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.messages.storage.base import BaseStorage, Message
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from mcp_django.auth.principal import Principal
from mcp_django.core.context import Context
from mcp_django.sources.site.fresh import FreshRequest, Pairs, Sending, fresh_request

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin


class Collected(BaseStorage):
    """Messages to the user, kept for the answer and not for the next page."""

    def _get(self, *args: Any, **kwargs: Any) -> tuple[list[Message], bool]:
        return [], True

    def _store(self, messages: Any, response: Any, *args: Any, **kwargs: Any) -> list[Message]:
        return []

    @property
    def found(self) -> list[Message]:
        """What was said so far."""
        queued: list[Message] = self._queued_messages  # type: ignore[attr-defined]  # of the base
        return list(queued)


def admin_request(
    ctx: Context, model_admin: ModelAdmin[Any], *, posted: Pairs | None = None
) -> FreshRequest:
    """A request of the caller to the admin's list of the model."""
    sending = Sending(
        verb="GET" if posted is None else "POST",
        path=list_path(model_admin),
        query=[],
        body=posted or [],
        routes=(),
    )
    request = fresh_request(ctx, sending)
    request.user = ctx.user
    request._messages = Collected(request)  # type: ignore[attr-defined]  # of the message framework
    with suppress(Resolver404):
        request.resolver_match = resolve(request.path_info)
    return request


def list_path(model_admin: ModelAdmin[Any]) -> str:
    """The address of the admin's list; of a site without addresses the root."""
    options = model_admin.model._meta
    name = f"{model_admin.admin_site.name}:{options.app_label}_{options.model_name}_changelist"
    try:
        return reverse(name)
    except NoReverseMatch:
        return reverse_root()


def reverse_root() -> str:
    """The root of the site."""
    from django.urls import get_script_prefix

    return get_script_prefix()


def widest(server: Any) -> Context:
    """A call of somebody who may do everything, by whom the schemas are made at registration.

    It never leads to a row: each call asks again as its own caller.
    """
    user: Any = get_user_model()()
    user.pk = user._meta.pk.get_default() or 0
    for name in ("is_active", "is_staff", "is_superuser"):
        # A user model of the site may compute them.
        with suppress(AttributeError):
            setattr(user, name, True)
    principal = Principal(key="registration", user=user)
    return Context(server=server, principal=principal, protocol_version="")
