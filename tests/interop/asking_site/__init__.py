"""A site whose one server asks its clients everything that a client can be asked."""
