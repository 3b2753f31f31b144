"""A site with the audit packages, of which one model has all.

Run with ``pytest --ds tests.audit.settings tests/audit``, or with the settings
``tests.audit.settings_postgres``, where django-pghistory joins. ``python -m tests.audit`` prints
which user each package recorded, by kind of tool and by transport.
"""
