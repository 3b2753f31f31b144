"""The settings of all tests, on PostgreSQL: what the store promises is promised there too.

    pytest --ds tests.kit.settings_postgres tests/storage/test_streams.py …

`tests/storage/test_other_databases.py` runs the files of the store like this.
"""

import os

from tests.conformance import shared
from tests.settings import *  # noqa: F403

# The runner puts `test_` before the name, makes that database and drops it.
DATABASES = {"default": {**shared.database(shared.database_url(0)), "NAME": f"mcp_{os.getpid()}"}}
