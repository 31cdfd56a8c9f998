"""Who decides about a tool's calls in the program around here, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from golem_forge.config.home import forge_home
from golem_forge.config.program import load_program
from golem_forge.policy.base import ApprovalBlock, ApprovalBlocks
from golem_forge.policy.who_decides import who_decides
from golem_forge.tools.tool import Tool
from golem_forge.workers.surroundings import approval_blocks
from golem_forge.workers.trust_cover import trust_store


def approval_note(tool: Tool, said: Mapping[str, ApprovalBlock] | None = None, directory: Path | str = ".") -> str:
    """`said`: by tool, what the block or server that brings it says."""
    home = forge_home()
    program = load_program(Path(directory).absolute(), home, trusted=trust_store(home).trusted)
    blocks = approval_blocks(program, {tool.name: tool}, [])
    return who_decides(tool, ApprovalBlocks(program=blocks.program, blocks={**blocks.blocks, **(said or {})}))
