"""Strangers talk to the demo site over a socket, with the server in another process."""
