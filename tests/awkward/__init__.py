"""A site that does nothing as usual; run with ``pytest --ds tests.awkward.settings tests/awkward``.

A user model of its own with UUID keys, no admin, two databases behind a router, naive times, no
root mount and no session middleware.
"""
