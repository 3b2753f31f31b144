"""Helpers for the tests of all folders: clients, servers, processes, databases, services."""
