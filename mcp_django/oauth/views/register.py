"""Where clients register themselves (RFC 7591).

There is no registration access token, so nothing to read or change a client by (RFC 7592): whoever
lost an id registers again, and what is not used is deleted (``pruning.py``).
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone
from oauth2_provider.models import get_application_model

from mcp_django.auth.credentials import client_ip, wide_network_of
from mcp_django.auth.limits import UNKNOWN, counted_for, take
from mcp_django.auth.security_log import record
from mcp_django.conf import get_settings
from mcp_django.models import TOKEN_PREFIX, AccessToken, AuthEvent, digest
from mcp_django.oauth.pruning import never_used_clients
from mcp_django.oauth.registration import Registration, RegistrationError, parse
from mcp_django.oauth.views.cors import error, open_to_browsers

MAX_BYTES = 32 * 1024
HOUR = 3600
PER_ADDRESS_PER_HOUR = 20
# A part of the site's, so that no owner of a network with many addresses can use that up.
PER_NETWORK_PER_HOUR = 100
PER_SITE_PER_HOUR = 1000
# What an access token has to carry to be an initial access token (RFC 7591, section 3).
REGISTER_SCOPE = "register"
_BEARER = re.compile(rf"bearer +({TOKEN_PREFIX}[A-Za-z0-9\-._~+/]{{1,200}}=*)", re.IGNORECASE)


@open_to_browsers("POST")
def register(request: HttpRequest) -> HttpResponseBase:
    """Register a client: 201 with all that was registered, else a JSON error.

    The secret of a confidential client is in this answer and nowhere else. 20 registrations an hour
    are served for one address, 100 for its network and 1000 for the site, at most 32 KiB each.
    """
    mode = get_settings().oauth.dcr
    if mode == "off":
        return error(
            "access_denied",
            "Clients do not register themselves here. Use a client id metadata document, or ask "
            "the site for a client id.",
            status=404,
        )
    seconds = _limit(request)
    if seconds:
        return _too_many(seconds)
    owner = None
    if mode == "initial-token":
        token = _initial_token(request)
        if token is None:
            return _token_needed(request)
        owner = token.user
    try:
        registration = parse(_document(request))
        answer = _create(request, registration, owner)
    except RegistrationError as exc:
        return error(exc.code, str(exc))
    response = JsonResponse(answer, status=201)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Pragma"] = "no-cache"
    return response


def _document(request: HttpRequest) -> Any:
    try:
        # Not by ``request.body``, whose own limit raises what Django answers with a page.
        body = request.read(MAX_BYTES + 1)
    except OSError as exc:
        raise RegistrationError("The body ended before its end.") from exc
    if len(body) > MAX_BYTES:
        raise RegistrationError(f"Send at most {MAX_BYTES} bytes.")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise RegistrationError("Send a JSON object.") from exc


def _create(request: HttpRequest, registration: Registration, owner: Any) -> dict[str, Any]:
    model = get_application_model()
    client = model(
        name=registration.name,
        user=owner,
        redirect_uris=" ".join(registration.redirect_uris),
        client_type=model.CLIENT_PUBLIC if registration.is_public else model.CLIENT_CONFIDENTIAL,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
        registration_source=model.RegistrationSource.DCR,
    )
    # Readable until it is saved, which hashes it.
    secret = client.client_secret
    try:
        client.full_clean()
    except ValidationError as exc:
        members = ", ".join(exc.message_dict)
        code = "invalid_redirect_uri" if "redirect_uris" in members else "invalid_client_metadata"
        raise RegistrationError(f"The site does not accept this: {members}.", code=code) from exc
    client.save()
    record(
        AuthEvent.Kind.REGISTER,
        request=request,
        user=owner,
        client_id=client.client_id,
        name=registration.name,
        redirect_uris=[uri.partition("?")[0][:200] for uri in registration.redirect_uris],
    )
    answer = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created.timestamp()),
        **registration.as_metadata(),
    }
    if not registration.is_public:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    return answer


def _initial_token(request: HttpRequest) -> AccessToken | None:
    """The access token that lets its bearer register clients, which are then its user's."""
    found = _BEARER.fullmatch(request.headers.get("Authorization", "").strip())
    if found is None:
        return None
    token = AccessToken.objects.select_related("user").filter(digest=digest(found[1])).first()
    if token is None or not token.is_usable or REGISTER_SCOPE not in token.scopes:
        return None
    # It is for no server; where it may come from counts here as well.
    server = next(iter(token.servers), "")
    return token if token.allows(server=server, address=client_ip(request)) else None


def _token_needed(request: HttpRequest) -> JsonResponse:
    presented = "Authorization" in request.headers
    response = error(
        "invalid_token" if presented else "access_denied",
        f"Registering needs an access token of this site with the scope '{REGISTER_SCOPE}'.",
        status=401,
    )
    response.headers["WWW-Authenticate"] = 'Bearer realm="register"' + (
        ', error="invalid_token"' if presented else ""
    )
    return response


def _limit(request: HttpRequest) -> int:
    """Seconds to wait, 0 for none."""
    source, limit = counted_for(request, limit=PER_ADDRESS_PER_HOUR)
    counted = {source: limit}
    if source != UNKNOWN:
        counted[wide_network_of(source)] = PER_NETWORK_PER_HOUR
    for key, limit in counted.items():
        seconds = take("register", key, limit=limit, seconds=HOUR)
        if seconds:
            # One row an hour tells it; more would let the caller fill the table.
            if not take("register:told", key, limit=1, seconds=HOUR):
                record(AuthEvent.Kind.RATE_LIMIT, request=request, limit="register")
            return seconds
    # Counted in the table, since the cache may be each process's own. A client that a user has let
    # in since does not count: those of an attacker are not let in.
    recent = never_used_clients().filter(
        registration_source=get_application_model().RegistrationSource.DCR,
        created__gte=timezone.now() - timedelta(seconds=HOUR),
    )
    return HOUR if recent.count() >= PER_SITE_PER_HOUR else 0


def _too_many(seconds: int) -> JsonResponse:
    response = error(
        "temporarily_unavailable",
        f"Too many registrations; try again in {seconds} seconds.",
        status=429,
    )
    response.headers["Retry-After"] = str(seconds)
    return response
