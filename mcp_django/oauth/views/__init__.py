"""The pages and endpoints of the authorization server."""

from __future__ import annotations
