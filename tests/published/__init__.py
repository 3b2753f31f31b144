"""Validate every message that tests get from the server by the published schema of its revision.

`definitions` validates a message, `listening` determines the request and the revision that it
belongs to, and `doors` patches the clients through which tests get messages.
"""
