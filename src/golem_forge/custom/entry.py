"""Entry: one valid tool folder as it was when it was last read, and the program it becomes once it is built."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from golem_forge.custom.manifest import Manifest
from golem_forge.sandbox.walls.job import HostDirectory

TOOL_DIR = "/forge/tool"
"""Where a tool's snapshot stands in full walls."""
BUILD_DIR = "/forge/build"
"""Where what was built from it stands."""


@dataclass(frozen=True, slots=True)
class FileFact:
    path: str
    """Relative, with `/`."""
    executable: bool
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    folder: Path
    manifest: Manifest
    digest: str
    """`sha256:` over every file of the folder."""
    files: tuple[FileFact, ...]

    @property
    def address(self) -> str:
        """As a model knows the folder."""
        return f"/user_tools/{self.name}"


class Kind(StrEnum):
    PYTHON = "python"
    SHELL = "shell"
    GO = "go"
    EXECUTABLE = "executable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is executed for a tool at one level of walls."""

    kind: Kind
    argv: tuple[str, ...]
    """The program without the call's own arguments. Python: interpreter and flags; `script` says what it runs."""
    script: str = ""
    tool_dir: str = TOOL_DIR
    """FORGE_TOOL_DIR: in full walls `/forge/tool`, elsewhere the snapshot's own place."""
    shown: tuple[HostDirectory, ...] = ()
    """The snapshot, what was built from it, and an interpreter outside the system directories."""
