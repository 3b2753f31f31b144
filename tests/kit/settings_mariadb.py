"""The settings of all tests, on MariaDB, whose collations ignore case, accents and blanks.

    pytest --ds tests.kit.settings_mariadb tests/oauth/test_lookalikes.py …

`tests/storage/test_other_databases.py` runs files like this.
"""

import os

import pymysql

from tests.conformance import shared
from tests.settings import *  # noqa: F403

# Django's own driver has to be compiled; this driver is written in Python and replaces it.
pymysql.install_as_MySQLdb()

DATABASES = {"default": {**shared.database(shared.mariadb_url()), "NAME": f"mcp_{os.getpid()}"}}
