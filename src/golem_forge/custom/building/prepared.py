"""Prepared: a tool whose check or build succeeded, as the program that is started at each level of walls.

In full walls the snapshot stands at /forge/tool and what was built from it at /forge/build; at other levels both are
used where they are. Only what is needed is shown, all of it read-only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from golem_forge.custom.building.go_module import GO_CACHE, debug_command
from golem_forge.custom.building.interpreter import ALONE, IN_ENVIRONMENT, Interpreter
from golem_forge.custom.building.toolchains import Go
from golem_forge.custom.entry import BUILD_DIR, TOOL_DIR, Kind, Program
from golem_forge.sandbox.walls.job import HostDirectory
from golem_forge.sandbox.walls.levels import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    kind: Kind
    snapshot: str
    """Its real directory."""
    file: str
    """The entrypoint, in the snapshot."""
    out: str = ""
    """The real directory of what was built; empty: nothing had to be."""
    binary: str = ""
    """Of Go, in `out`."""
    interpreter: Interpreter | None = None
    shell: str = ""
    go: Go | None = None
    go_flags: tuple[str, ...] = ()
    """How its source is built where it stands in walls."""
    go_cache: str = ""
    """The real directory of compiled standard packages, if there is one."""

    def is_there(self) -> bool:
        """Whether what was built still is: its cache is safe to delete."""
        return not self.out or os.path.isdir(self.out)

    def program(self, level: Level) -> Program:
        return self._program(level, self._argv(level, debug=()), self._shown)

    def debug_program(self, level: Level) -> Program:
        """The source itself, with whatever its language tells somebody who looks for a mistake."""
        if self.kind is Kind.PYTHON:
            return self._program(level, self._argv(level, debug=("-X", "dev")), self._shown)
        if self.kind is Kind.SHELL:
            return self._program(level, self._argv(level, debug=("-x",)), self._shown)
        if self.kind is Kind.GO and self.go is not None and level is Level.FULL:
            argv = debug_command(self.go, self.binary, self.go_flags, cached=bool(self.go_cache))
            cache = (HostDirectory(self.go_cache, GO_CACHE),) if self.go_cache else ()
            return self._program(level, argv, (*self._shown, *self.go.shown, *cache))
        return self.program(level)

    @property
    def _shown(self) -> tuple[HostDirectory, ...]:
        return (
            HostDirectory(self.snapshot, TOOL_DIR),
            *((HostDirectory(self.out, BUILD_DIR),) if self.out else ()),
            *(self.interpreter.shown if self.interpreter else ()),
        )

    def _program(self, level: Level, argv: tuple[str, ...], shown: tuple[HostDirectory, ...]) -> Program:
        tool_dir = self._tool_dir(level)
        return Program(
            kind=self.kind,
            argv=argv,
            script=os.path.join(tool_dir, self.file) if self.kind is Kind.PYTHON else "",
            tool_dir=tool_dir,
            shown=shown,
        )

    def _tool_dir(self, level: Level) -> str:
        return TOOL_DIR if level is Level.FULL else self.snapshot

    def _argv(self, level: Level, *, debug: tuple[str, ...]) -> tuple[str, ...]:
        built = BUILD_DIR if level is Level.FULL else self.out
        if self.kind is Kind.PYTHON:
            assert self.interpreter is not None
            if self.out:
                return (os.path.join(built, "bin", "python"), *debug, *IN_ENVIRONMENT)
            return (self.interpreter.path, *debug, *ALONE)
        if self.kind is Kind.SHELL:
            return (self.shell, *debug, os.path.join(self._tool_dir(level), self.file))
        if self.kind is Kind.GO:
            return (os.path.join(built, self.binary),)
        return (os.path.join(self._tool_dir(level), self.file),)
