"""Calls that go on after their request: made by ``creating``, run by ``job`` wherever ``engine``
brings them, which is what the site's own task backend is for.
"""
