"""LazyModule: a module that is loaded when the first of its names is used.

For libraries that take long to load and that few commands need. Those that many modules use stand here:

    from golem_forge.core.lazy_module import pydantic

Another one: type checkers see the import, Python sees this.

    if TYPE_CHECKING:
        from ruamel import yaml as ruamel
    else:
        ruamel = LazyModule("ruamel.yaml")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "asyncio", "hashlib", "pydantic", "pydantic_core", "ssl"]


class LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def __getattr__(self, name: str) -> Any:
        """Returns the module's attribute as it is now: who replaces it in the module replaces it here, too."""
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)


if TYPE_CHECKING:
    import asyncio
    import hashlib
    import ssl

    import pydantic
    import pydantic_core
else:
    asyncio = LazyModule("asyncio")
    hashlib = LazyModule("hashlib")
    pydantic = LazyModule("pydantic")
    pydantic_core = LazyModule("pydantic_core")
    ssl = LazyModule("ssl")
