"""Toolchains: what the person already has installed, found so that it works inside walls at once, read-only.

Takes their environment and home; gives the directories to show, the inner PATH in their order, the variables that lead
there, the credentials to mask inside, and what was refused with the reason. Pure but for a look at the disk.

A virtual environment in a zone needs nothing of its own: its interpreter is found if a manager of the table has it. One
elsewhere whose `bin` is on PATH is shown whole. What `pyvenv.cfg` says is deliberately never read: whoever writes in a
zone could name any directory there.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.walls.forbidden import Forbidden, is_below
from golem_forge.sandbox.walls.toolchain_table import CARRIED, MANAGERS, SELECTED, Manager

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""Shown in every walls, whole."""
_SYSTEM_STARTS: Final = tuple(f"{directory}/" for directory in SYSTEM)
ALWAYS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_FLEETING: Final = ("/run", "/var/run", "/proc", "/dev")
"""PATH entries there are links made for one shell; inside, the directory they lead to stands in for them."""
_SUSPECT: Final = re.compile(
    r"\.|id_|service-account|credentials|pip\.conf|.*\.(?:pem|key|p12|pfx|keystore|kdbx)", re.I
)
_MORE_SECRETS: Final = frozenset({"credentials", "credentials.toml", "pip.conf", ".condarc"})
_MOST_LINKS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchains:
    directories: tuple[str, ...] = ()
    """Host directories to show read-only at these very paths: real ones, and the spellings that lead there. None lies
    in another or in a system directory."""
    path: tuple[str, ...] = ()
    """The inner PATH, in order."""
    variables: dict[str, str] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    """Existing files and directories with credentials inside `directories`, at the top of each or known to the table;
    never links, which lead to another of these or out of sight. Names are not searched for deeper: certificate bundles
    of every toolchain are called `*.pem`."""
    declared: tuple[str, ...] = ()
    """Those of `directories` that `sandbox.read` named: people's own files, to be searched for secrets like a zone."""
    refused: tuple[tuple[str, str], ...] = ()
    """(directory, why it is not shown)."""


def find_toolchains(
    environ: Mapping[str, str],
    home: Path,
    *,
    forge_home: Path,
    extra_read: Sequence[str] = (),
    zones: Sequence[str] = (),
    shipped: str = "",
) -> Toolchains:
    """`zones`: their real host directories, which are shown anyway; `shipped`: the directory of Forge's own rg."""
    search = _Search(environ, home, forge_home, zones)
    search.show_declared(extra_read)
    entries = tuple(_entries(environ.get("PATH", "")))
    foreign = search.foreign(entries)
    roots = [(manager, root) for manager in MANAGERS for root in search.roots(manager, foreign)]
    for manager, root in roots:
        search.show_manager(manager, root)
    path = [inner for entry in entries if (inner := search.inner_entry(entry))]
    search.set_variables(roots)
    return search.result(path, shipped)


def without_toolchains(
    environ: Mapping[str, str],
    home: Path,
    *,
    forge_home: Path,
    extra_read: Sequence[str] = (),
    zones: Sequence[str] = (),
    shipped: str = "",
) -> Toolchains:
    """`sandbox.toolchains: off`: only the system's directories on PATH, and what `sandbox.read` names."""
    search = _Search(environ, home, forge_home, zones)
    search.show_declared(extra_read)
    path = [entry for entry in _entries(environ.get("PATH", "")) if in_system(entry) and in_system(_real(entry))]
    return search.result([entry for entry in path if os.path.isdir(entry)], shipped)


def in_system(path: str) -> bool:
    return f"{path}/".startswith(_SYSTEM_STARTS)


