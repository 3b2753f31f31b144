"""Path converters that leave to the site's other URLs what is not ours to answer."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.urls.converters import PathConverter, StringConverter

from mcp_django.conf import get_settings


class OIDCPath(StringConverter):
    """What follows the address of OpenID Connect's discovery, unless the toolkit serves that."""

    regex = "(?:/.*)?"

    def to_python(self, value: str) -> str:
        """The path.

        Raises:
            ValueError: the site is an OpenID provider by the toolkit, whose own document it is.
        """
        if is_openid_provider():
            raise ValueError(value)
        return value


class IssuerPath(PathConverter):
    """The path of the issuer and no other, ``o`` for ``https://shop.example/o``; else as above."""

    def to_python(self, value: str) -> str:
        """The path.

        Raises:
            ValueError: the issuer has another one, or the toolkit serves it.
        """
        if is_openid_provider() or value != urlsplit(get_settings().oauth.issuer).path.strip("/"):
            raise ValueError(value)
        return value


def is_openid_provider() -> bool:
    """Whether the site gives out ID tokens by the toolkit (``OIDC_ENABLED``)."""
    from oauth2_provider.settings import oauth2_settings

    return bool(oauth2_settings.OIDC_ENABLED)
