"""Tests of third-party authorization."""
