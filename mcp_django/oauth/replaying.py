"""The same answer again for a refresh token that was used a moment ago.

Hosts run several processes with one refresh token, and connections break after the answer was
made. Within ``OAUTH["REFRESH_REPLAY_SECONDS"]`` the same client gets the pair that was issued for
the same refresh token; later it is taken for stolen, and its family ends (RFC 9700, section
4.14.2). The pair is kept encrypted under the refresh token itself, so the table gives nothing away.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cryptography.fernet import Fernet
from django.db import router, transaction
from django.http import HttpRequest
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from mcp_django.conf import get_settings
from mcp_django.oauth import clients
from mcp_django.oauth.models import RefreshReplay
from mcp_django.oauth.refusals import Refused

Exchange = Callable[[HttpRequest], dict[str, Any]]


@sensitive_variables()
def once(request: HttpRequest, exchange: Exchange) -> dict[str, Any]:
    """What ``exchange`` answers, or has answered a moment ago for the same refresh token.

    Of several requests at once one exchanges and the others wait for its answer: only one can
    insert the row of a digest, and the database holds back the rest until it is committed.

    Raises:
        Refused: the token cannot be used, by this client or for this.
    """
    refresh_token = request.POST.get("refresh_token", "")
    digest = hashlib.sha256(refresh_token.encode("utf-8", "replace")).hexdigest()
    tokens = get_refresh_token_model()._default_manager
    seconds = get_settings().oauth.refresh_replay_seconds
    # Nobody is to write rows for tokens that he made up.
    if not seconds or not tokens.filter(token_checksum=digest).exists():
        return exchange(request)
    row = RefreshReplay(
        digest=digest, answer=b"", expires_at=timezone.now() + timedelta(seconds=seconds)
    )
    refused: Refused | None = None
    answer: dict[str, Any] = {}
    # A refusal is no rollback: what ended because of it has ended.
    with transaction.atomic(using=router.db_for_write(RefreshReplay)):
        is_first = row.claim()
        if is_first:
            try:
                answer = exchange(request)
            except Refused as exc:
                refused = exc
                row.delete()
            else:
                _keep(row, request, answer)
    if refused is not None:
        raise refused
    return answer if is_first else _again(request, digest, exchange)


@sensitive_variables()
def _keep(row: RefreshReplay, request: HttpRequest, answer: dict[str, Any]) -> None:
    token = _issued(answer)
    row.client_id = token.application.client_id
    kept = json.dumps({"answer": answer, "asked": _asked(request)})
    row.answer = _cipher(request).encrypt(kept.encode())
    row.save(update_fields=["client_id", "answer"])


@sensitive_variables()
def _again(request: HttpRequest, digest: str, exchange: Exchange) -> dict[str, Any]:
    row = RefreshReplay._default_manager.filter(digest=digest).first()
    if row is None or row.expires_at <= timezone.now():
        return exchange(request)
    if clients.identify(request).client_id != row.client_id:
        raise Refused("invalid_grant")
    kept = json.loads(_cipher(request).decrypt(bytes(row.answer)))
    if kept["asked"] != _asked(request):
        raise Refused("invalid_grant", "The refresh token was used a moment ago, for other things.")
    token = _issued(kept["answer"])
    if token is None:
        # It was replaced again or withdrawn meanwhile; the validator knows which.
        return exchange(request)
    if token.user is None or not token.user.is_active:
        raise Refused("invalid_grant")
    answer: dict[str, Any] = kept["answer"]
    left = (token.expires - timezone.now()).total_seconds()
    return {**answer, "expires_in": max(0, int(left))}


def _issued(answer: dict[str, Any]) -> Any:
    checksum = hashlib.sha256(answer["access_token"].encode()).hexdigest()
    tokens = get_access_token_model()._default_manager.select_related("user", "application")
    return tokens.filter(token_checksum=checksum).first()


def _asked(request: HttpRequest) -> dict[str, list[str]]:
    """What the token is to be good for, which a second answer has to be the answer to as well."""
    return {
        "resource": sorted(request.POST.getlist("resource")),
        "scope": sorted(request.POST.get("scope", "").split()),
    }


def _cipher(request: HttpRequest) -> Fernet:
    secret = b"mcp_django.refresh-replay\0" + request.POST["refresh_token"].encode()
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(secret).digest()))
