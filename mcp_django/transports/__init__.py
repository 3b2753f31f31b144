"""The transports: Streamable HTTP, HTTP+SSE, stdio and in-memory; all mounts share an HTTP core."""
