"""Tests of the site as a resource server, on every mount, with stored tokens."""
