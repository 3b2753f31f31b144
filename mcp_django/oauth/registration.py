"""Dynamic client registration (RFC 7591): validation of the metadata, and the endpoint.

Public and confidential clients of the authorization code grant can register. Other requested
metadata is replaced where RFC 7591, section 2, allows it, since assistants request whatever some
server may support. Metadata that would not work, or would grant more, is rejected.

Registration access tokens and endpoints to read or change a client (RFC 7592) are not implemented:
a client that lost its id registers again, and unused clients are deleted (``oauth.cleanup``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone
from oauth2_provider.models import get_application_model

from mcp_django.auth.credentials import client_ip, wide_network
from mcp_django.auth.limits import UNKNOWN, count_event, limit_key
from mcp_django.auth.security_log import record_event
from mcp_django.conf import REGISTER_SCOPE, get_settings
from mcp_django.models import TOKEN_PREFIX, AccessToken, AuthEvent
from mcp_django.oauth.cleanup import never_used_clients
from mcp_django.oauth.clients import OFFLINE_ACCESS, redirect_problem
from mcp_django.oauth.responses import allow_cross_origin, error_response
from mcp_django.protocol.text import printable
from mcp_django.transports.bodies import BodyRefused, read_body

MAX_REDIRECTS = 10
MAX_SCOPE_LENGTH = 4000
GRANTS = ("authorization_code", "refresh_token")
# The first is the default (RFC 7591, section 2).
AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")


class RegistrationError(Exception):
    """The metadata is rejected; ``code`` is an error code of RFC 7591, section 3.2.2."""

    def __init__(
        self, message: str, *, code: str = "invalid_client_metadata", status: int = 400
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


def parse_registration(metadata: Any) -> dict[str, Any]:
    """Validate a JSON document and return the metadata to register, as RFC 7591 names it.

    A member that is ``null`` is treated as absent.

    Raises:
        RegistrationError: if the metadata is rejected.
    """
    if not isinstance(metadata, dict):
        raise RegistrationError("Send a JSON object.")
    uris = _redirect_uris(metadata)
    name = printable(_string(metadata, "client_name"))
    grant_types = _strings(metadata, "grant_types", GRANTS)
    response_types = _strings(metadata, "response_types", ["code"])
    if GRANTS[0] not in grant_types or "code" not in response_types:
        raise RegistrationError(
            "A client that registers itself must use the grant type 'authorization_code' and the "
            "response type 'code'; ask the site owner to register any other client."
        )
    auth_method = _string(metadata, "token_endpoint_auth_method") or AUTH_METHODS[0]
    if auth_method not in AUTH_METHODS:
        raise RegistrationError(
            f"token_endpoint_auth_method must be one of {', '.join(sorted(AUTH_METHODS))}."
        )
    application_type = _string(metadata, "application_type") or "web"
    if application_type not in {"native", "web"}:
        raise RegistrationError("application_type must be 'native' or 'web'.")
    # Some clients register as ``web`` although they listen on the user's machine.
    is_remote = all(uri.startswith("https://") for uri in uris)
    # Without a scope that exists, a client gets all: each authorization request names its own.
    supported = [*get_settings().scopes, OFFLINE_ACCESS]
    requested = _string(metadata, "scope")[:MAX_SCOPE_LENGTH].split()
    scopes = [scope for scope in supported if scope in requested] or supported
    return {
        **({"client_name": name} if name else {}),
        "redirect_uris": uris,
        "grant_types": tuple(grant_type for grant_type in GRANTS if grant_type in grant_types),
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method,
        "application_type": application_type if is_remote else "native",
        "scope": " ".join(scopes),
    }


def _string(metadata: dict[str, Any], member: str) -> str:
    value = metadata.get(member)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RegistrationError(f"{member} must be a string.")
    return value


def _strings(metadata: dict[str, Any], member: str, default: Sequence[str]) -> list[str]:
    values = metadata.get(member)
    if values is None or values == []:
        return list(default)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RegistrationError(f"{member} must be an array of strings.")
    return list(dict.fromkeys(values))


def _redirect_uris(metadata: dict[str, Any]) -> tuple[str, ...]:
    refused = "invalid_redirect_uri"
    uris = metadata.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MAX_REDIRECTS:
        raise RegistrationError(
            f"redirect_uris must be an array of 1 to {MAX_REDIRECTS} URIs.", code=refused
        )
    for index, uri in enumerate(uris):
        if problem := redirect_problem(uri):
            raise RegistrationError(f"redirect_uris[{index}]: {problem}", code=refused)
    return tuple(dict.fromkeys(uris))


MAX_BYTES = 32 * 1024
HOUR = 3600
PER_ADDRESS_PER_HOUR = 20
# Lower than the site's limit, so that one network with many addresses cannot use it up.
PER_NETWORK_PER_HOUR = 100
PER_SITE_PER_HOUR = 1000
_BEARER = re.compile(rf"bearer +({TOKEN_PREFIX}[A-Za-z0-9\-._~+/]{{1,200}}=*)", re.IGNORECASE)


@allow_cross_origin("POST")
def register(request: HttpRequest) -> HttpResponseBase:
    """Register a client: respond with 201 and the registered metadata, or with a JSON error.

    The response is the only place where the secret of a confidential client is shown. Limits: 20
    registrations an hour per address, 100 per network, 1000 per site; 32 KiB each.
    """
    mode = get_settings().oauth.dcr
    if mode == "off":
        return error_response(
            "access_denied",
            "Clients cannot register themselves here. Use a client id metadata document, or ask "
            "the site owner for a client id.",
            status=404,
        )
    if seconds := _count_registration(request):
        return error_response(
            "temporarily_unavailable",
            f"Too many registrations. Try again in {seconds} seconds.",
            status=429,
            headers={"Retry-After": str(seconds)},
        )
    owner = None
    if mode == "initial-token":
        token = _initial_token(request)
        if token is None:
            presented = "Authorization" in request.headers
            challenge = 'Bearer realm="register"' + (', error="invalid_token"' if presented else "")
            return error_response(
                "invalid_token" if presented else "access_denied",
                "Registration requires an access token of this site with the scope "
                f"'{REGISTER_SCOPE}'.",
                status=401,
                headers={"WWW-Authenticate": challenge},
            )
        owner = token.user
    try:
        answer = _create(request, parse_registration(_document(request)), owner)
    except RegistrationError as exc:
        return error_response(exc.code, str(exc), status=exc.status)
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    return JsonResponse(answer, status=201, headers=headers)


def _document(request: HttpRequest) -> Any:
    try:
        # Not ``request.body``: if its limit is exceeded, Django responds with an HTML page.
        body = read_body(request, MAX_BYTES)
    except BodyRefused as exc:
        raise RegistrationError(str(exc), status=exc.status) from exc
    except OSError as exc:
        raise RegistrationError("The request body is incomplete.") from exc
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise RegistrationError("Send a JSON object.") from exc


def _create(request: HttpRequest, metadata: dict[str, Any], owner: Any) -> dict[str, Any]:
    model = get_application_model()
    is_public = metadata["token_endpoint_auth_method"] == "none"
    client = model(
        name=metadata.get("client_name", ""),
        user=owner,
        redirect_uris=" ".join(metadata["redirect_uris"]),
        client_type=model.CLIENT_PUBLIC if is_public else model.CLIENT_CONFIDENTIAL,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
        registration_source=model.RegistrationSource.DCR,
    )
    # Saving the client hashes the secret.
    secret = client.client_secret
    try:
        client.full_clean()
    except ValidationError as exc:
        members = ", ".join(exc.message_dict)
        code = "invalid_redirect_uri" if "redirect_uris" in members else "invalid_client_metadata"
        raise RegistrationError(f"The site rejects the values of: {members}.", code=code) from exc
    client.save()
    record_event(
        AuthEvent.Kind.REGISTER,
        request=request,
        user=owner,
        client_id=client.client_id,
        name=client.name,
        redirect_uris=[uri.partition("?")[0][:200] for uri in metadata["redirect_uris"]],
    )
    answer = {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created.timestamp()),
        **metadata,
    }
    if not is_public:
        answer |= {"client_secret": secret, "client_secret_expires_at": 0}
    return answer


def _initial_token(request: HttpRequest) -> AccessToken | None:
    """Return the initial access token of the request; its user will own the client."""
    match = _BEARER.fullmatch(request.headers.get("Authorization", "").strip())
    if match is None:
        return None
    token = AccessToken.objects.find(match[1])
    if token is None or REGISTER_SCOPE not in token.scopes:
        return None
    # A registration is not for one server, so any server of the token is passed to ``allows``,
    # which checks the address limits of the token.
    server = next(iter(token.servers), "")
    return token if token.allows(server=server, address=client_ip(request)) else None


def _count_registration(request: HttpRequest) -> int:
    """Count the registration and return the seconds to wait, 0 if it is within the limits."""
    source, limit = limit_key(request, limit=PER_ADDRESS_PER_HOUR)
    counted = {source: limit}
    if source != UNKNOWN:
        counted[wide_network(source)] = PER_NETWORK_PER_HOUR
    for key, limit in counted.items():
        seconds = count_event("register", key, limit=limit, seconds=HOUR)
        if seconds:
            # Logged once an hour; otherwise the caller could fill the table.
            if not count_event("register:told", key, limit=1, seconds=HOUR):
                record_event(AuthEvent.Kind.RATE_LIMIT, request=request, limit="register")
            return seconds
    # Counted in the database, since each process may have its own cache. Clients that a user has
    # authorized are not counted, since users do not authorize an attacker's clients.
    recent = never_used_clients().filter(
        registration_source=get_application_model().RegistrationSource.DCR,
        created__gte=timezone.now() - timedelta(seconds=HOUR),
    )
    return HOUR if recent.count() >= PER_SITE_PER_HOUR else 0
