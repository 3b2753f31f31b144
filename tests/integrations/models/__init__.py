"""Models of the site as tools and resources."""
