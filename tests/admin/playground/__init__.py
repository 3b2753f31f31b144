"""Try it."""
