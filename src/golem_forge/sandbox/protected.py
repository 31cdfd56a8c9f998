"""Paths that need a user's consent: protected (other programs run what is in them), secret (they hold credentials),
obeyed (programs follow them without being told to), instructions for other agents, and Forge's own code inside a
zone.

Takes the components of a path inside a zone, returns Marks. Names compare case-insensitively and at any depth.
These are facts only: policy decides that changing a protected path or reading a secret one asks.

`own_code_in` says where the running Forge itself lies inside a zone (the package, its dependencies, the
interpreter): children may not change it and file tools call it protected. A project with Forge in its own virtual
environment, or a checkout of Forge, starts like any other. Threat: a module of the package, a `.pth` beside it or
the interpreter, changed by a child, runs outside the walls with the next `forge`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.machinery import PathFinder
from itertools import pairwise
from typing import Final, NamedTuple

from golem_forge.core.effects import Mark
from golem_forge.core.regex import regex
from golem_forge.sandbox.handles import Parts

GIT_FILE: Final = ".git"
"""As a file it names another directory, and git runs the hooks in that directory."""

PROTECTED_NAMES: Final = (
    *(".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", GIT_FILE),
    *(
        ".git/modules/**/hooks",
        ".git/modules/**/config",
        ".git/modules/**/config.worktree",
        ".git/modules/**/commondir",
    ),
    *(".git/worktrees/**/config.worktree", ".git/worktrees/**/commondir", ".git/worktrees/**/gitdir"),
    *(".forge", "forge.yaml", "*.worker", ".gitconfig", ".gitmodules"),
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".envrc", ".ripgreprc", ".mcp.json"),
    *(".vscode", ".idea", ".husky", ".ssh", ".gnupg", ".config/fish", ".config/systemd", ".config/autostart"),
    *(".claude", ".claude.json", ".cursor", ".codex", ".gemini", ".windsurf", ".continue", ".kiro", ".opencode"),
    *(".roo", ".qwen", ".junie", ".amazonq", ".zed", ".fleet", ".helix", ".devcontainer", ".devcontainer.json"),
    *(".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".gvimrc", ".lvimrc", ".vim", ".dir-locals.el", ".dir-locals-2.el"),
    *("*.code-workspace", ".npmrc"),
)
"""Every name `unprotect` may take away. Each stands for the path and everything below it; `.git` for all of it."""

_SINGLE: Final = frozenset(name for name in PROTECTED_NAMES if "/" not in name and "*" not in name) - {GIT_FILE}
_PAIRS: Final = frozenset(tuple(name.split("/")) for name in PROTECTED_NAMES if name.count("/") == 1)
_ENDINGS: Final = tuple(name[1:] for name in PROTECTED_NAMES if name.startswith("*."))
_GIT_NESTED: Final = {
    (".git", part): frozenset(name.rpartition("/")[2] for name in PROTECTED_NAMES if name.startswith(f".git/{part}/"))
    for part in ("modules", "worktrees")
}
"""Below these, at any depth: settings, hooks, and files that say where git finds settings and hooks."""

_WORTH_A_LOOK: Final = regex(
    r"(?:^|/)(?:\.|id_|forge\.yaml|credentials\.json|service-account)"
    r"|\.(?:worker|code-workspace|pem|key|p12|pfx|keystore|kdbx)(?:/|$)"
)
"""Every protected or secret name has one of these in it. Nearly every path has none, and is done with one search."""

_SECRET_DIRECTORIES: Final = frozenset({".aws", ".ssh", ".gnupg"})
_SECRET_FILES: Final = frozenset(
    {".env", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "credentials.json"}
)
_SECRET_PAIRS: Final = frozenset({(".kube", "config"), (".docker", "config.json")})
_SECONDS: Final = frozenset(name for _, name in _PAIRS | _SECRET_PAIRS).union(*_GIT_NESTED.values())
"""Names that count where another one stands before them."""
_SECRET_ENDINGS: Final = (".pem", ".key", ".p12", ".pfx", ".keystore", ".kdbx")
_ENV_EXAMPLES: Final = (".example", ".sample", ".template")
_KEY_STARTS: Final = ("id_rsa", "id_ed25519", "id_ecdsa")


def _not_ending(stem: str, endings: Iterable[str]) -> Iterator[str]:
    """Globs for every name that begins with `stem` and ends in none of `endings`: at each place from the end, what
    another letter there makes of it."""
    tails = {ending[place:] for ending in endings for place in range(1, len(ending) + 1)}
    for tail in sorted(tails):
        before = {ending[-len(tail) - 1] for ending in endings if ending.endswith(tail)}
        yield f"{stem}*[!{''.join(sorted(before))}]{tail}"
        if not f"{stem}{tail}".endswith(tuple(endings)):
            yield f"{stem}{tail}"


def _secret_globs() -> Iterator[str]:
    yield from (glob for name in sorted(_SECRET_DIRECTORIES) for glob in (name, f"{name}/**"))
    yield from sorted(_SECRET_FILES)
    yield from sorted("/".join(pair) for pair in _SECRET_PAIRS)
    yield from (f"*{ending}" for ending in _SECRET_ENDINGS)
    yield "service-account*.json"
    yield from _not_ending(".env.", _ENV_EXAMPLES)
    for start in _KEY_STARTS:
        yield from _not_ending(start, (".pub",))


SECRET_GLOBS: Final = tuple(f"**/{glob}" for glob in _secret_globs())
"""The secret file names of `_is_secret` as lower-case globs, for programs that take globs."""

_OBEYED_FILES: Final = frozenset(
    {
        *(".gitlab-ci.yml", ".travis.yml", ".appveyor.yml", "appveyor.yml", ".drone.yml", ".woodpecker.yml"),
        *("azure-pipelines.yml", ".azure-pipelines.yml", "bitbucket-pipelines.yml", ".cirrus.yml", "jenkinsfile"),
        *(".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", ".overcommit.yml"),
        *(".gitpod.yml", ".replit", ".tool-versions", ".python-version", ".python-versions"),
        *("mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml", ".rtx.toml", ".autoenv", ".autoenv.zsh"),
        *("rust-toolchain", "rust-toolchain.toml", "bunfig.toml", ".bunfig.toml", ".sbtopts", ".jvmopts"),
        *(".mypy.ini", ".pytest.ini", ".flake8", ".rspec", ".rubocop.yml", ".ghci", ".ctags", ".merlin", "latexmkrc"),
        *(".renviron", ".rdata", ".justfile", ".buckconfig", ".watchmanconfig", "ansible.cfg", ".ansible.cfg"),
        *(".bash_aliases", ".login", ".logout", ".tmux.conf", ".pythonstartup"),
        *(".aider.conf.yml", "opencode.json", "opencode.jsonc", "crush.json", ".crush.json"),
        *("compose.override.yml", "compose.override.yaml"),
        *("docker-compose.override.yml", "docker-compose.override.yaml"),
    }
)
"""Without conftest.py, Makefile, package.json and the like: people know that these are code of their project."""
_OBEYED_DIRECTORIES: Final = frozenset(
    {".circleci", ".buildkite", ".woodpecker", ".semaphore", ".teamcity", ".mvn", ".bsp", ".githooks", ".lefthook"}
    | {".ipython", ".jupyter", ".ctags.d"}
)
_OBEYED_PAIRS: Final = frozenset(
    {
        *((".github", "workflows"), (".github", "actions"), (".gitea", "workflows"), (".forgejo", "workflows")),
        *((".cargo", "config.toml"), (".cargo", "config"), (".bundle", "config"), (".bundle", "plugin")),
        *((".yarn", "plugins"), (".yarn", "releases"), (".mise", "config.toml"), (".mise", "tasks")),
        *((".config", "mise"), (".config", "mise.toml"), (".gitlab", "ci")),
    }
)
_OBEYED: Final = regex(
    r"\.[^#].*(?:rc|init|profile)(?:\.[a-z0-9]+)?"  # .pdbrc .yarnrc.yml .eslintrc.json .gdbinit .Rprofile
    r"|\.[^#].*\.(?:js|cjs|mjs|ts|cts|mts|py|rb|exs|lua|el|pl|sh)"  # .pnpmfile.cjs .iex.exs .ycm_extra_conf.py
    r"|\.?lefthook(?:-local)?\.(?:ya?ml|toml|json)",
    re.DOTALL,
)
"""Patterns of such names: a hidden file that a program reads when it starts, and a hidden script."""
_AT_PYTHON_START: Final = regex(r"(?:site|user)customize(?:\.py[cdw]?|(?:\..+)?\.so)?", re.DOTALL)
_FORGE: Final = regex(r"golem_forge(?:\.py[cdw]?|(?:\..+)?\.so)?", re.DOTALL)
"""Forge as a module in every form that Python loads, or as a package."""
_DEPENDENCY_DIRECTORIES: Final = frozenset(
    {".venv", "venv", "node_modules", "target", ".tox", ".nox", "vendor", "site-packages", "dist-packages"}
    | {"__pypackages__", "bower_components"}
)
"""Without `.direnv`: a shell runs what is in it when somebody enters the directory."""
_SHADOWS: Final = {
    "GNUmakefile": ("makefile", "Makefile"),
    "makefile": ("Makefile",),
    "rakefile": ("Rakefile",),
    "BUILD.bazel": ("BUILD",),
    "npm-shrinkwrap.json": ("package-lock.json",),
    "build.gradle": ("build.gradle.kts",),
    "settings.gradle": ("settings.gradle.kts",),
    "compose.yaml": ("compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    "compose.yml": ("docker-compose.yml", "docker-compose.yaml"),
}
_INSTRUCTIONS: Final = frozenset(
    {"agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md", "warp.md"}
    | {"crush.md", "codex.md", "skill.md", "copilot-instructions.md"}
    | {".cursorrules", ".windsurfrules", ".clinerules", ".roorules", ".goosehints", ".augment-guidelines", ".rules"}
)
_INSTRUCTION_DIRECTORIES: Final = frozenset({".agents", ".agent", ".clinerules", ".augment", ".trae"})
_INSTRUCTION_PAIRS: Final = frozenset((".github", name) for name in ("instructions", "prompts", "chatmodes", "agents"))
_INSTRUCTION_ENDINGS: Final = (".instructions.md", ".prompt.md", ".chatmode.md")
_LISTED: Final = (
    _SINGLE
    | _OBEYED_FILES
    | _OBEYED_DIRECTORIES
    | _INSTRUCTIONS
    | _INSTRUCTION_DIRECTORIES
    | {name for pair in (*_OBEYED_PAIRS, *_INSTRUCTION_PAIRS) for name in pair}
    | {name.casefold() for name in _SHADOWS}
)
_LISTED_STARTS: Final = ("sitecustomize", "usercustomize", "golem_forge")
_LISTED_ENDINGS: Final = (".pth", *_ENDINGS, *_INSTRUCTION_ENDINGS)


def marks(
    relative_parts: Sequence[str], *, git_is_file: bool = False, unprotect: Iterable[str] = ()
) -> tuple[Mark, ...]:
    """Returns the marks of a path. `git_is_file`: a last component `.git` is, or would become, something else than a
    directory.
    """
    folded = [part.casefold() for part in relative_parts]
    found = []
    free = {normal_name(name) for name in unprotect}
    if any(
        name not in free and not (GIT_FILE in free and name.startswith(".git/"))
        for name in _protected_by(folded, git_is_file)
    ):
        found.append(Mark.PROTECTED_PATH)
    if _is_secret(folded):
        found.append(Mark.SECRET_PATH)
    return tuple(found)


def is_obeyed(parts: Sequence[str], above: Sequence[str] = ()) -> bool:
    """Whether programs follow what is in this path of a zone without anyone naming it: continuous integration, tool
    settings that start something, what Python runs at its start. `above`: the components of the zone's own directory.

    Threat of the last line: `python -m golem_forge` takes a package from the working directory before its own.
    """
    return obeyed_by(parts, above) is not None


def obeyed_by(parts: Sequence[str], above: Sequence[str] = ()) -> str | None:
    """The name on our lists by which `obeyed` holds; empty: it is only made as such names are."""
    if not parts:
        return None
    folded = [part.casefold() for part in (*above, *parts)]
    last = folded[-1]
    if _protected_by(folded, git_is_file=False):  # of the other class, also where `unprotect` sets it free
        return None
    if last in _OBEYED_FILES:
        return last
    listed = (*_OBEYED_DIRECTORIES.intersection(folded), *map("/".join, _OBEYED_PAIRS.intersection(pairwise(folded))))
    if listed:
        return min(listed)
    inside = folded[len(above) :]
    if not in_dependencies(parts):
        if last.endswith(".pth"):
            return "*.pth"
        if any(map(_AT_PYTHON_START.fullmatch, inside)):
            return "sitecustomize"
    if _FORGE.fullmatch(inside[0]):
        return "golem_forge"
    return "" if _OBEYED.fullmatch(last) else None


def is_listed(name: str) -> bool:
    """Whether one component of a path is, or is half of, a name on the lists of what others obey or read as
    instructions. Quick: for the order in which a great many paths are looked at."""
    folded = name.casefold()
    return folded in _LISTED or folded.startswith(_LISTED_STARTS) or folded.endswith(_LISTED_ENDINGS)


def shadowed_names(name: str) -> tuple[str, ...]:
    """Names of files in the same directory that programs no longer read once this one is there."""
    return _SHADOWS.get(name, ())


def is_instructions(parts: Sequence[str]) -> bool:
    """Whether other agents read this path of a zone as what they are told to do."""
    folded = [part.casefold() for part in parts]
    return bool(folded) and (
        folded[-1] in _INSTRUCTIONS
        or folded[-1].endswith(_INSTRUCTION_ENDINGS)
        or not _INSTRUCTION_DIRECTORIES.isdisjoint(folded)
        or not _INSTRUCTION_PAIRS.isdisjoint(pairwise(folded))
    )


def in_dependencies(parts: Sequence[str]) -> bool:
    """Whether a path of a zone lies below a directory that installers fill. The zone's own place does not count: a
    project in `~/vendor/app` is no dependency of itself."""
    return any(part.casefold() in _DEPENDENCY_DIRECTORIES for part in parts[:-1])


def is_plain(path: str) -> bool:
    """Whether a path is certainly neither protected nor secret; a quick test that most paths pass."""
    return _WORTH_A_LOOK.search(path.casefold()) is None


def is_plain_anywhere(name: str) -> bool:
    """Whether a name is as protected and as secret as any other in its directory, whatever stands before it."""
    return name.casefold() not in _SECONDS and is_plain(name)


def is_secret_name(path: str) -> bool:
    """Whether a path as somebody wrote it, in any directory, is secret: `./.env`, `~/.ssh/id_rsa`."""
    if is_plain(path):
        return False
    return _is_secret([part.casefold() for part in path.split("/") if part not in ("", ".")])


def normal_name(name: str) -> str:
    """A name of the `unprotect` list, spelled as in PROTECTED_NAMES."""
    return name.casefold().rstrip("/").removesuffix("/**").removeprefix("./")


def _protected_by(parts: Sequence[str], git_is_file: bool) -> set[str]:
    """The names of PROTECTED_NAMES that cover this path."""
    names = {part for part in parts if part in _SINGLE}
    names.update("/".join(pair) for pair in pairwise(parts) if pair in _PAIRS)
    names.update(f"*{ending}" for part in parts for ending in _ENDINGS if part.endswith(ending))
    if git_is_file and parts and parts[-1] == GIT_FILE:
        names.add(GIT_FILE)
    for start in range(len(parts) - 2):
        inside = _GIT_NESTED.get((parts[start], parts[start + 1]), ())
        names.update(f".git/{parts[start + 1]}/**/{part}" for part in parts[start + 2 :] if part in inside)
    return names


def _is_secret(parts: Sequence[str]) -> bool:
    if not parts:
        return False
    last = parts[-1]
    return (
        last in _SECRET_FILES
        or (last.startswith(".env.") and not last.endswith(_ENV_EXAMPLES))
        or last.endswith(_SECRET_ENDINGS)
        or (last.startswith(_KEY_STARTS) and not last.endswith(".pub"))
        or fnmatchcase(last, "service-account*.json")
        or tuple(parts[-2:]) in _SECRET_PAIRS
        or not _SECRET_DIRECTORIES.isdisjoint(parts)
    )


_REQUIRED_PACKAGES: Final = ("pydantic", "pydantic_core", "jsonschema_rs", "ruamel", "prompt_toolkit", "rich")
"""The required ones, looked for by name: they may lie in a directory of PYTHONPATH that is no site-packages."""
INSTALL_OUTSIDE: Final = (
    "install Forge outside the project, from a clone of its repository: `pipx install /path/to/the/clone` or "
    "`uv tool install /path/to/the/clone`"
)
_PACKAGE_DIRECTORIES: Final = ("site-packages", "dist-packages")
_MOST_LINKS: Final = 40


class OwnCode(NamedTuple):
    """The parts of one zone that hold Forge's own code."""

    whole: bool = False
    """Whether the zone itself lies in Forge's code."""
    closed: tuple[Parts, ...] = ()
    """Directories and files that must not change, outermost only; never the zone's root."""
    links: tuple[Parts, ...] = ()
    """Links at the zone's root on the way to it. Nothing can stand on a link, so walls cannot hold these; what was
    exchanged is told afterwards."""


