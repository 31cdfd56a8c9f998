"""What both servers of Forge (the page, MCP over HTTP) share: where they listen, the guard, the HTTP server itself."""
