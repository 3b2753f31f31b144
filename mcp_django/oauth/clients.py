"""OAuth clients: authentication, display to users, scopes, redirect URIs and time of last use.

Authentication here is for the grants and endpoints that the toolkit does not provide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from oauth2_provider.models import get_application_model
from oauth2_provider.scopes import BaseScopes
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request

from mcp_django.conf import get_settings, is_loopback
from mcp_django.oauth.conf import MAX_REDIRECT, REDIRECT, DeclaredScopes, app_redirect_problem
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.responses import OAuthError
from mcp_django.protocol.text import printable
from mcp_django.server import all_servers
from mcp_django.storage.writer import note_use


def authenticate_client(request: HttpRequest) -> Any:
    """Authenticate the client of a form; a public client only has to send its client id.

    Raises:
        OAuthError: if the client is unknown or not authenticated (401, ``invalid_client``).
    """
    oauthlib_request = _as_oauthlib(request)
    validator = oauth2_settings.OAUTH2_VALIDATOR_CLASS()
    if validator.client_authentication_required(oauthlib_request):
        is_authenticated = validator.authenticate_client(oauthlib_request)
    else:
        is_authenticated = validator.authenticate_client_id(
            oauthlib_request.client_id, oauthlib_request
        )
    if (
        not is_authenticated
        or oauthlib_request.client is None
        or oauthlib_request.client_id not in ("", None, oauthlib_request.client.client_id)
    ):
        raise OAuthError.invalid_client()
    return oauthlib_request.client


def find_client(client_id: str) -> Any:
    """Return the client with exactly this id, ``None`` if there is none."""
    client = get_application_model().objects.filter(client_id=client_id).first()
    # The column is the toolkit's, so the database may ignore case, accents and blanks.
    return client if client is not None and client.client_id == client_id else None


def authenticate_confidential_client(request: HttpRequest) -> Any:
    """Authenticate the confidential client of a form.

    Raises:
        OAuthError: if the client is unknown, public or not authenticated.
    """
    client = authenticate_client(request)
    if client.client_type != client.CLIENT_CONFIDENTIAL:
        raise OAuthError.invalid_client()
    return client


class OAuthlibHttpRequest(HttpRequest):
    """A Django request made from an oauthlib request, with ``META`` and method only."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.META = dict(request.headers)
        self.method = request.http_method

    def _get_scheme(self) -> str:
        # The toolkit sets this header and drops any that a client sends.
        return "https" if self.META.get("X_DJANGO_OAUTH_TOOLKIT_SECURE") else "http"


def _as_oauthlib(request: HttpRequest) -> Request:
    """Return the request as an oauthlib request for the toolkit's validator."""
    pairs = [(name, value) for name, values in request.POST.lists() for value in values]
    headers = {name: value for name, value in request.META.items() if isinstance(value, str)}
    if request.is_secure():
        headers["X_DJANGO_OAUTH_TOOLKIT_SECURE"] = "1"
    else:
        headers.pop("X_DJANGO_OAUTH_TOOLKIT_SECURE", None)
    return Request(request.path, request.method or "POST", urlencode(pairs), headers)


# The client and the redirect host, as users see them on the consent page. A client chooses its own
# name, so the name is cleaned and always shown with a badge for how the client was registered.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDisplay:
    """A client as the pages show it; ``source`` is how it was registered."""

    client_id: str
    name: str
    source: Literal["cimd", "dcr", "user", "manual", "gone"]

    @property
    def host(self) -> str:
        """Return the host of the client's metadata document, empty for other clients."""
        return (urlsplit(self.client_id).hostname or "") if self.source == "cimd" else ""

    @property
    def badge(self) -> str:
        """Return a label that tells users how far they can trust the name."""
        return {
            "cimd": _("Published by %(host)s") % {"host": self.host},
            "manual": _("Approved by this site"),
            "user": _("Registered by a user of this site, not verified"),
            "gone": _("No longer registered"),
            "dcr": _("Registered itself, not verified"),
        }[self.source]


def client_display(application: Any) -> ClientDisplay:
    """Return a registered client as the pages show it."""
    source: Literal["cimd", "dcr", "user", "manual"]
    if application.registration_source == "cimd":
        source = "cimd"
    elif application.registration_source != "manual":
        source = "dcr"
    else:
        # On the toolkit's pages, any user can register a client.
        owner = application.user
        source = "manual" if owner is None or getattr(owner, "is_staff", False) else "user"
    client_id = application.client_id
    host = urlsplit(client_id).hostname if source == "cimd" else ""
    name = printable(application.name) or host or _("Unnamed client")
    return ClientDisplay(client_id=client_id, name=name, source=source)


