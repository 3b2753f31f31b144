"""What the owner of a site makes of its servers in the admin, laid over what code declares."""
