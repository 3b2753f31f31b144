"""The shop that the examples of the documentation belong to."""
