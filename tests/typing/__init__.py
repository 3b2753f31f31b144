"""Files that only have to type-check: mypy reads them, pytest does not."""
