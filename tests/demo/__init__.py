"""The demo's plain code, without its database; tests/interop drives the site as a whole."""
