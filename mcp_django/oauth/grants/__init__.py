"""Grants that the toolkit does not have."""
