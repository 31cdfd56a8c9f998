"""What a person may set about walls, as plain data: limits of a child, what it may read besides zones, walls at all."""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one child process tree, whatever level of walls stands around it."""

    timeout_s: float | None = None
    """None: the caller watches the time itself."""
    memory: int = 2 * GIB
    """Private memory of the whole tree, in bytes."""
    processes: int = 256
    """Of the whole tree."""
    cpu_s: int = 600
    """Per process."""
    file_size: int = GIB
    """Per file, in bytes."""
    open_files: int = 1024
    output: int = 64 * MIB
    """Standard output and standard error together, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallSettings:
    read: tuple[str, ...] = ()
    """Further host directories that children may read (`sandbox.read`)."""
    toolchains: bool = True
    """False: `sandbox.toolchains: off`."""
    off: bool = False
    """True: `sandbox.walls: off`, by the person's own config or command line."""
    limits: Limits = field(default_factory=Limits)