class _CodePlaces(NamedTuple):
    """Real host paths of Forge's code."""

    sealed: frozenset[str]
    """Directories with only Forge's code or its interpreter's; a zone inside one is read-only too."""
    shared: frozenset[str]
    """Directories that may hold other code too; a zone at or inside one stays writable."""
    links: frozenset[str]
    """Links on the way to any of these."""


def own_code() -> tuple[str, ...]:
    """The real host paths of the interpreter, the prefix, the installed packages and the package of this process."""
    places = _places()
    return tuple(sorted(places.sealed | places.shared))


@cache
def own_code_in(host: str) -> OwnCode:
    """Returns where Forge's code lies in a zone. `host`: the real directory of the zone."""
    places = _places()
    inside = f"{host.rstrip('/')}/"
    closed = {parts for path in places.sealed | places.shared if (parts := _relative(path, inside))}
    links = {parts for path in places.links if (parts := _relative(path, inside))}
    closed |= {parts[:-1] for parts in links if len(parts) > 1}  # as for every protected link
    return OwnCode(
        whole=any(inside.startswith(f"{path}/") for path in places.sealed),
        closed=tuple(sorted(_outermost(closed))),
        links=tuple(sorted(parts for parts in links if len(parts) == 1)),
    )


def is_own_code(host: str, parts: Parts) -> bool:
    """Whether a path of the zone at `host` is Forge's own code or a link on the way to it."""
    own = own_code_in(host)
    return own.whole or any(parts[: len(one)] == one for one in (*own.closed, *own.links))


