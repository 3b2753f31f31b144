"""Where an issuer publishes its keys (RFC 8414 and OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from urllib.parse import urlsplit

from mcp_django.auth.fetching import FetchFailed, fetch_json


def metadata_urls(issuer: str) -> tuple[str, ...]:
    """The addresses of the metadata of an issuer, the likeliest first.

    OpenID Connect appends to the issuer, RFC 8414 (section 3.1) inserts before its path.
    """
    base = issuer.rstrip("/")
    parts = urlsplit(base)
    origin = f"{parts.scheme}://{parts.netloc}"
    return (
        f"{base}/.well-known/openid-configuration",
        f"{origin}/.well-known/oauth-authorization-server{parts.path}",
    )


def find_jwks_url(issuer: str) -> str:
    """The address of an issuer's keys, as its metadata says it. Fetches up to two documents.

    Raises:
        FetchFailed: neither document can be had, or it is not the issuer's, or names no keys.
    """
    reasons = []
    for url in metadata_urls(issuer):
        try:
            document = fetch_json(url)
        except FetchFailed as exc:
            reasons.append(str(exc))
            continue
        if document.get("issuer") != issuer:
            reasons.append(f"{url} is of another issuer than {issuer}.")
            continue
        found = document.get("jwks_uri")
        if isinstance(found, str) and found:
            return found
        reasons.append(f"{url} has no jwks_uri.")
    raise FetchFailed(" ".join(reasons))
