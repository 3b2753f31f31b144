"""The authorization server and the resource server, as a site with both has them."""
