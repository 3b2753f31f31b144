"""The server that the official conformance suite drives, and the tests that run the suite."""
