"""Signs what clients send back, with keys that rotate (``SECRET_KEY_FALLBACKS``)."""

from __future__ import annotations

from django.core.signing import BadSignature, Signer as DjangoSigner


class SaltedSigner:
    """A ``django.core.signing`` signer for one purpose, in the form that ``protocol`` expects.

    Values signed for another purpose are invalid. Values signed with a key of
    ``SECRET_KEY_FALLBACKS`` are valid.
    """

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def sign(self, value: str) -> str:
        """Return the value with its signature."""
        return DjangoSigner(salt=self._salt).sign(value)

    def unsign(self, value: str) -> str:
        """Return the value without its signature.

        Raises:
            ValueError: the signature is invalid.
        """
        try:
            return DjangoSigner(salt=self._salt).unsign(value)
        except BadSignature as exc:
            raise ValueError("the signature is invalid") from exc


CURSOR_SIGNER = SaltedSigner("mcp_django.cursors")
