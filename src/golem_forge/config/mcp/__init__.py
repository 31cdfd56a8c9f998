"""MCP servers as configured: forge.yaml, the person's config and `.mcp.json` together, strictly read."""
