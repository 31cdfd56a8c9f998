"""A session's MCP servers, seen from the workers: its pool, its cards, and the session behind `forge mcp serve`."""
