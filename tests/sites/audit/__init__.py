"""A site with the audit packages, of which one model has all.

Run with ``pytest --ds tests.sites.audit.settings tests/sites/audit``, or with the settings
``tests.sites.audit.settings_postgres``, where django-pghistory joins. The command
``python -m tests.sites.audit`` prints which user each package recorded, by kind of tool and by
transport.
"""
