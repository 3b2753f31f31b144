"""Where airports are, how far apart, and how to get from one to another."""
