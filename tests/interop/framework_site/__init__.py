"""The site that the page about clients and frameworks describes, with a record of each request."""

SITE = "tests.interop.framework_site"
