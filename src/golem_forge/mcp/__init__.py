"""MCP in both directions: servers of other programs (`client/`), this program's tools for MCP clients (`server/`), and
adapters for other frameworks (`bridges/`).

The MCP SDK is an optional extra because it is slow to import. `need_sdk` raises the ForgeError that says how to install
it; `missing` turns the ImportError of an SDK package into that error and returns any other ImportError unchanged.
`lazy_sdk` has the names of `mcp/sdk.py` and loads it when the first of them is used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from golem_forge.core.errors import EXTRAS, ForgeError, install_command
from golem_forge.core.lazy_module import LazyModule

__all__ = ["lazy_sdk", "missing", "need_sdk"]


if TYPE_CHECKING:
    from golem_forge.mcp import sdk as lazy_sdk
else:
    lazy_sdk = LazyModule("golem_forge.mcp.sdk")


def need_sdk() -> None:
    """Checks that the SDK is installed, before its first import. Raises a ForgeError that says how to get it."""
    if find_spec("mcp") is None:
        raise missing(ModuleNotFoundError("No module named 'mcp'", name="mcp"))


def missing(problem: ImportError) -> Exception:
    package = (problem.name or "").partition(".")[0]
    if package not in EXTRAS["mcp"]:
        return problem
    text = f"MCP needs the package {package.replace('_', '-')}: {install_command('mcp')}"
    return ForgeError(text, code="MCP_MISSING")
