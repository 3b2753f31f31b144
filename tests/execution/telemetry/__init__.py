"""Tests of spans and metrics of every request."""
