"""A site that does nothing as usual.

Run with ``pytest --migrations --ds tests.sites.awkward.settings tests/sites/awkward``.

A user model of its own with UUID keys, no admin, three databases behind a router that keeps members
and tokens out of the default one, naive times, no root mount and no session middleware.
"""
