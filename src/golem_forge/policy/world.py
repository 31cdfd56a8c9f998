"""SandboxWorld: what the shell analysis may know of the machine, answered from a sandbox and the walls' PATH.

`program` finds what a command name would start; `operand` finds where a path would lead. Both resolve links, because
what is judged must be what is run or read. Of a program the first bytes are read, which tell a script.

Threat: a writable directory on PATH would let anything pose as `ls`, so only directories of root that others cannot
write count as the system's, and a program inside a zone never does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

from golem_forge.core.effects import Mark, Verb
from golem_forge.core.root_links import process_link
from golem_forge.core.verdict import Verdict
from golem_forge.policy.shell.world import Operand, Program
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Kind
from golem_forge.sandbox.walls.git_work_tree import is_repository, keeps_its_work_tree
from golem_forge.sandbox.walls.settings import PathRule

SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_OTHERS_MAY_WRITE: Final = stat.S_IWOTH
_BINARIES: Final = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""How programs for Linux and for macOS begin."""


def is_system_directory(directory: str) -> bool:
    """One of the usual program directories, owned by root and closed to others."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    safe = status.st_uid == 0 and not status.st_mode & _OTHERS_MAY_WRITE
    return directory in SYSTEM_PATH and stat.S_ISDIR(status.st_mode) and safe


class SandboxWorld:
    """Implements `CommandWorld`. `path` is the walls' PATH, in order; `shipped_rg` the ripgrep that Forge brings;
    `complete` tells of a virtual directory whether the walls know all that lies below it (None: they do not); `rules`
    are those that hold inside the walls."""

    def __init__(
        self,
        sandbox: Sandbox,
        path: Sequence[str] = SYSTEM_PATH,
        *,
        shipped_rg: str = "",
        complete: Callable[[str, bool], bool] | None = None,
        rules: Callable[[], Sequence[PathRule]] = tuple,
    ) -> None:
        self._rules = rules
        self._complete = complete
        self._sandbox = sandbox
        self._path = tuple(path)
        self._shipped_rg = shipped_rg

    def program(self, name: str) -> Program | None:
        if "/" in name:
            return self._program_at(name)
        for directory in self._path:
            found = os.path.join(directory, name)
            if _is_program(found):
                return self._described(found, system=is_system_directory(directory))
        if name == "rg" and _is_program(self._shipped_rg):
            return Program(os.path.realpath(self._shipped_rg), system=False, zone=False, shipped=True)
        return None

    def complete(self, virtual: str, *, hidden: bool = True) -> bool:
        return self._complete is not None and self._complete(virtual, hidden)

    def work_tree(self, place: str) -> str | None:
        here = self.operand(place, "/")
        if here.kind != "inside":
            return place
        parts = here.virtual.strip("/").split("/")
        while parts:
            virtual = f"/{'/'.join(parts)}"
            real = self.operand(virtual, "/").real
            if is_repository(real):
                return virtual if keeps_its_work_tree(real, self._host_path) else None
            parts.pop()
        return f"/{here.virtual.split('/')[1]}"

    def _host_path(self, path: str) -> str:
        try:
            place = self._sandbox.locate(path)
        except SandboxError:
            return path
        return place.zone.real(place.parts) if place.zone else path

    def holds_back(self) -> bool:
        return any(
            Verb.READ in rule.access and rule.verdict is not Verdict.PRE_APPROVED and self._touches(rule)
            for rule in self._rules()
        )

    def _touches(self, rule: PathRule) -> bool:
        roots = (self.operand(zone.virtual(()), "/") for zone in self._sandbox.zones.values())
        places = [name for root in roots for name in (root.virtual, root.outer) if name]
        near = any(_lies_in(rule.literal, place) or _lies_in(place, rule.literal) for place in places)
        return near or not rule.literal

    def operand(self, path: str, cwd: str) -> Operand:
        link = process_link(path)
        if link is not None and link.name == "cwd" and link.own and ".." not in path.split("/"):
            given = f"{cwd.rstrip('/')}/{link.rest}"
        else:
            given = path if path.startswith("/") else f"{cwd.rstrip('/')}/{path}"
        try:
            with self._sandbox.target(given, Verb.READ) as target:
                if target.zone is None:
                    return Operand("outside", target.virtual)
                return Operand(
                    "inside",
                    target.virtual,
                    real=target.real,
                    secret=Mark.SECRET_PATH in target.marks,
                    directory=target.kind is Kind.DIRECTORY,
                    outer=target.effect().outer,
                    exists=target.exists,
                )
        except SandboxError as error:
            shown = self._sandbox.virtualise(path)
            escapes = ".." in path.split("/")  # above the root of zones there is still something in the walls
            return Operand("bad", shown) if error.code == "INVALID_PATH" and not escapes else Operand("outside", shown)

    def _program_at(self, path: str) -> Program | None:
        """An absolute path: of a zone if one addresses it, else of the host. A relative one is never found here."""
        if not path.startswith("/"):
            return None
        try:
            with self._sandbox.target(path, Verb.READ) as target:
                runs = target.zone is not None and target.kind is Kind.FILE
                return Program(target.real, system=False, zone=True) if runs else None
        except SandboxError as error:
            if error.code not in ("ZONE_ACCESS_DENIED", "NO_SANDBOX"):
                return None
        if not _is_program(path):
            return None
        return self._described(path, system=is_system_directory(os.path.dirname(path)))

    def _described(self, found: str, *, system: bool) -> Program:
        real = os.path.realpath(found)
        zone = any(_lies_in(real, zone.host) for zone in self._sandbox.zones.values())
        return Program(real, system=system and not zone, zone=zone, script=_is_script(real))


def _is_program(path: str) -> bool:
    return bool(path) and os.path.isfile(path) and os.access(path, os.X_OK)


def _is_script(path: str) -> bool:
    """Whatever is no binary, with or without `#!`; also what cannot be read, for nobody knows what it is then."""
    try:
        with open(path, "rb") as file:
            return file.read(4) not in _BINARIES
    except OSError:
        return True


def _lies_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
