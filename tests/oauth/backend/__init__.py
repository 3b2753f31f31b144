"""The site as a resource server, on every mount, with tokens as they are stored."""