def client_displays(client_ids: set[str]) -> dict[str, ClientDisplay]:
    """Return the clients by id, including those no longer registered, with one query."""
    applications = (
        get_application_model().objects.filter(client_id__in=client_ids).select_related("user")
    )
    displays = {application.client_id: client_display(application) for application in applications}
    for client_id in client_ids - displays.keys():
        displays[client_id] = ClientDisplay(
            client_id=client_id, name=printable(client_id), source="gone"
        )
    return displays


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where an authorization response is sent: a web host, this computer, or an app on it."""

    shown: str
    kind: Literal["web", "loopback", "app"]


def destination_of(redirect_uri: str) -> Destination:
    """Return the destination of a redirect URI; the host in ASCII, against lookalike letters."""
    parts = urlsplit(redirect_uri)
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    if scheme not in ("http", "https"):
        return Destination(shown=f"{scheme}://{host}" if host else f"{scheme}:", kind="app")
    shown = parts.netloc.rpartition("@")[2].lower()
    if not shown.isascii():
        try:
            shown = shown.encode("idna").decode()
        except UnicodeError:
            shown = ascii(shown).strip("'")
    return Destination(shown=shown, kind="loopback" if is_loopback(host) else "web")


# Which scopes exist, and which of them a client may request (RFC 6749, section 3.3). Clients that
# registered themselves get only the scopes of ``MCP_DJANGO["SCOPES"]``; manually registered clients
# may also have the scopes of the site's other APIs. ``offline_access`` is accepted, because
# assistants request it by default, but grants nothing.

OFFLINE_ACCESS = "offline_access"
MANUAL = "manual"


class Scopes(BaseScopes):  # type: ignore[misc]  # has no types
    """The toolkit's scopes backend; the value of ``SCOPES_BACKEND_CLASS``."""

    def get_all_scopes(self) -> dict[str, str]:
        """Return every scope of the site with its description."""
        inert = {OFFLINE_ACCESS: "Stay connected"}
        return inert | site_scopes() | dict(get_settings().scopes)

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """Return the scopes that a client may request."""
        return [*requestable_scopes(application), OFFLINE_ACCESS]

    def get_default_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """Return the scopes for a request that names none: those that the site's servers require.

        A client of the site's other APIs that names no server (RFC 8707) gets the toolkit's
        ``DEFAULT_SCOPES``.
        """
        is_other = is_manually_registered(application) and not getattr(request, "resource", None)
        scopes = site_scopes() if is_other else {}
        if not scopes:
            return required_scopes(all_servers())
        # The toolkit's own property for these scopes caches its first value.
        names = oauth2_settings.DEFAULT_SCOPES
        return list(scopes) if "__all__" in names else [name for name in names if name in scopes]


def requestable_scopes(application: Any) -> dict[str, str]:
    """Return the scopes that a client may be granted, with descriptions; no ``offline_access``."""
    declared = dict(get_settings().scopes)
    return site_scopes() | declared if is_manually_registered(application) else declared


def allowed_scopes(scopes: Iterable[str], application: Any) -> list[str]:
    """Return the requested scopes that the client may have, without duplicates, in order.

    Unknown scopes are dropped and cause no error (RFC 6749, section 3.3), since assistants request
    every scope that they have ever seen.
    """
    requestable = requestable_scopes(application)
    return [scope for scope in dict.fromkeys(scopes) if scope in requestable]


def required_scopes(servers: Iterable[Any]) -> list[str]:
    """Return the declared scopes that these servers require of every caller."""
    declared = get_settings().scopes
    needed = (scope for server in servers for scope in server.scopes)
    return [scope for scope in dict.fromkeys(needed) if scope in declared]


def is_manually_registered(application: Any) -> bool:
    """Return whether the client was registered manually, by the site or one of its users."""
    return application is not None and application.registration_source == MANUAL


def site_scopes() -> dict[str, str]:
    """Return the scopes of the site's other APIs, if it sets ``OAUTH2_PROVIDER["SCOPES"]``."""
    scopes = oauth2_settings.SCOPES
    return {} if isinstance(scopes, DeclaredScopes) else dict(scopes)


def update_last_used(client_id: str) -> None:
    """Store that a client got a token now; written at most once a minute.

    The time is stored so that unused clients can be deleted. A client in use gets a token at least
    once an hour. The time of the last call is stored in the access token (``oauth.backend``).
    """
    profile, _is_new = ClientProfile._default_manager.get_or_create(
        client_id=client_id, defaults={"last_used_at": timezone.now()}
    )
    note_use(profile)


# Redirect URIs ------------------------------------------------------------------------------------

# The policy for clients that register themselves (RFC 8252; RFC 9700, section 2.1). Allowed are
# ``https`` URIs, ``http`` URIs of the user's own machine, and the private-use URIs listed in
# ``OAUTH["APP_REDIRECTS"]``. The toolkit compares a requested URI with the registered ones:
# exactly, except for the port of a loopback address.

# The loopback addresses whose port the toolkit ignores (RFC 8252, section 7.3), and no others.
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def redirect_problem(uri: object) -> str:
    """Return why a redirect URI is not allowed, as a sentence, or an empty string."""
    if not isinstance(uri, str) or not uri:
        return "A redirect URI must be a non-empty string."
    if len(uri) > MAX_REDIRECT:
        return f"A redirect URI must have at most {MAX_REDIRECT} characters."
    if not REDIRECT.fullmatch(uri):
        return "A redirect URI must not contain a fragment, space, control character or backslash."
    if uri in get_settings().oauth.app_redirects and not app_redirect_problem(uri):
        return ""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "A redirect URI must have a valid host and port."
    if parts.scheme not in ("http", "https") or not uri.startswith(f"{parts.scheme}://"):
        return (
            "A redirect URI must be https, or http on localhost, 127.0.0.1 or [::1], or one of the "
            "application URIs that this site lists."
        )
    if not host or "*" in host or "%" in host or port == 0:
        return "A redirect URI must name one host."
    if "@" in parts.netloc:
        return "A redirect URI must not contain a user name."
    if parts.scheme == "http" and host not in LOOPBACK_HOSTS:
        return "An http redirect URI must be on localhost, 127.0.0.1 or [::1]; use https elsewhere."
    return ""


def is_redirect_allowed(uri: object) -> bool:
    """Return whether a client may register the redirect URI."""
    return not redirect_problem(uri)
