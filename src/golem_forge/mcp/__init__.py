"""MCP in both directions: servers of other programs (`client/`), this program's tools for MCP clients (`server/`), and
adapters for other frameworks (`bridges/`).

The MCP SDK is an optional extra because it is slow to import. `need_sdk` raises the ForgeError that says how to install
it; `missing` turns the ImportError of an SDK package into that error and returns any other ImportError unchanged.
"""

from __future__ import annotations

from golem_forge.core.errors import EXTRAS, ForgeError, install_command


def need_sdk() -> None:
    """Before the SDK is imported for the first time. Raises the ForgeError that says how to get it."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise missing(ModuleNotFoundError("No module named 'mcp'", name="mcp"))


def missing(problem: ImportError) -> Exception:
    package = (problem.name or "").partition(".")[0]
    if package not in EXTRAS["mcp"]:
        return problem
    text = f"MCP needs the package {package.replace('_', '-')}: {install_command('mcp')}"
    return ForgeError(text, code="MCP_MISSING")
