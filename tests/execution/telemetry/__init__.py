"""Spans and measurements of every request."""
