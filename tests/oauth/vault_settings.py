"""The settings of the vault's site, for servers that tests start."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.oauth.vault"
