"""Who is calling: principals, authentication backends, permissions and challenges."""
