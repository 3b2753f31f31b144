"""``AuthorizationRequest``: what a client asks a user for, once everything in it was checked."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from django.core import signing

SALT = "mcp_django.oauth.authorize"
# How long a user may look at the page before he has to start again in his assistant.
MAX_AGE_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRequest:
    """An authorization request (RFC 6749, section 4.1.1; RFC 7636; RFC 8707) that may be shown.

    ``scopes`` are those of the asked ones that this client may have. ``resources`` are canonical
    URLs of endpoints of this site; ``is_bound`` says that the client named none and the site did.
    """

    client_id: str
    redirect_uri: str
    scopes: tuple[str, ...]
    resources: tuple[str, ...]
    code_challenge: str
    state: str = ""
    nonce: str = ""
    claims: str = ""
    is_bound: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The request in values of JSON; ``from_dict`` takes it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> AuthorizationRequest:
        """The request that ``as_dict`` gave.

        Raises:
            TypeError: it is something else.
        """
        lists: dict[str, Any] = {
            name: tuple(values.get(name, ())) for name in ("scopes", "resources")
        }
        return cls(**(values | lists))

    def sign(self, user: Any) -> str:
        """The request as text that travels through the page of one user, for an hour.

        The form then says nothing that the server did not check: there is no hidden field to
        tamper with but this one.
        """
        values = self.as_dict() | {"user": str(user.pk)}
        return signing.dumps(values, salt=SALT, compress=True)

    @classmethod
    def unsign(cls, text: str, user: Any) -> AuthorizationRequest:
        """The request that ``sign`` sealed for this user.

        Raises:
            BadSignature: it was tampered with, is older than an hour (``SignatureExpired``), or
                was shown to somebody else.
        """
        values = signing.loads(text, salt=SALT, max_age=MAX_AGE_SECONDS)
        if values.pop("user", None) != str(user.pk):
            raise signing.BadSignature("The request was shown to another user.")
        return cls.from_dict(values)

    def query(self, *, bound: bool) -> str:
        """The query of the request; with the resources the site chose only where ``bound``."""
        pairs = [
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", self.redirect_uri),
            ("scope", " ".join(self.scopes)),
            ("state", self.state),
            ("code_challenge", self.code_challenge),
            ("code_challenge_method", "S256"),
            ("nonce", self.nonce),
            ("claims", self.claims),
        ]
        if bound or not self.is_bound:
            pairs += [("resource", one) for one in self.resources]
        return urlencode([(name, value) for name, value in pairs if value])
