"""ToolResult ↔ MCP CallToolResult, under the import path it always had: `core.mcp_results` does it."""

from golem_forge.core.mcp_results import FRAME_KEY, RESULT_KEY, block_text, call_result, from_mcp, to_mcp

__all__ = ["FRAME_KEY", "RESULT_KEY", "block_text", "call_result", "from_mcp", "to_mcp"]
