"""Toolchains: what the user has installed, found so that it works inside walls at once, read-only.

Takes the user's environment and home; returns the directories to show, the inner PATHs in order, the variables that
lead there, the credentials to mask inside, and what was refused with the reason. A virtual environment in a zone
needs nothing of its own; one elsewhere whose `bin` is on PATH is shown whole. `pyvenv.cfg` is never read: whoever
writes in a zone could name any directory there. MANAGERS is the table of version managers, as data: a root is found
by a variable, at a usual place, or from a PATH entry that lies inside it.

ForbiddenDirectories says why a directory must not be shown. Threat: one careless PATH entry (`~`, `/`, a link to
either) would show keys, rules and grants to every command; so a directory is judged by its spelling, by its real
path, and by identity against what it may contain. Threat: Forge is started from a project's activated environment, and
a command replaces its `python3`; so what leads into a zone is on the PATH of commands alone, not on that of hooks,
reviewers, user tools and servers.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.sandbox.handles import identity_of
from golem_forge.sandbox.host import SYSTEM, is_below
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.zones import identities_above

_SYSTEM_STARTS: Final = tuple(f"{directory}/" for directory in SYSTEM)
ALWAYS: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_FLEETING: Final = ("/run", "/var/run", "/proc", "/dev")
"""PATH entries there are links made for one shell; inside, the directory they lead to stands in for them."""
_SUSPECT: Final = regex(r"\.|id_|service-account|credentials|pip\.conf|.*\.(?:pem|key|p12|pfx|keystore|kdbx)", re.I)
_MORE_SECRETS: Final = frozenset({"credentials", "credentials.toml", "pip.conf", ".condarc"})
_MOST_LINKS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleToolchains:
    directories: tuple[str, ...] = ()
    """Host directories to show read-only at these very paths: real ones, and the spellings that lead there. None lies
    in another or in a system directory."""
    path: tuple[str, ...] = ()
    """The inner PATH, in order. Nothing of it leads into a zone, where a command could have put another program."""
    command_path: tuple[str, ...] = ()
    """PATH of commands; it also has the person's directories that lie in a zone."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables for children; none of them leads into a zone."""
    command_variables: dict[str, str] = field(default_factory=dict)
    masked: tuple[str, ...] = ()
    """Existing files and directories with credentials inside `directories`, at the top of each or known to the table;
    never links, which lead to another of these or out of sight. Names are not searched for deeper: certificate bundles
    of every toolchain are called `*.pem`."""
    declared: tuple[str, ...] = ()
    """The `directories` that `sandbox.read` named: people's own files, searched for secrets like a zone."""
    refused: tuple[tuple[str, str], ...] = ()
    """Each directory that is not shown, with the reason."""


def find_toolchains(
    environ: Mapping[str, str],
    home: Path,
    *,
    forge_home: Path,
    extra_read: Sequence[str] = (),
    zones: Sequence[str] = (),
    changed: Sequence[str] = (),
    shipped: str = "",
    only_system: bool = False,
) -> VisibleToolchains:
    """`zones`: their real host directories, which are shown anyway; `changed`: more directories that commands may
    change, of workers with more zones; `shipped`: the directory of Forge's own rg.
    `only_system` (`sandbox.toolchains: off`): only the system's directories on PATH, and what `sandbox.read` names."""
    search = _Search(environ, home, forge_home, zones, changed)
    search.show_declared(extra_read)
    entries = tuple(_entries(environ.get("PATH", "")))
    if only_system:
        there = (entry for entry in entries if in_system(entry) and os.path.isdir(entry))
        return search.result([entry for entry in there if in_system(os.path.realpath(entry))], shipped)
    foreign = search.foreign(entries)
    roots = [(manager, root) for manager in MANAGERS for root in search.roots(manager, foreign)]
    for manager, root in roots:
        search.show_manager(manager, root)
    path = [inner for entry in entries if (inner := search.inner_entry(entry))]
    search.set_variables(roots)
    return search.result(path, shipped)


def in_system(path: str) -> bool:
    return f"{path}/".startswith(_SYSTEM_STARTS)


