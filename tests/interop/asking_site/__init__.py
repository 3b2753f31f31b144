"""A site whose one server sends its clients every kind of client request."""
