"""The caller of a process that serves one client."""

import pytest

from mcp_django.auth.authentication import (
    LOCAL_BACKEND,
    LocalCaller,
    authenticate,
    refresh_principal,
)
from mcp_django.auth.credentials import Credentials
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers
from tests.kit.servers import person, token_for
from tests.spec import spec

pytestmark = pytest.mark.django_db


@spec("IO-9", "SUB-16")
def test_a_user_is_the_caller_as_long_as_active():
    user = person("ada")
    caller = LocalCaller(username="ada")
    principal = caller.principal()
    assert (principal.user, principal.scopes) == (user, None)
    assert refresh_principal(principal) is not None
    user.is_active = False
    user.save()
    # An open stream makes the same check.
    assert refresh_principal(principal) is None
    with pytest.raises(AuthenticationRequired, match="'ada' does not exist or is inactive"):
        caller.principal()


@spec("IO-9")
def test_a_token_is_looked_up_as_everywhere_else():
    token, plaintext = token_for(person("ada"), "orders:read")
    caller = LocalCaller(token=plaintext)
    principal = caller.principal()
    assert (principal.backend, principal.scopes) == ("tokens", frozenset({"orders:read"}))
    assert plaintext not in repr(caller)
    token.revoke()
    assert refresh_principal(principal) is None
    with pytest.raises(AuthenticationRequired, match="unknown, expired or revoked"):
        caller.principal()


@pytest.mark.parametrize("token", ["x", "mcp_x", "two words", "\N{SNOWMAN}", "a\nb"])
def test_a_token_that_is_none_is_refused(token):
    with pytest.raises(AuthenticationRequired):
        LocalCaller(token=token).principal()


def test_nobody_is_the_caller_where_nobody_is_named():
    assert not LocalCaller().principal().is_authenticated


def test_the_backend_of_local_callers_finds_nobody_in_a_request():
    credentials = Credentials(headers=Headers([]), query="", request=lambda: None)
    assert not authenticate([LOCAL_BACKEND], credentials).is_authenticated
