"""OAuth clients: how they authenticate, how users see them, their scopes, and their last use.

Authentication is for the grants and endpoints that the toolkit does not serve.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from oauth2_provider.models import get_application_model
from oauth2_provider.scopes import BaseScopes
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request

from mcp_django.conf import get_settings
from mcp_django.oauth.conf import DeclaredScopes
from mcp_django.oauth.models import ClientProfile
from mcp_django.oauth.redirects import LOOPBACK
from mcp_django.oauth.responses import Refused
from mcp_django.server import all_servers


def identify(request: HttpRequest) -> Any:
    """The client of a form: one that has a secret or keys has proven so, a public one is believed.

    Raises:
        Refused: it is unknown, or did not prove who it is (401, ``invalid_client``).
    """
    asked = _as_oauthlib(request)
    validator = oauth2_settings.OAUTH2_VALIDATOR_CLASS()
    if validator.client_authentication_required(asked):
        known = validator.authenticate_client(asked)
    else:
        known = validator.authenticate_client_id(asked.client_id, asked)
    if (
        not known
        or asked.client is None
        or asked.client_id not in ("", None, asked.client.client_id)
    ):
        raise Refused.client()
    return asked.client


def identify_confidential(request: HttpRequest) -> Any:
    """The client of a form, which has proven who it is.

    Raises:
        Refused: it is unknown, public, or did not prove who it is.
    """
    client = identify(request)
    if client.client_type != client.CLIENT_CONFIDENTIAL:
        raise Refused.client()
    return client


class HandedOn(HttpRequest):
    """The part of a Django request that the toolkit hands to its validator: the environment."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.META = dict(request.headers)
        self.method = request.http_method

    def _get_scheme(self) -> str:
        # The toolkit says so in a header that it takes from nobody else.
        return "https" if self.META.get("X_DJANGO_OAUTH_TOOLKIT_SECURE") else "http"


def _as_oauthlib(request: HttpRequest) -> Request:
    """A request as the toolkit's validator takes it."""
    pairs = [(name, value) for name, values in request.POST.lists() for value in values]
    headers = {name: value for name, value in request.META.items() if isinstance(value, str)}
    if request.is_secure():
        headers["X_DJANGO_OAUTH_TOOLKIT_SECURE"] = "1"
    else:
        headers.pop("X_DJANGO_OAUTH_TOOLKIT_SECURE", None)
    return Request(request.path, request.method or "POST", urlencode(pairs), headers)


# Client and destination in words ------------------------------------------------------------------

# Which client asks for access and where the answer goes, in words that a user can judge (AUT-26,
# AUT-28). A client chooses its own name, so the name is cleaned and never stands without how the
# client is known.

NAME_LENGTH = 120


def printable(text: str, *, limit: int = NAME_LENGTH) -> str:
    """Text in one line, without control characters, changes of direction and invisible ones."""
    spaced = " ".join(unicodedata.normalize("NFC", text).split())
    line = "".join(one for one in spaced if one.isprintable()).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A client as the pages show it; ``source`` says how the site came to know it."""

    client_id: str
    name: str
    source: Literal["cimd", "dcr", "user", "manual", "gone"]

    @property
    def host(self) -> str:
        """The host that published the client's document, empty for other clients."""
        return (urlsplit(self.client_id).hostname or "") if self.source == "cimd" else ""

    @property
    def badge(self) -> str:
        """How far the name can be believed."""
        if self.source == "cimd":
            return _("Published by %(host)s") % {"host": self.host}
        if self.source == "manual":
            return _("Approved by this site")
        if self.source == "user":
            return _("Registered by a user of this site, not verified")
        if self.source == "gone":
            return _("No longer registered")
        return _("Registered itself, not verified")

    @property
    def is_dynamic(self) -> bool:
        """Whether nobody of this site has looked at the client."""
        return self.source != "manual"


def party_of(application: Any) -> Party:
    """How the pages show a registered client."""
    source = application.registration_source
    client_id = application.client_id
    name = printable(application.name)
    return Party(
        client_id=client_id,
        name=name
        or (urlsplit(client_id).hostname if source == "cimd" else "")
        or _("Unnamed client"),
        source=_source(application),
    )


def _source(application: Any) -> Literal["cimd", "dcr", "user", "manual"]:
    """How the site came to know a client; on the toolkit's pages any user can register one."""
    source = application.registration_source
    if source == "cimd":
        return "cimd"
    if source != "manual":
        return "dcr"
    owner = application.user
    return "manual" if owner is None or getattr(owner, "is_staff", False) else "user"


