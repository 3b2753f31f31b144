"""The settings of all tests, on PostgreSQL, where the storage has to guarantee the same.

    pytest --ds tests.kit.settings_postgres tests/storage/test_streams.py …

`tests/storage/test_other_databases.py` runs the files of the storage like this.
"""

import os

from tests.conformance import shared
from tests.settings import *  # noqa: F403

# The test runner adds `test_` before the name, creates that database and drops it.
DATABASES = {"default": {**shared.database(shared.database_url(0)), "NAME": f"mcp_{os.getpid()}"}}
