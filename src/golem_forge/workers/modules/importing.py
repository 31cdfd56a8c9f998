"""Importing a tool module by its file, and a package's attribute by its path; and what a host refuses to import.

Threat: a module that imports another file of the program in a way no parser sees (a path built at run time). That file
is not in the trusted digest and may have been written by a model a minute ago, so whatever lies in a zone is refused.
This is a rail, not a wall: code that wants to run other code can; the walls hold either way.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from types import ModuleType
from typing import Any


def plain_name(file: str) -> str:
    """What other files of a program import it as; where that name is taken, one that is not."""
    stem = os.path.basename(file).removesuffix(".py")
    free = stem.isidentifier() and stem not in sys.modules and stem not in sys.stdlib_module_names
    return stem if free else f"forge_module_{stem}"


def import_file(file: str, name: str) -> ModuleType:
    """The module of a file, known to this process under a name from now on."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def import_attribute(path: str) -> Any:
    """`acme_tools.web:tools` → that object."""
    name, _, attribute = path.partition(":")
    value: Any = importlib.import_module(name)
    for part in attribute.split("."):
        value = getattr(value, part)
    return value


def refuse_below(refused: Sequence[str], allowed: Sequence[str]) -> None:
    """From now on no file below `refused` is imported, unless it is below `allowed` or where Python already looks."""
    shut = _directories(refused)
    opened = _directories([*allowed, *sys.path])

    def check(path: str) -> None:
        real = os.path.realpath(path)
        if real.startswith(shut) and not real.startswith(opened):
            raise ImportError(
                f"{real} is not part of the trusted module; import it by name at the top of a file that is"
            )

    # One common base has the method that both loaders of Python files read with.
    base: Any = next(cls for cls in SourceFileLoader.__mro__ if "get_data" in vars(cls))
    read, create = base.get_data, ExtensionFileLoader.create_module

    def get_data(self: Any, path: str) -> bytes:
        check(self.path)  # of the module, also where its compiled form is asked for
        content: bytes = read(self, path)
        return content

    def create_module(self: Any, spec: Any) -> Any:
        check(self.path)
        return create(self, spec)

    base.get_data = get_data
    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def _directories(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(path).rstrip("/") + "/" for path in paths if path)