class _Search:
    def __init__(
        self, environ: Mapping[str, str], home: Path, forge_home: Path, zones: Sequence[str], changed: Sequence[str]
    ) -> None:
        self._environ = environ
        self._home = os.path.abspath(home)
        self._zones = tuple(zones)
        real = os.path.realpath(home)
        # What holds the home directory is no zone to write in.
        self._changed = (*zones, *(each for each in changed if not is_below(real, each)))
        self._forbidden = ForbiddenDirectories(self._home, os.fspath(forge_home), self._zones)
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

    def roots(self, manager: VersionManager, foreign: Sequence[str]) -> Iterator[str]:
        """The manager's roots that exist, the one that counts first."""
        named = (self._environ.get(name, "") for name in manager.variables.split())
        places = (self._place(place) for place in manager.places.split())
        seen: set[str] = set()
        for root in (*named, *places, *_around(manager, foreign)):
            folded = os.path.normpath(root) if root.startswith("/") else ""
            if folded and folded not in seen and os.path.isdir(folded):
                seen.add(folded)
                yield folded

    def show_manager(self, manager: VersionManager, root: str) -> None:
        for part in manager.show:
            self._show(os.path.join(root, part) if part else root)
        self._credentials |= {f"{root}/{name}": None for name in manager.masked}
        if manager.links:
            for target in _links_in(os.path.normpath(os.path.join(root, manager.links))):
                self._show(target)

    def inner_entry(self, entry: str) -> str:
        """Returns the path inside of a directory on the person's PATH; empty if it is not shown."""
        if self._in_zone(entry):
            return entry
        if in_system(entry):
            real = os.path.realpath(entry)
            shown = os.path.isdir(entry) and (in_system(real) or self._show(real))
            return entry if shown else ""
        fleeting = any(is_below(entry, place) for place in _FLEETING) and os.path.realpath(entry) != entry
        entry = os.path.realpath(entry) if fleeting else entry
        if _is_environment(entry):
            self._show(os.path.dirname(entry))
        return entry if self._show(entry) else ""

    def set_variables(self, roots: Sequence[tuple[VersionManager, str]]) -> None:
        for manager, root in roots:
            if not self._visible(root if "" in manager.show else os.path.join(root, manager.show[0])):
                continue
            name, needs = manager.variables.split()[0], manager.sets_if
            if needs is not None and name not in self._variables and os.path.exists(os.path.join(root, needs)):
                self._variables[name] = root
        for name in CARRIED:
            value = self._environ.get(name, "")
            if value.startswith("/") and self._visible(os.path.normpath(value)):
                self._variables[name] = value
        for name, belongs in SELECTED.items():
            if self._environ.get(name) and belongs in self._variables:
                self._variables[name] = self._environ[name]

    def result(self, path: Sequence[str], shipped: str) -> VisibleToolchains:
        safe = [entry for entry in path if not self._may_change(entry)]
        if len(safe) < len(path):
            safe += self._own_python(safe)
        directories = _outermost({*self._shown, *self._shown.values()})
        return VisibleToolchains(
            directories=directories,
            path=_with_system(safe, shipped),
            command_path=_with_system(path, shipped),
            variables={name: value for name, value in self._variables.items() if not self._may_change(value)},
            command_variables=self._variables,
            masked=self._masked(directories),
            declared=tuple(self._declared),
            refused=tuple(self._refused.items()),
        )

    def _own_python(self, path: Sequence[str]) -> list[str]:
        """Returns the directory of Forge's own Python if a PATH without zones has none, so that `#!/usr/bin/env
        python3` works.
        """
        prefix = os.path.realpath(sys.base_prefix)
        programs = os.path.join(prefix, "bin")
        if any(os.access(f"{entry}/python3", os.X_OK) for entry in (*path, *ALWAYS)):
            return []
        usable = os.access(f"{programs}/python3", os.X_OK) and not self._may_change(prefix) and self._show(prefix)
        return [programs] if usable else []

    def _masked(self, directories: Sequence[str]) -> tuple[str, ...]:
        """Each secret by its real path, under every spelling it can be reached by."""
        secrets = (*self._credentials, *(path for one in directories for path in _secrets_in(one)))
        reals = dict.fromkeys(os.path.realpath(path) for path in secrets if os.path.exists(path))
        reached = dict.fromkeys(
            spelled + path[len(real) :]
            for path in reals
            for shown, real in self._shown.items()
            for spelled in dict.fromkeys((shown, real))
            if is_below(path, real)
        )
        return tuple(path for path in reached if not in_system(path))

    def _show(self, directory: str) -> bool:
        """Whether a directory is or will be visible inside."""
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
        real = os.path.realpath(directory)
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

    def _may_change(self, path: str) -> bool:
        """Whether a command could change what is found there, however it is spelled."""
        return any(is_below(each, place) for each in (path, os.path.realpath(path)) for place in self._changed)


def _with_system(path: Sequence[str], shipped: str) -> tuple[str, ...]:
    inner = dict.fromkeys((*path, *(entry for entry in ALWAYS if os.path.isdir(entry))))
    return (*inner, *((shipped,) if shipped and shipped not in inner else ()))


