"""Management commands, and the code that they share."""
