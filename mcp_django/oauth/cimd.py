"""Client ID Metadata Documents: the client id is the URL of the client's metadata document.

The toolkit stores the clients; this module fetches and validates their documents. A document is
fetched only while a signed-in user is at the authorization endpoint. Otherwise, anonymous callers
could make the site request URLs of their choice (SSRF, load). The other endpoints use the stored
client, however old its document is.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.core.cache import cache
from django.http.request import validate_host
from oauth2_provider.cimd import CIMDError, SafeMetadataFetcher
from oauth2_provider.settings import oauth2_settings

from mcp_django.auth import outbound
from mcp_django.conf import get_settings
from mcp_django.oauth.clients import is_redirect_allowed
from mcp_django.protocol.text import printable

MAX_URL_LENGTH = 255
MAX_REDIRECTS = 20
GRANTS = ("authorization_code", "refresh_token")
_URL = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,10})", re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class DocumentAccess:
    """Whether a request of the authorization endpoint may fetch documents, and what became of it.

    The endpoint sets it as ``mcp_oauth`` on its request and on the requests that it has oauthlib
    check; other requests have none.
    """

    is_allowed: bool
    """Whether an active user is signed in."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why documents were not fetched, by client id."""
    fetched: set[str] = field(default_factory=set)
    """The ids of the clients whose documents were fetched."""

    def take_problems(self) -> Mapping[str, str]:
        """Return why documents were rejected since the last call, by client id.

        The toolkit reports only that such a client is unknown.
        """
        reasons = {client_id: _cached_problem(client_id) for client_id in self.fetched}
        problems = self.refused | {client_id: why for client_id, why in reasons.items() if why}
        self.refused, self.fetched = {}, set()
        return problems


def document_access_of(request: Any) -> DocumentAccess | None:
    """Return the access that the authorization endpoint has set, ``None`` on other requests.

    A parameter of a client is an attribute of oauthlib's request as well, but always a text.
    """
    access = getattr(request, "mcp_oauth", None)
    return access if isinstance(access, DocumentAccess) else None


class SignedInOnly:
    """Allow fetching a document of ``OAUTH["CIMD_HOSTS"]`` while a signed-in user authorizes."""

    def has_permission(self, request: Any, client_id: str) -> bool:
        """Return whether the document may be fetched now; called before any request is sent."""
        access = document_access_of(request)
        if access is None or not access.is_allowed:
            return False
        try:
            _check_permitted(client_id)
        except CIMDError as exc:
            access.refused[client_id] = str(exc)
            return False
        # While the reason of an earlier failure is kept, the toolkit does not try again.
        if not _cached_problem(client_id):
            access.fetched.add(client_id)
        return True


class Fetcher(SafeMetadataFetcher):  # type: ignore[misc]  # has no types
    """Fetch a document and reduce it to the metadata that an MCP client may have.

    ``resolve`` and ``transport`` access the network; tests replace them.
    """

    def __init__(
        self,
        resolve: outbound.Resolve = outbound.resolve_host,
        transport: outbound.Transport = outbound.https_get,
    ) -> None:
        self.resolve = resolve
        self.transport = transport

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        """Return the document and its lifetime in seconds.

        Raises:
            CIMDError: if the URL, the response or the document is not acceptable.
        """
        try:
            response = self._get(_parse_client_id(client_id))
            document = validate_document(_document(response), client_id)
        except (CIMDError, outbound.FetchFailed) as exc:
            # The reason is kept until the toolkit tries again.
            seconds = oauth2_settings.CIMD_FAILURE_BACKOFF_SECONDS
            cache.set(outbound.cache_key("document", client_id), str(exc), seconds)
            raise CIMDError(str(exc)) from exc
        # The lifetime is that of ``Cache-Control``, within the toolkit's bounds.
        least = int(oauth2_settings.CIMD_METADATA_MIN_AGE_SECONDS)
        most = int(oauth2_settings.CIMD_METADATA_MAX_AGE_SECONDS)
        control = response.headers.get("cache-control", "").lower()
        if "no-store" in control or "no-cache" in control:
            return document, least
        match = _MAX_AGE.search(control)
        return document, max(least, min(int(match[1]), most)) if match else most

    def _get(self, url: SplitResult) -> outbound.OutboundResponse:
        host, port = url.hostname or "", url.port or 443
        deadline = time.monotonic() + oauth2_settings.CIMD_FETCH_TIMEOUT_SECONDS
        path = url.path + (f"?{url.query}" if url.query else "")
        problem = outbound.FetchFailed("The host did not respond in time.")
        for address in outbound.public_addresses(host, port, self.resolve):
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                break
            target = outbound.RequestTarget(address=address, host=host, port=port, path=path)
            try:
                return self.transport(target, oauth2_settings.CIMD_MAX_DOCUMENT_SIZE, seconds)
            except outbound.FetchFailed as exc:
                problem = exc
        raise problem


