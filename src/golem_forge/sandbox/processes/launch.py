"""Launch: a child as the system will start it. Walls make one, `processes.start` uses it up.

Descriptors are handed over under fixed low numbers, because the inner stage is a plain `sh` that knows only these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.limits import Limits

ARGUMENTS: Final = 3
"""What the outer program (bwrap, the launcher) reads its own arguments from."""
FILTER: Final = 4
"""The seccomp program."""
INFO: Final = 5
"""Where bwrap says the pid of the namespace's first process."""
CONTROL: Final = 6
"""The launcher's lifeline: its end means that Forge is gone or wants the tree ended."""
GO: Final = 8
"""The inner stage waits here for one line, where something must be ready before the command starts."""
READY: Final = 9
"""The inner stage writes one byte here just before it starts the command."""


class Root(StrEnum):
    """What holds the whole tree together."""

    NAMESPACE = "namespace"
    """The first process of a pid namespace, named on INFO: killing it ends everything in it."""
    LAUNCHER = "launcher"
    """The started process itself, a subreaper: when CONTROL closes it ends everything below it and exits."""


@dataclass(slots=True, kw_only=True)
class Launch:
    argv: tuple[str, ...]
    """argv[0] is an absolute host path."""
    env: dict[str, str]
    """Exactly the child's environment."""
    root: Root
    limits: Limits = field(default_factory=Limits)
    descriptors: dict[int, int] = field(default_factory=dict)
    """Number in the child → our descriptor, closed once it is started. Not READY, INFO, GO, CONTROL nor 0–2, which
    `processes.start` makes itself."""
    before_go: Callable[[int], Awaitable[None]] | None = None
    """Called with the pid of the tree's root when the inner stage is ready; only then the command may start. Set: the
    inner stage waits on GO."""
    guard: Callable[[], bool] | None = None
    """Asked while the command runs; False: the walls are no longer what they were built as, and everybody is killed."""
    marker: str = ""
    """What the environment of everybody in the tree has in it and nobody else's: who a killed launcher leaves behind
    is found again by it. Empty: there is none."""
    refused: Callable[[str], SandboxError] | None = None
    """Makes the error of a start without a READY byte, from what the outer program said on stderr."""
    afterwards: Callable[[], None] | None = None
    """Called once, after the whole tree is gone (or was never started)."""
