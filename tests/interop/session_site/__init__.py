"""A site with a server for each handshake revision, so that a client has to come down to it."""

from mcp_django.protocol.revisions import HANDSHAKE

HANDSHAKES = tuple(revision.version for revision in HANDSHAKE)
