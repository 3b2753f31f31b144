"""The site that the page about clients and frameworks describes, with a record of each request."""

from __future__ import annotations

SITE = "tests.interop.framework_site"
