"""The settings of all tests, on SQLite as Django sets it up: no WAL, no transactions that wait."""

from tests.settings import *  # noqa: F403

del DATABASES["default"]["OPTIONS"]  # noqa: F405