def own_code_notice(zones: Mapping[str, str]) -> Iterator[str]:
    """One line for a person, or none. `zones`: the real directories of those that can be written, by address."""
    closed, links = [], []
    for address, host in zones.items():
        own = own_code_in(host)
        closed += [address] if own.whole else ["/".join((address, *parts)) for parts in own.closed]
        links += ["/".join((address, *parts)) for parts in own.links]
    if not closed and not links:
        return
    text = "Forge itself is installed in a zone"
    if closed:
        text += f", so these are read-only for commands, and installing packages there fails: {', '.join(closed)}"
    if links:
        text += f"; a command can exchange the link {', '.join(links)}, which Forge was started through"
    yield f"{text}. To change that, {INSTALL_OUTSIDE}."


@cache
def _places() -> _CodePlaces:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    library = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sealed = {package, os.path.dirname(os.path.abspath(os.__file__)), sys.executable}
    sealed.update(os.path.join(prefix, sys.platlibdir, library) for prefix in prefixes)
    sealed.update(os.path.join(prefix, "pyvenv.cfg") for prefix in prefixes)
    sealed.update(path for path in sys.path if os.path.basename(path) in _PACKAGE_DIRECTORIES)
    sealed.update(_dependencies())
    if sys.pycache_prefix:  # bytecode of all these, taken instead of the sources
        sealed.add(sys.pycache_prefix)
    beside = os.path.dirname(package)
    if os.path.basename(beside) in _PACKAGE_DIRECTORIES:
        sealed.add(beside)
    shared = {*prefixes, beside, *(os.path.join(prefix, "bin") for prefix in prefixes)}
    if sys.executable:
        shared.add(os.path.dirname(sys.executable))
    links: set[str] = set()
    real_sealed, real_shared = _real_paths(sealed, links), _real_paths(shared, links)
    if sys.executable:
        real_shared.add(os.path.dirname(os.path.realpath(sys.executable)))
    return _CodePlaces(frozenset(real_sealed), frozenset(real_shared), frozenset(links))


