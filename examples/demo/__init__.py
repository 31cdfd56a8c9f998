"""The guided demo: repair/ from trust to resume, then toolmaker/ and mcp/; on copies. `make demo` runs it."""
