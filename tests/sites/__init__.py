"""Sites that tests share, and sites of other projects (Wagtail, django-oscar, django-helpdesk).

Those of other projects have an environment each, kept in the cache. `python -m tests.sites`
runs all of them, `python -m tests.sites wagtail8 oscar` these two.
"""
