"""The site as it answers."""
