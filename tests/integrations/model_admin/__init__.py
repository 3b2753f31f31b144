"""The site's admin as a source."""
