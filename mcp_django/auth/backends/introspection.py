"""Opaque access tokens of other issuers, verified by token introspection (RFC 7662).

A response is cached for the entry's ``cache_seconds`` (60 by default), and a token that is revoked
in the meantime is accepted until the response expires. Each bearer is sent to one issuer only, the
first whose entry matches: a token is a secret of its issuer.
"""

from __future__ import annotations

import base64
import logging
import math
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode

from django.views.decorators.debug import sensitive_variables

from mcp_django.auth import outbound
from mcp_django.auth.backends.external import (
    ExternalBackend,
    Verified,
    entries_for,
    read_verified,
    reject_token,
)
from mcp_django.auth.credentials import read_issuer
from mcp_django.conf import IntrospectionIssuer, get_settings
from mcp_django.exceptions import AuthenticationUnavailable
from mcp_django.models import token_digest
from mcp_django.process import at_fork
from mcp_django.protocol.headers import FORM

logger = logging.getLogger("mcp_django.security")

INACTIVE_SECONDS = 10
DOWN_SECONDS = 5
# Streams of a token without a time of expiry end after this time, and the client reconnects.
UNDATED_SECONDS = 900
LEEWAY_SECONDS = 30

# Requests with the same token wait for one response; other tokens rarely share a lock.
_locks = [threading.Lock() for _ in range(32)]


@at_fork
def _replace_locks() -> None:
    """Replace the locks in a forked child, since a thread of its parent may have held them."""
    _locks[:] = [threading.Lock() for _ in _locks]


class IntrospectionBackend(ExternalBackend):
    """Verifies bearers with the issuers that ``MCP_DJANGO["INTROSPECTION"]`` lists."""

    name = "introspection"

    def entries(self) -> Sequence[IntrospectionIssuer]:
        """Return the issuers of ``MCP_DJANGO["INTROSPECTION"]``."""
        return get_settings().introspection

    @sensitive_variables("bearer")
    def find_entry(self, bearer: str, server: str) -> IntrospectionIssuer | None:
        """Return the first entry of the bearer's prefix and, if it names one, of its issuer."""
        issuer_url = read_issuer(bearer)
        for issuer in entries_for(self.entries(), server):
            if bearer.startswith(issuer.prefix) and issuer_url in (None, issuer.issuer):
                return issuer
        return None

    @sensitive_variables("bearer")
    def verify(self, issuer: IntrospectionIssuer, bearer: str, resource: str) -> Verified | None:
        """Introspect a token, unless a response is cached; ``None`` if the token is not active."""
        digest = token_digest(bearer)
        claims, until = _introspect(issuer, bearer, digest)
        if claims.get("active") is not True:
            return None
        now = time.time()
        expires_at, begins_at = claims.get("exp", now + UNDATED_SECONDS), claims.get("nbf", 0)
        if not _is_number(expires_at) or not _is_number(begins_at):
            reject_token("The token's exp or nbf is not a number.")
        if expires_at <= now - LEEWAY_SECONDS:
            reject_token("The token has expired.")
        if begins_at > now + LEEWAY_SECONDS:
            reject_token("The token is not valid yet.")
        if claims.get("iss", issuer.issuer) != issuer.issuer:
            reject_token("The token is from another issuer.")
        kind = claims.get("token_type")
        if kind is not None and str(kind).lower() not in {"bearer", "access_token", "at+jwt"}:
            reject_token("The token is not a bearer token.")
        return read_verified(
            issuer,
            claims,
            resource,
            credential=f"introspection:{digest}",
            expires_at=float(expires_at),
            until=until,
            is_typed=True,
        )


@sensitive_variables("bearer")
def _introspect(
    issuer: IntrospectionIssuer, bearer: str, digest: str
) -> tuple[dict[str, Any], float]:
    """Return the issuer's response about a token, perhaps cached, and until when it may be used."""
    name = f"{issuer.url} {issuer.client_id} {digest}"
    cached = outbound.get_signed("introspection", name)
    if cached is None:
        lock = _locks[int(digest[:2], 16) % len(_locks)]
        if not lock.acquire(timeout=outbound.TIMEOUT_SECONDS):
            raise _unavailable_error()
        try:
            cached = outbound.get_signed("introspection", name)
            if cached is None:
                cached = _request_introspection(issuer, bearer, name)
        finally:
            lock.release()
    return cached["answer"], cached["until"]


@sensitive_variables("bearer", "form", "headers", "pair")
def _request_introspection(issuer: IntrospectionIssuer, bearer: str, name: str) -> dict[str, Any]:
    """Send an introspection request; return the response as it is cached under a name.

    Raises:
        AuthenticationUnavailable: the request failed, or one failed in the last ``DOWN_SECONDS``.
    """
    if outbound.get_signed("introspection-down", issuer.url) is not None:
        raise _unavailable_error()
    form = {"token": bearer, "token_type_hint": "access_token"}
    headers = {"Content-Type": FORM}
    if issuer.auth_method == "post":
        form |= {"client_id": issuer.client_id, "client_secret": issuer.client_secret}
    else:
        # RFC 6749, section 2.3.1: both parts are form-encoded before they are joined.
        pair = f"{quote_plus(issuer.client_id)}:{quote_plus(issuer.client_secret)}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    try:
        answer = outbound.fetch_json(issuer.url, body=urlencode(form).encode(), headers=headers)
    except outbound.FetchFailed as exc:
        logger.error("Token introspection by the issuer %s failed: %s", issuer.issuer, exc)  # noqa: TRY400 - the traceback would show the token
        outbound.put_signed("introspection-down", issuer.url, 1, seconds=DOWN_SECONDS)
        raise _unavailable_error() from None
    seconds = issuer.cache_seconds
    if answer.get("active") is not True:
        answer, seconds = {"active": False}, INACTIVE_SECONDS
    elif _is_number(answer.get("exp")):
        seconds = min(seconds, answer["exp"] - time.time())
    cached = {"answer": answer, "until": time.time() + seconds}
    if seconds > 0:
        outbound.put_signed("introspection", name, cached, seconds=seconds)
    return cached


def _unavailable_error() -> AuthenticationUnavailable:
    return AuthenticationUnavailable(
        "The token's issuer does not respond at the moment.", retry_after=DOWN_SECONDS
    )


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # An integer that is larger than every float.
        return False
