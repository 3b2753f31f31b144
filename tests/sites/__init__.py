"""Sites of other projects, each with its packages in an environment of its own.

`python -m tests.sites` runs all of them, `python -m tests.sites wagtail8 oscar` these two. The
environments are kept in `.ci/cache/sites`.
"""
