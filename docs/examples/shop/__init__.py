"""The example app of the documentation: a shop."""
