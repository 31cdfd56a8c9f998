"""MCP in both directions: servers of other programs (`client/`), this program's tools for MCP clients (`server/`), and
adapters for other frameworks (`bridges/`).

The MCP SDK is an optional extra because it is slow to import. `need_sdk` raises the ForgeError that says how to install
it; `missing` turns the ImportError of an SDK package into that error and returns any other ImportError unchanged.
"""

from __future__ import annotations

from typing import Final

from golem_forge.core.errors import ForgeError

INSTALL: Final = "pip install 'golem-forge[mcp]'"
_OF_THE_EXTRA: Final = frozenset({"mcp", "mcp_types", "httpx2", "anyio", "starlette", "uvicorn", "sse_starlette"})


def need_sdk() -> None:
    """Before the SDK is imported for the first time. Raises the ForgeError that says how to get it."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise missing(ModuleNotFoundError("No module named 'mcp'", name="mcp"))


def missing(problem: ImportError) -> Exception:
    package = (problem.name or "").partition(".")[0]
    if package not in _OF_THE_EXTRA:
        return problem
    return ForgeError(f"MCP needs the package {package.replace('_', '-')}: {INSTALL}", code="MCP_MISSING")
