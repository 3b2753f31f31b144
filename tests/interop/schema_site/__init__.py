"""A site whose tools have schemas and values that clients are known to reject or to misread."""

SITE = "tests.interop.schema_site"
