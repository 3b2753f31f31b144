"""The demo site: an airport operations desk over the airports of the `airportsdata` package."""
