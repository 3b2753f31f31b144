"""Skills that a site has as folders, and what every skill is made of."""
