"""The site of the vault, for servers that tests start."""

from tests.settings import *  # noqa: F403

ROOT_URLCONF = "tests.oauth.vault"
