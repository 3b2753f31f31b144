"""What a client says of itself when it registers (RFC 7591, section 2), and what becomes of it.

Only public and confidential clients of the authorization code grant register themselves. What a
client asks beyond that is replaced where the standard allows it, since hosts ask for whatever some
server may have; what would not work, or reaches further, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.oauth import redirects
from mcp_django.oauth.parties import printable
from mcp_django.oauth.scopes import OFFLINE_ACCESS

MAX_REDIRECTS = 10
MAX_SCOPE_LENGTH = 4000
GRANTS = ("authorization_code", "refresh_token")
# The first is what a client has that names none (RFC 7591, section 2).
AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")


class RegistrationError(Exception):
    """The metadata is not acceptable; ``code`` is one of RFC 7591, section 3.2.2."""

    def __init__(self, message: str, *, code: str = "invalid_client_metadata") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A client as it will be registered."""

    name: str
    redirect_uris: tuple[str, ...]
    grant_types: tuple[str, ...]
    auth_method: str
    application_type: str
    scopes: tuple[str, ...]

    @property
    def is_public(self) -> bool:
        """Whether the client keeps no secret."""
        return self.auth_method == "none"

    def as_metadata(self) -> dict[str, Any]:
        """All of it in the words of RFC 7591, for the answer."""
        return {
            **({"client_name": self.name} if self.name else {}),
            "redirect_uris": list(self.redirect_uris),
            "grant_types": list(self.grant_types),
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
            "application_type": self.application_type,
            "scope": " ".join(self.scopes),
        }


def parse(metadata: Any) -> Registration:
    """The registration that a JSON document asks for.

    ``null`` stands for a member that is absent.

    Raises:
        RegistrationError: it cannot be had.
    """
    if not isinstance(metadata, dict):
        raise RegistrationError("Send a JSON object.")
    uris = _redirect_uris(metadata)
    return Registration(
        name=printable(_string(metadata, "client_name")),
        redirect_uris=uris,
        grant_types=_grant_types(metadata),
        auth_method=_auth_method(metadata),
        application_type=_application_type(metadata, uris),
        scopes=_scopes(metadata),
    )


def _string(metadata: dict[str, Any], member: str) -> str:
    value = metadata.get(member)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RegistrationError(f"{member} is a string.")
    return value


def _strings(metadata: dict[str, Any], member: str, default: Sequence[str]) -> list[str]:
    values = metadata.get(member)
    if values is None or values == []:
        return list(default)
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise RegistrationError(f"{member} is an array of strings.")
    return list(dict.fromkeys(values))


def _redirect_uris(metadata: dict[str, Any]) -> tuple[str, ...]:
    refused = "invalid_redirect_uri"
    uris = metadata.get("redirect_uris")
    if not isinstance(uris, list) or not 0 < len(uris) <= MAX_REDIRECTS:
        raise RegistrationError(
            f"redirect_uris is an array of 1 to {MAX_REDIRECTS} addresses.", code=refused
        )
    for index, uri in enumerate(uris):
        if problem := redirects.problem(uri):
            raise RegistrationError(f"redirect_uris[{index}]: {problem}", code=refused)
    return tuple(dict.fromkeys(uris))


def _grant_types(metadata: dict[str, Any]) -> tuple[str, ...]:
    asked = _strings(metadata, "grant_types", GRANTS)
    kinds = _strings(metadata, "response_types", ["code"])
    if GRANTS[0] not in asked or "code" not in kinds:
        raise RegistrationError(
            "A client that registers itself uses the grant 'authorization_code' with the response "
            "type 'code'; ask the site for any other."
        )
    return tuple(one for one in GRANTS if one in asked)


def _auth_method(metadata: dict[str, Any]) -> str:
    method = _string(metadata, "token_endpoint_auth_method") or AUTH_METHODS[0]
    if method not in AUTH_METHODS:
        raise RegistrationError(
            f"token_endpoint_auth_method is one of {', '.join(sorted(AUTH_METHODS))}."
        )
    return method


def _application_type(metadata: dict[str, Any], uris: Sequence[str]) -> str:
    """What the addresses make of it: some clients say ``web`` and listen on the user's machine."""
    asked = _string(metadata, "application_type")
    if asked not in ("", "native", "web"):
        raise RegistrationError("application_type is 'native' or 'web'.")
    is_remote = all(uri.startswith("https://") for uri in uris)
    return "web" if is_remote and asked != "native" else "native"


def _scopes(metadata: dict[str, Any]) -> tuple[str, ...]:
    """Those asked for that exist, or all; each authorization says anew which ones it wants."""
    known = [*get_settings().scopes, OFFLINE_ACCESS]
    asked = _string(metadata, "scope")[:MAX_SCOPE_LENGTH].split()
    return tuple(scope for scope in known if scope in asked) or tuple(known)
