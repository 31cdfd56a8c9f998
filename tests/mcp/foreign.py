"""Servers and clients of others, as scripts/foreign_programs.py installed them: `argv` of each, and an environment
whose PATH leads to them, inside walls as well.

    walls = Walls(sandbox, host=WallsHost(environ=foreign.environ()), …)
    command, *args = foreign.everything()

Outside CI a test that needs one skips with the reason when it is not there; in CI it fails.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "foreign"
BIN = PLACE / "bin"
NODE_MODULES = PLACE / "lib" / "node_modules"
"""NODE_PATH for a script of ours that imports a package of theirs by `require`; `import` wants the file's own place."""
_MISSING = ROOT / "build" / "foreign.missing"


def path(name: str) -> str:
    """Of an installed program, host side; inside walls it is the same, once `environ()` is theirs."""
    program = BIN / name
    if not (PLACE / ".stamp").is_file() or not program.exists():
        reason = _MISSING.read_text() if _MISSING.is_file() else "run: make foreign"
        absent = f"{name} is not installed: {reason}"
        if os.environ.get("CI") == "true":
            pytest.fail(absent)
        pytest.skip(absent)
    return str(program)


def environ(**more: str) -> Mapping[str, str]:
    """This process's, with their programs first on PATH."""
    path("node")
    return {**os.environ, "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}", **more}


def node() -> list[str]:
    return [path("node")]


def npm(name: str) -> list[str]:
    """A program for node, by our node: the first line of such a file takes whichever is first on PATH."""
    return [*node(), path(name)]


def python() -> list[str]:
    """With mcp, fastmcp, pydantic-ai and openai-agents to import: scripts that are clients."""
    return [path("python")]


def langchain_python() -> list[str]:
    """With langchain, its MCP adapters and mcp 1 to import."""
    return [path("../langchain/bin/python")]


def everything(transport: str = "stdio") -> list[str]:
    """server-everything; with `streamableHttp` it listens on the variable PORT."""
    return [*npm("mcp-server-everything"), transport]


def filesystem(*roots: str) -> list[str]:
    return [*npm("mcp-server-filesystem"), *roots]


def memory() -> list[str]:
    """server-memory; keeps its graph in the file of the variable MEMORY_FILE_PATH."""
    return npm("mcp-server-memory")


def mcp_server_git(*words: str) -> list[str]:
    return [path("mcp-server-git"), *words]


def inspector(*words: str) -> list[str]:
    """`inspector("--method", "tools/list", "--", "forge", "mcp", "serve")` is its command line without the browser."""
    return [*npm("mcp-inspector"), "--cli", *words]


def conformance(*words: str) -> list[str]:
    return [*npm("conformance"), *words]


def typescript(script: Path) -> list[str]:
    """A script of ours for node that imports `@modelcontextprotocol/client` (modern) or `…/sdk` (legacy)."""
    return [*node(), str(script)]