def parties(client_ids: set[str]) -> dict[str, Party]:
    """The clients of these ids, also those that are not registered any more. One query."""
    applications = (
        get_application_model().objects.filter(client_id__in=client_ids).select_related("user")
    )
    known = {one.client_id: party_of(one) for one in applications}
    return {one: known.get(one) or _gone(one) for one in client_ids}


def _gone(client_id: str) -> Party:
    return Party(client_id=client_id, name=printable(client_id), source="gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the answer of an authorization goes: a host, this computer, or an app on it."""

    shown: str
    kind: Literal["web", "loopback", "app"]


def destination_of(redirect_uri: str) -> Destination:
    """Where a redirect URI leads; the host in ASCII, so that no letter looks like another."""
    parts = urlsplit(redirect_uri)
    scheme, host = parts.scheme.lower(), parts.hostname or ""
    if scheme not in ("http", "https"):
        return Destination(shown=f"{scheme}://{host}" if host else f"{scheme}:", kind="app")
    return Destination(
        shown=_ascii(parts.netloc.rpartition("@")[2].lower()),
        kind="loopback" if host in LOOPBACK else "web",
    )


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ascii(host).strip("'")


# Scopes -------------------------------------------------------------------------------------------

# Which scopes exist, and which of them a client may ask for (RFC 6749, section 3.3). Clients that
# registered themselves see the scopes of ``MCP_DJANGO["SCOPES"]`` alone; clients that were
# registered by hand may also have what the site's other APIs use. ``offline_access`` is known to
# the authorization server, because hosts add it unasked, and grants nothing.

OFFLINE_ACCESS = "offline_access"
MANUAL = "manual"


class Scopes(BaseScopes):  # type: ignore[misc]  # has no types
    """What the toolkit asks about scopes; the value of ``SCOPES_BACKEND_CLASS``."""

    def get_all_scopes(self) -> dict[str, str]:
        """Every scope of the site with its description."""
        inert = {OFFLINE_ACCESS: "Stay connected"}
        return inert | site_scopes() | dict(get_settings().scopes)

    def get_available_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """What a client may ask for without being refused."""
        return [*requestable(application), OFFLINE_ACCESS]

    def get_default_scopes(
        self, application: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> list[str]:
        """What a client gets that asks for nothing: what the servers of the site need of everybody.

        A client of the site's other APIs that names no server (RFC 8707) gets what the toolkit is
        configured to give.
        """
        is_other = is_manual(application) and not getattr(request, "resource", None)
        return _site_defaults() if is_other and site_scopes() else baseline(all_servers())


def requestable(application: Any) -> dict[str, str]:
    """What a client may be granted, with the descriptions; never ``offline_access``."""
    declared = dict(get_settings().scopes)
    return site_scopes() | declared if is_manual(application) else declared


def granted(asked: Iterable[str], application: Any) -> list[str]:
    """What a client gets of what it asks for: each known scope once, in the order asked.

    Unknown ones are dropped rather than refused (RFC 6749, section 3.3), since hosts ask for every
    scope that they have ever seen.
    """
    known = requestable(application)
    return [scope for scope in dict.fromkeys(asked) if scope in known]


def baseline(servers: Iterable[Any]) -> list[str]:
    """What some servers need of every caller, as far as it is declared."""
    declared = get_settings().scopes
    needed = (scope for server in servers for scope in server.scopes)
    return [scope for scope in dict.fromkeys(needed) if scope in declared]


def is_manual(application: Any) -> bool:
    """Whether somebody registered the client by hand, and so knows it."""
    return application is not None and application.registration_source == MANUAL


def site_scopes() -> dict[str, str]:
    """The scopes of the site's other APIs: its own ``OAUTH2_PROVIDER["SCOPES"]``."""
    scopes = oauth2_settings.SCOPES
    return {} if isinstance(scopes, DeclaredScopes) else dict(scopes)


def _site_defaults() -> list[str]:
    # Not by the toolkit's own property, which keeps what it saw first.
    names, scopes = oauth2_settings.DEFAULT_SCOPES, site_scopes()
    return list(scopes) if "__all__" in names else [name for name in names if name in scopes]


# When clients were last used ----------------------------------------------------------------------

# Noted so that unused clients can be deleted. It is noted where tokens are issued, which every
# client that is in use asks for at least once an hour. Calls are noted in the token that they
# came with (``oauth.backend``).

RESOLUTION = timedelta(minutes=1)


def note_use(client_id: str) -> None:
    """Note that a client got a token, at most once a minute."""
    now = timezone.now()
    profile, created = ClientProfile._default_manager.get_or_create(
        client_id=client_id, defaults={"last_used_at": now}
    )
    if created or (profile.last_used_at and now - profile.last_used_at < RESOLUTION):
        return
    ClientProfile._default_manager.filter(pk=profile.pk).update(last_used_at=now)
