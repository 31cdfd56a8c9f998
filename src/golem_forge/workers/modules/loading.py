"""`load_custom_tools`: the tools of a Python file for embedders, imported into this very process.

The file's code runs here, with everything this process may do, before any tool is called: only for files you would run
yourself. Worker files never come this way; their modules are imported inside the walls. Refuses (ConfigError) with the
same texts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from golem_forge.core.canonical import sha256_hex
from golem_forge.core.errors import ConfigError
from golem_forge.tools.tool import Tool
from golem_forge.workers.modules.exports import ExportError, load_failure, module_tools
from golem_forge.workers.modules.importing import import_file


def load_custom_tools(path: str | Path, tools: Iterable[str]) -> list[Tool]:
    """The named exports of a trusted Python file, in that order. Its own folder is on Python's path while it loads."""
    names = [tools] if isinstance(tools, str) else list(tools)
    shown, file = os.fspath(path), os.path.realpath(path)
    if not names:
        raise ConfigError(f"load_custom_tools({shown!r}): name at least one tool")
    if not os.path.isfile(file):
        raise ConfigError(f"Failed to load custom tools from {shown}: file not found")
    folder = os.path.dirname(file)
    sys.path.insert(0, folder)
    try:
        module = import_file(file, f"forge_module_{sha256_hex(file)[:16]}")  # never in the way of another `tools`
        return list(module_tools(module, names, shown).values())
    except ExportError as error:
        raise ConfigError(str(error)) from None
    except Exception as error:
        raise ConfigError(f"Failed to load custom tools from {shown}: {load_failure(error, file)}") from error
    finally:
        sys.path.remove(folder)
