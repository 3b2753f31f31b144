"""The known MCP clients, and the configuration with which each connects to a server."""
