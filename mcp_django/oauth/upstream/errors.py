"""What can come of asking a provider."""

from __future__ import annotations

RETRY_SECONDS = 10


class UpstreamRefused(Exception):
    """The provider said no for good: the access was revoked, expired or never given."""


class UpstreamUnavailable(Exception):
    """The provider gave no usable answer; it may after ``retry_after`` seconds."""

    retry_after = RETRY_SECONDS