class _Search:
    """One look at the machine."""

    def __init__(self, environ: Mapping[str, str], home: Path, forge_home: Path, zones: Sequence[str]) -> None:
        self._environ = environ
        self._home = os.path.abspath(home)
        self._zones = tuple(zones)
        self._forbidden = Forbidden(self._home, os.fspath(forge_home), self._zones)
        self._shown: dict[str, str] = {}
        """Spelling → real path, of everything that is to be shown."""
        self._judged: dict[str, bool] = {}
        self._credentials: dict[str, None] = {}
        self._declared: list[str] = []
        self._refused: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def show_declared(self, directories: Iterable[str]) -> None:
        for directory in directories:
            if self._show(directory):
                real = self._shown.get(os.path.normpath(directory), "")
                self._declared += [path for path in dict.fromkeys((directory, real)) if real and not in_system(real)]
            elif not os.path.isdir(directory):
                self._refused[directory] = "is not a directory"

    def foreign(self, entries: Iterable[str]) -> tuple[str, ...]:
        """PATH entries that may lie in a manager. Not those in a zone, where anyone could lay out such a place."""
        return tuple(entry for entry in entries if not in_system(entry) and not self._in_zone(entry))

    def roots(self, manager: Manager, foreign: Sequence[str]) -> Iterator[str]:
        """The manager's roots that exist, the one that counts first."""
        named = (self._environ.get(name, "") for name in manager.variables)
        places = (self._place(place) for place in manager.places)
        seen: set[str] = set()
        for root in (*named, *places, *_around(manager, foreign)):
            folded = os.path.normpath(root) if root.startswith("/") else ""
            if folded and folded not in seen and os.path.isdir(folded):
                seen.add(folded)
                yield folded

    def show_manager(self, manager: Manager, root: str) -> None:
        for part in manager.show:
            self._show(os.path.join(root, part) if part else root)
        self._credentials |= {f"{root}/{name}": None for name in manager.credentials}
        if manager.links:
            for target in _links_in(os.path.normpath(os.path.join(root, manager.links))):
                self._show(target)

    def inner_entry(self, entry: str) -> str:
        """How a directory of the person's PATH is called inside; empty if it is not shown."""
        if self._in_zone(entry):
            return entry
        if in_system(entry):
            real = _real(entry)
            shown = os.path.isdir(entry) and (in_system(real) or self._show(real))
            return entry if shown else ""
        fleeting = any(is_below(entry, place) for place in _FLEETING) and _real(entry) != entry
        entry = _real(entry) if fleeting else entry
        if _is_environment(entry):
            self._show(os.path.dirname(entry))
        return entry if self._show(entry) else ""

    def set_variables(self, roots: Sequence[tuple[Manager, str]]) -> None:
        for manager, root in roots:
            if not self._visible(root if "" in manager.show else os.path.join(root, manager.show[0])):
                continue
            for name, below, needs in manager.sets:
                if name not in self._variables and os.path.exists(os.path.join(root, needs)):
                    self._variables[name] = os.path.normpath(os.path.join(root, below))
        for name in CARRIED:
            value = self._environ.get(name, "")
            if value.startswith("/") and self._visible(os.path.normpath(value)):
                self._variables[name] = value
        for name in SELECTED:
            belongs = {"PYENV_VERSION": "PYENV_ROOT", "RUSTUP_TOOLCHAIN": "RUSTUP_HOME"}[name]
            if self._environ.get(name) and belongs in self._variables:
                self._variables[name] = self._environ[name]

    def result(self, path: Sequence[str], shipped: str) -> Toolchains:
        directories = _outermost({*self._shown, *self._shown.values()})
        inner = dict.fromkeys((*path, *(entry for entry in ALWAYS if os.path.isdir(entry))))
        return Toolchains(
            directories=directories,
            path=(*inner, *((shipped,) if shipped and shipped not in inner else ())),
            variables=self._variables,
            masked=self._masked(directories),
            declared=tuple(self._declared),
            refused=tuple(self._refused.items()),
        )

    def _masked(self, directories: Sequence[str]) -> tuple[str, ...]:
        """Each secret by its real path, under every spelling it can be reached by."""
        secrets = (*self._credentials, *(path for one in directories for path in _secrets_in(one)))
        reals = dict.fromkeys(_real(path) for path in secrets if os.path.exists(path))
        reached = dict.fromkeys(
            spelled + path[len(real) :]
            for path in reals
            for shown, real in self._shown.items()
            for spelled in dict.fromkeys((shown, real))
            if is_below(path, real)
        )
        return tuple(path for path in reached if not in_system(path))

    def _show(self, directory: str) -> bool:
        """True: it will be seen inside, or is in any case."""
        directory = os.path.normpath(directory)
        if directory not in self._judged:
            self._judged[directory] = self._judge(directory)
        return self._judged[directory]

    def _judge(self, directory: str) -> bool:
        try:
            status = os.stat(directory)
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            return False
        real = _real(directory)
        if self._in_zone(real):
            return True
        if why := self._forbidden.why(directory, real, status):
            self._refused[directory] = why
            return False
        self._shown[directory] = real
        return True

    def _visible(self, path: str) -> bool:
        places = (*SYSTEM, *self._shown, *self._shown.values(), *self._zones)
        return os.path.isdir(path) and any(is_below(path, place) for place in places)

    def _place(self, written: str) -> str:
        if written.startswith("~/"):
            return self._home + written[1:]
        if written.startswith("@/"):
            data = self._environ.get("XDG_DATA_HOME", "")
            return (data if data.startswith("/") else f"{self._home}/.local/share") + written[1:]
        if written.startswith("$"):
            name, slash, rest = written[1:].partition("/")
            first = self._environ.get(name, "").split(":")[0]
            return f"{first}{slash}{rest}" if first else ""
        return written

    def _in_zone(self, path: str) -> bool:
        return any(is_below(path, zone) for zone in self._zones)


def _around(manager: Manager, foreign: Sequence[str]) -> Iterator[str]:
    """Roots that a PATH entry lies in."""
    if manager.inside is None:
        return
    for entry in foreign:
        match = manager.inside.fullmatch(entry)
        if match and os.path.exists(f"{match[1]}/{manager.proof}"):
            yield match[1]


def _is_environment(entry: str) -> bool:
    """Whether a PATH directory is the `bin` of an activated virtual environment. Shown alone it would do harm: its
    python would start as the one it was made from. Not where a project is its own environment: those are people's
    files."""
    around, name = os.path.split(entry)
    return name == "bin" and os.path.isfile(f"{around}/pyvenv.cfg") and not os.path.lexists(f"{around}/.git")


def _entries(path: str) -> Iterator[str]:
    """The absolute directories of a PATH, each once: a relative one would mean another place in every zone."""
    seen: set[str] = set()
    for entry in path.split(":"):
        folded = os.path.normpath(entry) if entry.startswith("/") else ""
        folded = folded[1:] if folded.startswith("//") else folded
        if folded and folded not in seen:
            seen.add(folded)
            yield folded


def _real(path: str) -> str:
    return os.path.realpath(path)


def _links_in(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            links = [entry.path for entry in found if entry.is_symlink()][:_MOST_LINKS]
    except OSError:
        return
    yield from (real for link in links if not is_below(real := _real(link), _real(directory)))


def _secrets_in(directory: str) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if _SUSPECT.match(name) and (name in _MORE_SECRETS or is_secret_name(name)):
            yield f"{directory}/{name}"


def _outermost(directories: Iterable[str]) -> tuple[str, ...]:
    """Without those that lie in another one or in the system's, shortest path first."""
    kept: list[str] = []
    for directory in sorted(directories):
        if not in_system(directory) and not any(is_below(directory, one) for one in kept):
            kept.append(directory)
    return tuple(kept)