def _dependencies() -> Iterator[str]:
    for name in _REQUIRED_PACKAGES:
        try:
            found = PathFinder.find_spec(name)
        except (ImportError, ValueError):
            continue
        if found is not None:
            yield from found.submodule_search_locations or ((found.origin,) if found.origin else ())


def _real_paths(paths: Iterable[str], links: set[str]) -> set[str]:
    """Returns the real paths of those that exist; adds every link on the way to `links`, by its own real path."""
    found = set()
    for path in paths:
        real = _resolve_links(path, links)
        if real and os.path.lexists(real):
            found.add(real)
    return found


def _resolve_links(path: str, links: set[str]) -> str:
    if not path:
        return ""
    here, rest, left = "", os.path.abspath(path).split("/")[1:], _MOST_LINKS
    while rest:
        name, *rest = rest
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here).rstrip("/")
            continue
        step = f"{here}/{name}"
        try:
            target = os.readlink(step)
        except OSError:
            here = step
            continue
        links.add(step)
        left -= 1
        if not left:
            return ""
        here = "" if target.startswith("/") else here
        rest = [*target.split("/"), *rest]
    return here


def _relative(path: str, inside: str) -> Parts:
    """Returns the components below `inside`; empty if the path is not below it."""
    return tuple(path[len(inside) :].split("/")) if path.startswith(inside) else ()


def _outermost(every: set[Parts]) -> Iterator[Parts]:
    for parts in every:
        if not any(parts[:length] in every for length in range(1, len(parts))):
            yield parts
