"""Sessions over HTTP, their streams and fan-out, also with real processes that share it."""
