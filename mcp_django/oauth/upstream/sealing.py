"""Encryption of what a provider gave us, under ``OAUTH["FIELD_KEYS"]``.

These keys are apart from ``SECRET_KEY``, since they are rotated for other reasons: the first one
encrypts, all of them decrypt. A row that none of them opens is as good as revoked.
"""

from __future__ import annotations

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.views.decorators.debug import sensitive_variables

from mcp_django.conf import get_settings
from mcp_django.oauth.upstream.errors import UpstreamRefused


@sensitive_variables()
def seal(plaintext: str) -> bytes:
    """The text, encrypted and authenticated."""
    return _keys().encrypt(plaintext.encode())


@sensitive_variables()
def unseal(ciphertext: bytes | memoryview) -> str:
    """What was sealed.

    Raises:
        UpstreamRefused: no key in force opens it.
    """
    try:
        return _keys().decrypt(bytes(ciphertext)).decode()
    except InvalidToken:
        raise UpstreamRefused("No key of FIELD_KEYS opens what is stored.") from None


def reseal(ciphertext: bytes | memoryview) -> bytes:
    """The same, under the first key.

    Raises:
        UpstreamRefused: no key in force opens it.
    """
    try:
        return _keys().rotate(bytes(ciphertext))
    except InvalidToken:
        raise UpstreamRefused("No key of FIELD_KEYS opens what is stored.") from None


def _keys() -> MultiFernet:
    return MultiFernet([Fernet(key) for key in get_settings().oauth.field_keys])
