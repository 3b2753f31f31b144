"""Who asks for access and where the answer goes, in words that a user can judge (AUT-26, AUT-28).

A client chooses its own name, so the name is cleaned and never stands without how it is known.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from django.utils.translation import gettext as _
from oauth2_provider.models import get_application_model

from mcp_django.oauth.redirects import LOOPBACK

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
