"""What a tool depends on, and where that comes from: the inline script block, hosts to ask for, local directories.

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
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from golem_forge.core.globs import HostGroup
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.sandbox.network.registries import PUBLIC_HOSTS, hosts_of, with_file_hosts
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant
from golem_forge.tools.context import HostRule
from golem_forge.usertools.diagnostics import DiagnosticCode, Unusable
from golem_forge.usertools.folder import FolderFiles
from golem_forge.usertools.manifest import MANIFEST_FILE

_BLOCK_BEGIN: Final = "# /// script"
_BLOCK_END: Final = "# ///"
_LONGEST_BLOCK: Final = 64 << 10
_VERSION_CLAUSE: Final = regex(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?\S*\s*")


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
