"""The test suite: its tree mirrors the package, and `tests/spec` holds the requirement ledger."""