def recent_document_problem(access: DocumentAccess, client_id: str) -> str:
    """Return why the client's document was rejected, now or recently, or an empty string."""
    return access.refused.get(client_id) or _cached_problem(client_id)


def _cached_problem(client_id: str) -> str:
    return str(cache.get(outbound.cache_key("document", client_id), ""))


def find_document_problem(client_id: str) -> str:
    """Fetch the client's document and return why it is rejected, or an empty string.

    Only for management commands of the site owner: other callers have to be signed in.
    """
    try:
        _check_permitted(client_id)
        oauth2_settings.CIMD_METADATA_FETCHER().fetch(client_id)
    except CIMDError as exc:
        return str(exc)
    return ""


def _check_permitted(client_id: str) -> None:
    """Reject a URL that this site does not request.

    Raises:
        CIMDError: if it is not a valid client id, or its host is not in ``OAUTH["CIMD_HOSTS"]``.
    """
    oauth = get_settings().oauth
    if not oauth.cimd:
        raise CIMDError("This site does not accept client metadata documents.")
    if not validate_host(_parse_client_id(client_id).hostname or "", list(oauth.cimd_hosts)):
        raise CIMDError("This site does not accept documents from this host.")


def _parse_client_id(client_id: str) -> SplitResult:
    """Return the parts of a client id.

    Raises:
        CIMDError: if it is not an https URL with a host and a path, or has a user name or dot
            segments.
    """
    if len(client_id) > MAX_URL_LENGTH or not _URL.fullmatch(client_id):
        raise CIMDError("The client id is too long, or has characters that a URL cannot have.")
    try:
        url = urlsplit(client_id)
        port = url.port
    except ValueError as exc:
        raise CIMDError("The client id is not a valid URL.") from exc
    if url.scheme != "https" or not url.hostname or port == 0 or "@" in url.netloc:
        raise CIMDError("The client id is not an https URL with a host.")
    segments = url.path.lower().replace("%2e", ".").split("/")
    if not url.path or {".", ".."} & set(segments):
        raise CIMDError("The client id has no path, or one with dot segments.")
    return url


def _document(response: outbound.OutboundResponse) -> dict[str, Any]:
    if response.status != 200:
        raise CIMDError(f"The host responded with HTTP {response.status}.")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not re.fullmatch(r"application/(?:[a-z0-9!#$&^_.-]+\+)?json", kind):
        raise CIMDError("The content type of the document is not JSON.")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise CIMDError("The document is compressed, although that was not requested.")
    if len(response.body) > oauth2_settings.CIMD_MAX_DOCUMENT_SIZE:
        raise CIMDError("The document is too large.")
    try:
        document = json.loads(response.body)
    except (ValueError, RecursionError) as exc:
        raise CIMDError("The document is not valid JSON.") from exc
    if not isinstance(document, dict):
        raise CIMDError("The document is not a JSON object.")
    return document


def validate_document(document: dict[str, Any], client_id: str) -> dict[str, Any]:
    """Return the document reduced to what this site accepts.

    A client may prefer ``private_key_jwt``; if ``none`` is in its list of methods, it gets
    ``none``. Grant types other than codes and refresh tokens, and redirect URIs that the policy
    rejects, are left out.

    Raises:
        CIMDError: if the rest is not a usable client.
    """
    if document.get("client_id") != client_id:
        raise CIMDError("The client_id in the document is another one.")
    name = document.get("client_name")
    if not isinstance(name, str) or not printable(name):
        raise CIMDError("The document has no client_name.")
    if {"client_secret", "client_secret_expires_at"} & document.keys():
        raise CIMDError("The document has a client secret, which would be public.")
    methods = document.get("token_endpoint_auth_methods_supported")
    supports_none = isinstance(methods, list) and "none" in methods
    if document.get("token_endpoint_auth_method", "none") != "none" and not supports_none:
        raise CIMDError("The client does not support the authentication method 'none'.")
    grants = document.get("grant_types", list(GRANTS))
    grant_types = [grant for grant in grants if grant in GRANTS] if isinstance(grants, list) else []
    if GRANTS[0] not in grant_types:
        raise CIMDError("The client does not use the grant type 'authorization_code'.")
    uris = document.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MAX_REDIRECTS:
        raise CIMDError(f"The document has no redirect_uris, or more than {MAX_REDIRECTS}.")
    redirect_uris = [uri for uri in uris if is_redirect_allowed(uri)]
    if not redirect_uris:
        raise CIMDError("None of the redirect_uris is acceptable.")
    return document | {
        "client_name": printable(name),
        "token_endpoint_auth_method": "none",
        "grant_types": list(dict.fromkeys(grant_types)),
        "redirect_uris": list(dict.fromkeys(redirect_uris)),
    }
