"""`forge mcp serve`: a worker's tools for any MCP client, over stdio and streamable HTTP."""
