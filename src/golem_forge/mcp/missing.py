"""What is said when the extra `mcp` is not installed: the SDK is heavy, so the core goes without it.

Takes the ImportError of one of the two modules that import the SDK; gives the error to raise instead. One that names
another module than those of the extra is a fault of ours or of theirs, and is said as it is.
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
