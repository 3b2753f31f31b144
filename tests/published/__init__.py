"""Every message of the server, as tests hear it, judged by the published schema of its revision.

`definitions` knows what a message has to look like, `listening` which request and which revision
it belongs to, and `doors` the places where messages of ours go out in tests.
"""
