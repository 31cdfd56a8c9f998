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

__all__ = ["LazyModule", "asyncio", "pydantic", "pydantic_core", "ssl"]


class LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Imports the module and stores the attribute, so that the next access does not come here."""
        self.__dict__[name] = value = getattr(import_module(self._name), name)
        return value


if TYPE_CHECKING:
    import asyncio
    import ssl

    import pydantic
    import pydantic_core
else:
    asyncio = LazyModule("asyncio")
    pydantic = LazyModule("pydantic")
    pydantic_core = LazyModule("pydantic_core")
    ssl = LazyModule("ssl")
