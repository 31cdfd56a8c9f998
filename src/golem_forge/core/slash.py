"""How a person types the name of a tool: `/name`, and `/tool name` where a command of Forge has that name.

Threat: a tool called like a command. A list or a hint that says `/exit` runs it would send whoever follows it away.
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final = (
    "help", "tools", "tool", "t", "model", "clear", "status", "config", "exit", "rules", "why", "mcp", "sessions",
    "plan", "output", "trace", "rate", "web",
)  # fmt: skip
"""Forge's own; each wins over a tool of its name, in any case."""


def slash(tool: str) -> str:
    return f"/tool {tool}" if tool.lower() in COMMANDS else f"/{tool}"
