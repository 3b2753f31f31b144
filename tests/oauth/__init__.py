"""Tests of a site that is both an authorization server and a resource server."""
