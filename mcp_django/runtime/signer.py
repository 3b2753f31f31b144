"""``django.core.signing`` in the two-method form that the pure layer knows.

Key rotation comes with it: a cursor signed under a key of ``SECRET_KEY_FALLBACKS`` still holds.
"""

from __future__ import annotations

from django.core.signing import BadSignature
from django.core.signing import Signer as DjangoSigner


class SaltedSigner:
    """Signs for one purpose; a value signed for another does not hold."""

    def __init__(self, salt: str) -> None:
        self._salt = salt

    def sign(self, value: str) -> str:
        """The value with its signature."""
        return DjangoSigner(salt=self._salt).sign(value)

    def unsign(self, value: str) -> str:
        """The value without its signature.

        Raises:
            ValueError: the signature does not hold.
        """
        try:
            return DjangoSigner(salt=self._salt).unsign(value)
        except BadSignature as exc:
            raise ValueError("the signature does not hold") from exc


CURSORS = SaltedSigner("mcp_django.cursors")
