"""Names of user tools: which there may be, and which nobody can take.

The same rule for a folder placed by hand, one that is created and one that is imported. `__` separates MCP servers
from their tools; a reserved name, in any case, always stands for the built-in tool.
"""

from __future__ import annotations

import re
from typing import Final

from golem_forge.core.visible import visible

NAME: Final = re.compile(r"(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,63}\Z")

RESERVED: Final = frozenset({"create_custom_tool", "run_custom_tool", "exec_command", "write_stdin", "apply_patch"})

_SHOWN: Final = 100


def name_problem(name: str) -> str:
    """Why a tool cannot be called so; empty if it can."""
    if NAME.match(name):
        return ""
    shown = visible(name[:_SHOWN]).replace("\n", "\\n")
    return f"invalid tool name '{shown}': use letters, digits, '-' and '_', starting with a letter, at most 64, no '__'"


def is_reserved(name: str) -> bool:
    return name.lower() in RESERVED
