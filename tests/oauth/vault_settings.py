"""The site of the vault, for servers that tests start."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.oauth.vault"
