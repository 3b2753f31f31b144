"""The MCP request as a component gets to see it: the caller's, without what proves who that is.

A component that could read the token could pass it on, which no server may (AUT-10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

from mcp_django.auth.principal import Principal

SECRET_META = frozenset({"HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION", "HTTP_COOKIE"})
SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie")


def carrier(
    request: Callable[[], HttpRequest | None], principal: Principal
) -> Callable[[], HttpRequest | None]:
    """A function that gives the request without credentials, the same one each time."""
    made: list[HttpRequest | None] = []

    def get() -> HttpRequest | None:
        if not made:
            whole = request()
            made.append(None if whole is None else without_credentials(whole, principal))
        return made[0]

    return get


def without_credentials(request: HttpRequest, principal: Principal) -> HttpRequest:
    """A twin of a request that has no Authorization and no cookies, and the caller as its user.

    What middleware put on the request is on the twin as well; the session is the same object.
    """
    # copy.copy() pickles, and leaves out what a request cannot be pickled with.
    twin: Any = object.__new__(type(request))
    twin.__dict__.update(request.__dict__)
    twin.META = {name: value for name, value in request.META.items() if name not in SECRET_META}
    twin.COOKIES = {}
    # The one is made anew of META; the other is how the lane finds the work of its request.
    for name in ("headers", "mcp_ticket"):
        twin.__dict__.pop(name, None)
    if "environ" in twin.__dict__:
        twin.environ = twin.META
    if "scope" in twin.__dict__:
        secret = {name.encode() for name in SECRET_HEADERS}
        lines = [line for line in twin.scope["headers"] if line[0].lower() not in secret]
        # What servers and Channels add (cookies, a session, a user) is read from the credentials.
        added = {"cookies", "session", "user"}
        kept = {name: value for name, value in twin.scope.items() if name not in added}
        twin.scope = {**kept, "headers": lines}
    twin.user = principal.user
    twin.auser = _auser(principal)
    return twin  # type: ignore[no-any-return]


def _auser(principal: Principal) -> Callable[[], Any]:
    async def auser() -> Any:
        return principal.user

    return auser
