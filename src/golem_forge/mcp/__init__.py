"""MCP both ways: other programs' servers in (`client/`), this program's tools out (`server/`)."""
