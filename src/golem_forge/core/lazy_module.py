"""LazyModule: a module that is loaded when the first of its names is used.

For libraries that take long to load and that few commands need. Type checkers see the import, Python sees this:

    if TYPE_CHECKING:
        from ruamel import yaml as ruamel
    else:
        ruamel = LazyModule("ruamel.yaml")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Imports the module and stores the attribute, so that the next access does not come here."""
        self.__dict__[name] = value = getattr(import_module(self._name), name)
        return value
