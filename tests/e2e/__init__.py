"""The demo's admin in a real browser, with real clients beside it."""
