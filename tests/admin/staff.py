"""Who opens a screen: somebody who may everything, one thing, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.http import HttpRequest, HttpResponse
from django.test import Client


def superuser(name: str = "root") -> Client:
    """An administrator, signed in."""
    return _signed_in(get_user_model().objects.create_superuser(name, password=name))


def staff(*codenames: str) -> Client:
    """Somebody of the staff with these permissions of this app, signed in."""
    user = get_user_model().objects.create_user("-".join(("staff", *codenames)), is_staff=True)
    permissions = Permission.objects.filter(
        content_type__app_label="mcp_django", codename__in=codenames
    )
    user.user_permissions.set(permissions)
    assert user.user_permissions.count() == len(codenames)
    return _signed_in(user)


def _signed_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


class FixedUserMiddleware:
    """Sets ``request.user`` without queries, which take most of the time of a refused request."""

    user: Any = None

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.user = FixedUserMiddleware.user
        return self.get_response(request)
