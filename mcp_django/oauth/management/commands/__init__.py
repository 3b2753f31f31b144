"""Commands of the authorization server."""
