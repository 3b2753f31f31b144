"""``mcp doctor``: what each host does before its first call, replayed until a step fails."""
