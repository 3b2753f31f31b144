"""Bytes in, bytes out: one HTTP core and the mounts that decide where its parts run."""
