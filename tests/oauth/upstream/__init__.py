"""Third-party authorization."""
