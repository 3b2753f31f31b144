"""The handlers of MCP methods, one module per group: request parameters in, outcome out."""
