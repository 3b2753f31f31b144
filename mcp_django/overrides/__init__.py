"""The admin's overrides and additions: what the site owner changes in the catalog of code."""