def _around(manager: VersionManager, foreign: Sequence[str]) -> Iterator[str]:
    """Yields the roots of a version manager that PATH entries lie in."""
    for entry in foreign if manager.inside else ():
        match = re.fullmatch(f"(/.+?)/{manager.inside}", entry)
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


def _links_in(directory: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as found:
            links = [entry.path for entry in found if entry.is_symlink()][:_MOST_LINKS]
    except OSError:
        return
    yield from (real for link in links if not is_below(real := os.path.realpath(link), os.path.realpath(directory)))


def _secrets_in(directory: str) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if _SUSPECT.match(name) and (name in _MORE_SECRETS or is_secret_name(name)):
            yield f"{directory}/{name}"


def _outermost(directories: Iterable[str]) -> tuple[str, ...]:
    """Removes directories that lie in another one or in the system's; sorted by path."""
    kept: list[str] = []
    for directory in sorted(directories):
        if not in_system(directory) and not any(is_below(directory, one) for one in kept):
            kept.append(directory)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class VersionManager:
    name: str
    variables: str = ""
    """Name the root, in this order, divided by spaces."""
    places: str = ""
    """Usual roots. `~` is the person's home, `@` their data directory (XDG), `$NAME` another variable's first entry."""
    inside: str = ""
    """A PATH directory that ends so (a pattern) belongs to the root before it …"""
    proof: str = ""
    """The root counts only if this path exists below it."""
    show: tuple[str, ...] = ("",)
    """Paths below the root that are shown; an empty text means all of it."""
    sets_if: str | None = None
    """The first variable is set to the root if this exists below it; None: never."""
    masked: tuple[str, ...] = ()
    """Below the root: files that hold credentials, and hooks that fail where the root is read-only."""
    links: str = ""
    """A directory of installed versions in which people link versions that live elsewhere: those are shown too."""


_BREW_PARTS: Final = ("bin", "sbin", "Cellar", "opt", "lib", "libexec", "include", "share", "etc/ca-certificates")
"""Without `etc` and `var`, where its services keep settings and data."""
_PYENV_BIN: Final = r"(?:plugins/[^/]+/)?(?:shims|bin)"
_NVM_BIN: Final = r"versions/(?:node|io\.js)/[^/]+/bin"
_FNM_BIN: Final = "node-versions/[^/]+/installation/bin"
_MISE_BIN: Final = "(?:shims|installs/[^/]+/[^/]+(?:/[^/]+)*?)"
_CONDA_PLACES: Final = (
    "~/miniconda3 ~/anaconda3 ~/miniforge3 ~/mambaforge ~/micromamba"
    " /opt/conda /opt/miniconda3 /opt/anaconda3 /opt/miniforge3"
)
_PYENV_HOOKS: Final = ("pyenv.d/exec/pip-rehash",)
"""Hooks that write the shims anew after `pip install`; where they cannot, the exit code is 1 though pip succeeded."""
_CARGO_SECRETS: Final = ("credentials", "credentials.toml")
_CONDA_SECRETS: Final = (".condarc", "condarc", "pip.conf")
MANAGERS: Final = (
    VersionManager(
        "pyenv",
        "PYENV_ROOT",
        "~/.pyenv",
        _PYENV_BIN,
        "libexec/pyenv",
        sets_if="",
        links="versions",
        masked=_PYENV_HOOKS,
    ),
    VersionManager(
        "rustup", "RUSTUP_HOME", "~/.rustup", "toolchains/[^/]+/bin", "settings.toml", sets_if="", links="toolchains"
    ),
    # With its home read-only, cargo builds offline from the crates fetched before. Without any, its home is better
    # left to the private HOME, where it can at least be written.
    VersionManager("cargo", "CARGO_HOME", "~/.cargo", "bin", "bin/rustup", sets_if="registry", masked=_CARGO_SECRETS),
    VersionManager("nvm", "NVM_DIR", "~/.nvm ~/.config/nvm", _NVM_BIN, "nvm.sh", sets_if=""),
    VersionManager("fnm", "FNM_DIR", "@/fnm ~/.fnm", _FNM_BIN, "node-versions", sets_if=""),
    VersionManager("volta", "VOLTA_HOME", "~/.volta", "bin", "bin/volta-shim", sets_if=""),
    VersionManager("asdf", "ASDF_DATA_DIR", "$ASDF_DIR ~/.asdf", "shims", "installs", sets_if=""),
    VersionManager("asdf itself", "ASDF_DIR", "~/.asdf", sets_if="asdf.sh"),
    VersionManager("mise", "MISE_DATA_DIR", "@/mise", _MISE_BIN, "installs", sets_if=""),
    VersionManager("uv", "UV_PYTHON_INSTALL_DIR", "@/uv/python", sets_if="", links="."),
    # What `uv tool` and pipx put on PATH are links into these.
    VersionManager("uv tools", "UV_TOOL_DIR", "@/uv/tools"),
    VersionManager("pipx", "PIPX_HOME", "@/pipx ~/.local/pipx", show=("venvs", "shared", "py")),
    VersionManager(
        "conda",
        "MAMBA_ROOT_PREFIX CONDA_ROOT",
        _CONDA_PLACES,
        "(?:envs/[^/]+/)?(?:bin|condabin)",
        "conda-meta",
        masked=_CONDA_SECRETS,
    ),
    VersionManager("conda environment", "CONDA_PREFIX", masked=(".condarc", "pip.conf")),
    # What `npm install -g` puts on PATH are links into the modules beside it, wherever the person's prefix is.
    VersionManager(
        "npm", "npm_config_prefix NPM_CONFIG_PREFIX", inside="bin", proof="lib/node_modules", show=("lib/node_modules",)
    ),
    VersionManager("go", "GOROOT", inside="bin", proof="pkg/tool"),
    # Modules fetched before are enough to build offline; go writes nothing there for them.
    VersionManager("go modules", "GOMODCACHE", "$GOPATH/pkg/mod ~/go/pkg/mod", sets_if=""),
    VersionManager("sdkman", "SDKMAN_DIR", "~/.sdkman", "candidates/[^/]+/[^/]+/bin", "candidates", sets_if=""),
    VersionManager(
        "brew",
        "HOMEBREW_PREFIX",
        "/home/linuxbrew/.linuxbrew ~/.linuxbrew",
        "s?bin",
        "Cellar",
        show=_BREW_PARTS,
        sets_if="",
    ),
)

CARRIED: Final = ("GOROOT", "CONDA_PREFIX", "JAVA_HOME")
"""Handed on as the person has them, if they lead to something that children can see."""
SELECTED: Final = {"PYENV_VERSION": "PYENV_ROOT", "RUSTUP_TOOLCHAIN": "RUSTUP_HOME"}
"""Name an installed version, not a place: handed on with the manager whose word they are."""


KEY_DIRECTORIES: Final = (".ssh", ".aws", ".gnupg")
_KEY_NAMES: Final = frozenset(KEY_DIRECTORIES)
_NOT_BELOW: Final = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""Walls have their own of these, or none: they hold sockets, devices and other processes."""
_NOT_WHOLE: Final = frozenset({"/", "/etc", "/home", "/var", "/var/lib", "/tmp", "/var/tmp"})  # noqa: S108 (refused, not used)


class ForbiddenDirectories:
    def __init__(self, home: str, forge_home: str, zones: Sequence[str] = ()) -> None:
        self._home = os.path.realpath(home)
        self._forge = os.path.realpath(forge_home)
        named = (os.path.join(self._home, name) for name in KEY_DIRECTORIES)
        self._keys = tuple(os.path.realpath(path) if os.path.islink(path) else path for path in named)
        self._zones = tuple(zones)
        self._above_home = identities_above(self._home)
        self._above_forge = identities_above(self._forge)

    def why(self, spelled: str, real: str, status: os.stat_result) -> str:
        """Empty: it may be shown. `status` is the directory's own."""
        identity = identity_of(status)
        if identity in self._above_home:
            return "is or contains the home directory"
        if identity in self._above_forge:
            return "is, contains or lies in FORGE_HOME"
        for path in {spelled, real}:
            if is_below(self._home, path):
                return "is or contains the home directory"
            if is_below(path, self._forge) or is_below(self._forge, path):
                return "is, contains or lies in FORGE_HOME"
            if any(is_below(path, keys) or is_below(keys, path) for keys in self._keys):
                return "is, contains or lies in a directory of keys"
            if not _KEY_NAMES.isdisjoint(path.split("/")):
                return "lies in a directory of keys"
            if path in _NOT_WHOLE or any(is_below(path, system) for system in _NOT_BELOW):
                return "is a directory of the system that walls do not show"
            if any(is_below(zone, path) and zone != path for zone in self._zones):
                return "contains a zone"
        if any(os.path.lexists(f"{real}/{name}") for name in KEY_DIRECTORIES):
            return "contains a directory of keys"
        return ""


def own_python_directory(forge_home: Path) -> tuple[str, str]:
    """The real directory of the Python that Forge runs on, for walls to show, and why it must stay hidden; empty where
    every child sees it already, and where it may be shown."""
    prefix = os.path.realpath(sys.base_prefix)
    if in_system(prefix):
        return "", ""
    forbidden = ForbiddenDirectories(os.path.expanduser("~"), os.fspath(forge_home))
    return prefix, forbidden.why(prefix, prefix, os.stat(prefix))
