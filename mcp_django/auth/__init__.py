"""Authentication and authorization: principals, backends, permissions and challenges."""
