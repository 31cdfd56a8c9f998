"""The Python that user tools run in: the one Forge itself was started with, without any of its packages.

Gives its real program, its version and the directory that walls have to show for it. A virtual environment's link is
not used: started by that, it would look for that environment.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.walls.forbidden import Forbidden
from golem_forge.sandbox.walls.job import HostDirectory
from golem_forge.sandbox.walls.toolchains import in_system

ALONE: Final = ("-E", "-s", "-S", "-B", "-X", "pycache_prefix=/forge/none")
"""No variables, no user site, no site-packages; nothing compiled is read or written beside the source: what runs
is what was shown."""
IN_ENVIRONMENT: Final = ("-E", "-s", "-B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    path: str
    prefix: str
    version: tuple[int, int, int]

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        """It stands where it was built to stand."""
        return () if in_system(self.prefix) else (HostDirectory(self.prefix, self.prefix),)

    @property
    def identity(self) -> str:
        return f"{sys.implementation.name} {'.'.join(map(str, self.version))} {self.path}"


def own_interpreter(forge_home: Path) -> Interpreter:
    """Raises Unusable where its directory must stay hidden."""
    prefix = os.path.realpath(sys.base_prefix)
    if not in_system(prefix):
        forbidden = Forbidden(os.path.expanduser("~"), os.fspath(forge_home))
        if why := forbidden.why(prefix, prefix, os.stat(prefix)):
            raise Unusable(
                Code.TOOLCHAIN_MISSING,
                f"Python tools cannot run: the directory of this Python {why}. Install Forge with another Python.",
            )
    return Interpreter(
        path=base_python(),
        prefix=prefix,
        version=sys.version_info[:3],
    )


@cache
def platform_name() -> str:
    """What a binary or a wheel was made for."""
    import platform

    return f"{sys.platform} {platform.machine()} {'-'.join(platform.libc_ver())}"
