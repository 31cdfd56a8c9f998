"""Workspaces: a session's own clone of a git repository, kept apart from what its agent does to the files.

`read_workspace` takes `{git: URL-or-path, ref: main}` and refuses (ConfigError) every transport but https, ssh, local
paths and http on this machine, options, control characters and credentials. `make_clone` gives a session a clone,
`restore` one that goes on from the last checkpoint, `open_clone` the one that is still on this machine, `fetch_history`
what a diff needs. Failures are WorkspaceErrors. All of it blocks: call it in a thread.

    <place>/repository   git directory of Forge, outside the session's zone
    <place>/tree         the session's zone, with a `.git` for the session's own use

Threat: whatever lies in the tree was written by an agent, `.git` and `.gitattributes` included, and must neither run on
the host nor redirect git. So git never runs on a tree that an agent had (`checkpoint` reads it without git). The tree's
`.git` is a copy (no shared objects, no remote, no credentials) that Forge never reads again; it is there so that
`git status`, `log` and `commit` work for the agent. Only fetch and push see the runner's own git configuration. The
repository of a local origin is read and written without its hooks and the programs that its configuration names.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from urllib.parse import urlsplit

from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name, nearest_hint
from golem_forge.net.server_guard import is_loopback
from golem_forge.sandbox.git import command
from golem_forge.sandbox.git.command import GitLimits, GitRun
from golem_forge.sandbox.git.directory import is_object_id, is_ref_name
from golem_forge.sandbox.handles import entry_stat
from golem_forge.sandbox.host import person_environ, safe_path
from golem_forge.sandbox.process.cleanup import remove_tree

MOST_FILES: Final = 500_000
_MOST_CHECKED_OUT: Final = 8 << 30
_MOST_HISTORY: Final = 500 << 20
"""Bytes of objects that are copied for the agent; of a larger repository it gets the last commit only."""
_LONGEST_ADDRESS: Final = 2000

_LISTED: Final = GitLimits(seconds=60, output=4 << 20)
_NETWORK: Final = GitLimits(seconds=600, output=4 << 20, file=8 << 30)
_LOCAL: Final = GitLimits(seconds=300, output=128 << 20, file=8 << 30)

_SESSION: Final = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_TRANSPORT: Final = regex(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HELPER: Final = regex(r"[A-Za-z0-9+.-]*::")
_SCP: Final = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?![-:])\S+")
_USER: Final = regex(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FORMS: Final = "https://host/repository, ssh://git@host/repository, git@host:repository or a path"
_BASE_LINE: Final = regex(rb"\nForge-Base: ([0-9a-f]{40}|[0-9a-f]{64})\n*\Z")

GITLINK: Final = "160000"
LINK: Final = "120000"

PUSHED_REF: Final = "refs/own/pushed"
NEXT_REF: Final = "refs/own/next"
"""Refs of `<place>/repository` that go nowhere else."""

_SETTINGS: Final = (
    *command.QUIET_SETTINGS,
    "core.excludesFile=/dev/null",
    "core.untrackedCache=false",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.bigFileThreshold=16m",
    "core.logAllRefUpdates=false",
    "push.gpgSign=false",
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "push.pushOption=",
    "protocol.ext.allow=never",
    "diff.renameLimit=2000",
    "http.lowSpeedLimit=100",
    "http.lowSpeedTime=120",
)
_ORIGIN_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "gc.recentObjectsHook=true",
    "gc.auto=0",
    "receive.autogc=false",
    "maintenance.auto=false",
)
"""Settings for the git that serves a local origin; git removes ours before it starts that one."""
_ATTRIBUTES: Final = "* -text !eol -ident -filter !working-tree-encoding !diff !merge !crlf !export-subst\n"
"""Content of `info/attributes`, which overrides the tree's: files are taken byte by byte."""
_RUNNER_VARIABLES: Final = (
    *command.NETWORK_VARIABLES,
    *("http_proxy", "SSH_AUTH_SOCK", "GIT_SSH_VARIANT", "GIT_ASKPASS"),
)


class WorkspaceError(ForgeError):
    """A clone or checkpoint that could not be made. The text names no host path and no credential."""

    stated_name = "WorkspaceError"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="WORKSPACE_FAILED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    git: str
    """An address, or the absolute path of a repository on the runner's machine."""
    ref: str = ""
    """A branch, a tag or a commit; empty: the origin's default branch."""

    @property
    def local_path(self) -> str:
        """Empty: the origin is reached over the network."""
        return self.git.removeprefix("file://") if self.git.startswith(("/", "file:///")) else ""

    @property
    def shown_name(self) -> str:
        """The name for messages, which viewers read: of a host path only its end. An address holds no password."""
        parts = Path(self.local_path).parts
        return display_name("/".join(parts[-2 if parts[-1] == ".git" else -1 :]) if parts else self.git)


def read_workspace(value: object, *, where: str = "workspace", folder: Path | None = None) -> Workspace:
    """A `workspace:` block. `where`: how errors begin; `folder`: what a relative path begins at. Raises ConfigError
    with every problem. Whoever reads this from a project must have asked for trust: it names what an agent will see."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: write {{git: URL-or-path, ref: branch}}")
    problems = [
        f"{where}: unknown key {display_name(str(key))!r}{nearest_hint(key, ('git', 'ref'))}"
        for key in value
        if key not in ("git", "ref")
    ]
    address, ref = "", value.get("ref", "")
    try:
        address = _read_address(value.get("git"), folder)
    except ValueError as error:
        problems.append(f"{where}.git: {error}")
    if not isinstance(ref, str) or (ref and not _is_ref(ref)):
        problems.append(f"{where}.ref: write the name of a branch or tag, or a full commit id")
    if problems:
        raise ConfigError(*problems)
    return Workspace(git=address, ref=ref if isinstance(ref, str) else "")


def _is_ref(ref: str) -> bool:
    name = ref if ref.startswith("refs/") else f"refs/heads/{ref}"
    return not ref.startswith("-") and is_ref_name(name) and display_name(ref) == ref


def _read_address(given: object, folder: Path | None) -> str:
    """Raises ValueError. No message repeats the address: it may hold a password."""
    if not isinstance(given, str) or not given.strip():
        raise ValueError(f"name a repository: {_FORMS}")
    if display_name(given) != given or given != given.strip() or len(given) > _LONGEST_ADDRESS:
        raise ValueError("the address has control characters, spaces at its ends, or is too long")
    if given.startswith("-"):
        raise ValueError(f"the address begins with '-', which git reads as an option; use {_FORMS}")
    if _HELPER.match(given):
        raise ValueError(f"Forge does not use transport helpers ('ext::', 'fd::'); use {_FORMS}")
    if transport := _TRANSPORT.match(given):
        _check_url(given, transport[1])
        return given
    if _SCP.fullmatch(given):
        return given
    if "@" in given.partition("/")[0] and ":" in given.partition("/")[0]:
        raise ValueError(f"the address is not one that Forge reads; use {_FORMS}")
    path = os.path.expanduser(given)
    if not os.path.isabs(path) and folder is None:
        raise ValueError("write the whole path of the repository")
    return os.path.normpath(os.path.join(folder or "/", path))


def _check_url(given: str, transport: str) -> None:
    if transport not in ("https", "http", "ssh", "file"):
        raise ValueError(f"Forge does not use this transport; use {_FORMS}")
    try:
        url = urlsplit(given)
        host, port, user = url.hostname or "", url.port, url.username
    except ValueError:
        raise ValueError("the address cannot be read") from None
    if " " in given or url.query or url.fragment or "?" in given or "#" in given or port == 0:
        raise ValueError("the address has a space, '?' or '#'; write the plain address of the repository")
    if url.password is not None or (user is not None and transport != "ssh"):
        raise ValueError(
            "the address holds a user name or password; keep them in the git credential helper of the runner"
        )
    if transport == "file":
        if not given.startswith("file:///"):
            raise ValueError("write file:/// and the whole path")
        return
    if not host or host.startswith("-") or (user is not None and not _USER.fullmatch(user)):
        raise ValueError(f"the address has no valid host; use {_FORMS}")
    if transport == "http" and not is_loopback(host):
        raise ValueError("http is for this machine only; use https")


@dataclass(frozen=True, slots=True)
class Clone:
    workspace: Workspace
    place: Path
    session: str
    base: str
    """The commit that the session began with."""

    @property
    def tree(self) -> Path:
        """The directory that is the session's zone."""
        return self.place / "tree"

    @property
    def repository(self) -> Path:
        return self.place / "repository"

    @property
    def ref(self) -> str:
        """The ref of checkpoints, here and at the origin."""
        return f"refs/forge/{self.session}"

    @property
    def base_ref(self) -> str:
        """Names the session too: a place holds one session's clone and nobody else's."""
        return f"refs/own/{self.session}/base"

    @property
    def branch(self) -> str:
        """The branch name in the agent's own git."""
        return f"forge/{self.session[:12]}"


def make_clone(workspace: Workspace, place: Path, session_id: str) -> Clone:
    """A new clone at the base. `place`: a directory of the runner for this session alone; an old clone in it goes."""
    with disk_errors("make a clone"):
        clone = _fetch(workspace, place, session_id, checkpointed=False)
        _check_out(clone, clone.base)
    return clone


def restore(workspace: Workspace, place: Path, session_id: str) -> Clone:
    """A new clone at the last checkpoint that the origin has; without one, at the base. On the machine that has the old
    clone, `open_clone` keeps what the origin does not have yet."""
    with disk_errors("make a clone"):
        clone = _fetch(workspace, place, session_id, checkpointed=True)
        _check_out(clone, last_commit(clone))
    return clone


def fetch_history(workspace: Workspace, place: Path, session_id: str) -> Clone:
    """Base and checkpoints without a tree: for a diff on a machine that did not run the session."""
    with disk_errors("fetch the session"):
        return _fetch(workspace, place, session_id, checkpointed=True)


def open_clone(workspace: Workspace, place: Path, session_id: str) -> Clone | None:
    """The clone that an earlier call left there, with all files; None: there is none, or it is not whole."""
    clone = _unmade_clone(workspace, place, session_id)
    if not clone.tree.is_dir() or clone.tree.is_symlink() or not clone.repository.is_dir():
        return None
    base = resolve_ref(clone, clone.base_ref)
    return replace(clone, base=base) if base else None


def last_commit(clone: Clone) -> str:
    """The last checkpoint; before the first one, the base."""
    return resolve_ref(clone, clone.ref) or clone.base


def _unmade_clone(workspace: Workspace, place: Path, session_id: str) -> Clone:
    if not _SESSION.fullmatch(session_id):
        raise WorkspaceError("This is not the id of a session.")
    return Clone(workspace, Path(os.path.realpath(place)), session_id, "")


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Converts an OSError to a WorkspaceError, because its own text names host paths."""
    try:
        yield
    except OSError as error:
        raise WorkspaceError(f"Forge could not {doing}: {os.strerror(error.errno or 0)}.") from None


# ---- git commands


def run_local(
    clone: Clone,
    words: Collection[str],
    doing: str,
    *,
    limits: GitLimits = _LOCAL,
    stdin: bytes | IO[Any] = b"",
    accept: Collection[int] = (0,),
    more: Mapping[str, str] | None = None,
) -> GitRun:
    """A command on `<place>/repository` that needs no network: no configuration of the runner, no transport."""
    environ = {
        **command.QUIET_ENVIRONMENT,
        "PATH": _path(clone),
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_DIR": os.fspath(clone.repository),
        "GIT_ALLOW_PROTOCOL": "",
        **(more or {}),
    }
    return _run(clone, [*_options(_SETTINGS), *words], doing, environ, limits, stdin, accept)


def run_network(clone: Clone, words: Collection[str], doing: str, limits: GitLimits = _NETWORK) -> GitRun:
    """A command that reaches the origin, with the runner's configuration and credentials."""
    runner = person_environ()
    ssh = runner.get("GIT_SSH_COMMAND") or shlex.quote(runner.get("GIT_SSH") or "ssh")
    plain_http = clone.workspace.git.startswith("http:")
    settings = (*_SETTINGS, f"core.sshCommand={ssh}", *(("http.followRedirects=false",) if plain_http else ()))
    environ = {
        **command.QUIET_ENVIRONMENT,
        **{name: runner[name] for name in _RUNNER_VARIABLES if name in runner},
        "PATH": _path(clone),
        "GIT_DIR": os.fspath(clone.repository),
        "GIT_ALLOW_PROTOCOL": "https:ssh:file" + (":http" if plain_http else ""),
    }
    del environ["GIT_CONFIG_NOSYSTEM"]  # a machine's credential helper stands there
    return _run(
        clone, [*_options(settings), *words], f"{doing} ({clone.workspace.shown_name})", environ, limits, b"", (0,)
    )


def _run(
    clone: Clone,
    words: list[str],
    doing: str,
    environ: Mapping[str, str],
    limits: GitLimits,
    stdin: bytes | IO[Any],
    accept: Collection[int],
) -> GitRun:
    try:
        ran = command.run_git(words, folder=clone.place, environ=environ, limits=limits, stdin=stdin)
    except command.GitMissing:
        raise WorkspaceError("git was not found; install git on the runner's machine.") from None
    except command.GitTimeout:
        raise WorkspaceError(f"git could not {doing} within {limits.seconds:g} seconds; try again.") from None
    except command.GitOutputLimit:
        raise WorkspaceError(f"git could not {doing}: that is more than {limits.output >> 20} MiB.") from None
    if ran.code not in accept and not ran.cut:
        raise WorkspaceError(f"git could not {doing}: {_without_paths(ran.errors, clone) or f'exit code {ran.code}'}")
    return ran


def _options(settings: Collection[str]) -> list[str]:
    return [word for setting in settings for word in ("-c", setting)]


def _path(clone: Clone) -> str:
    return safe_path(person_environ().get("PATH", ""), (os.fspath(clone.place),))


def _without_paths(text: str, clone: Clone) -> str:
    origin = clone.workspace
    for path, name in ((os.fspath(clone.place), "the workspace"), (origin.local_path, origin.shown_name)):
        if len(path) > 1:
            text = text.replace(path, name)
    return text


def resolve_ref(clone: Clone, name: str) -> str:
    """The commit that a ref stands for; empty: there is no such ref."""
    words = ("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
    found = run_local(clone, words, "read a ref", accept=(0, 1, 128)).output.decode("ascii", "replace").strip()
    return found if is_object_id(found) else ""


def set_ref(clone: Clone, name: str, commit: str) -> None:
    run_local(clone, ("update-ref", name, commit), "write a ref")


# ---- clones


def _fetch(workspace: Workspace, place: Path, session_id: str, *, checkpointed: bool) -> Clone:
    """Makes `<place>/repository` with the base and, if asked for, the last checkpoint."""
    clone = _unmade_clone(workspace, place, session_id)
    clone.place.mkdir(mode=0o700, parents=True, exist_ok=True)
    listed = _list_origin(clone)
    wanted = clone.ref if checkpointed and clone.ref in listed else _find_ref(workspace.ref, listed)
    for old in (clone.tree, clone.repository):
        remove_tree(os.fspath(old))
    if os.path.lexists(clone.tree) or os.path.lexists(clone.repository):
        raise WorkspaceError("The old clone of this session could not be removed; remove it and try again.")
    clone.repository.mkdir(mode=0o700)
    run_local(clone, ("init", "--quiet", "--bare", "--template=", f"--object-format={_format(listed)}"), "make a clone")
    _write_attributes(clone.repository)
    serve = served_by(workspace, "upload-pack")
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--refmap=", *serve)
    run_network(clone, ("fetch", *flags, "--", workspace.git, f"+{wanted}:{NEXT_REF}"), "fetch the repository")
    commit = resolve_ref(clone, NEXT_REF)
    if not commit:
        raise WorkspaceError("That ref of the repository is not a commit; name a branch in `ref`.")
    base = commit
    if wanted == clone.ref:
        base = _base_of(clone, commit)
        set_ref(clone, clone.ref, commit)
        set_ref(clone, PUSHED_REF, commit)
    set_ref(clone, clone.base_ref, base)
    return replace(clone, base=base)


def _list_origin(clone: Clone) -> dict[str, str]:
    """The origin's refs that matter here, and their objects."""
    ref = clone.workspace.ref
    asked = ("HEAD", clone.ref, *((ref, f"refs/heads/{ref}", f"refs/tags/{ref}") if ref else ()))
    serve = served_by(clone.workspace, "upload-pack")
    words = ("ls-remote", "--quiet", *serve, "--", clone.workspace.git, *asked)
    return _read_refs(run_network(clone, words, "read the repository", _LISTED).output)


def _find_ref(ref: str, listed: Mapping[str, str]) -> str:
    for name in (f"refs/heads/{ref}", f"refs/tags/{ref}", ref) if ref else ("HEAD",):
        if name in listed:
            return name
    if is_object_id(ref):
        return ref
    if not ref:
        raise WorkspaceError("The repository has no default branch; name one in `ref`, or make the first commit.")
    raise WorkspaceError(f"The repository has no branch, tag or commit {display_name(ref)!r}; correct `ref`.")


def list_checkpoints(scratch: Clone) -> dict[str, str]:
    """Returns all refs of sessions at the origin, with their commits."""
    words = ("ls-remote", "--quiet", *served_by(scratch.workspace, "upload-pack"), "--", scratch.workspace.git)
    return _read_refs(run_network(scratch, (*words, "refs/forge/*"), "read the repository", _LISTED).output)


def _read_refs(listed: bytes) -> dict[str, str]:
    lines = (line.partition("\t") for line in listed.decode("utf-8", "surrogateescape").splitlines())
    return {name: commit for commit, _, name in lines if is_object_id(commit)}


def _format(listed: Mapping[str, str]) -> str:
    return "sha256" if any(len(commit) == 64 for commit in listed.values()) else "sha1"


def served_by(workspace: Workspace, service: str) -> tuple[str, ...]:
    """Threat: a project brings along a bare repository with hooks and names it as its origin."""
    if not workspace.local_path:
        return ()
    return (f"--{service}={shlex.join(['git', *_options(_ORIGIN_SETTINGS), service])}",)


def _base_of(clone: Clone, commit: str) -> str:
    """Returns the base that the checkpoint names; it must be an ancestor. Raises WorkspaceError."""
    text = run_local(clone, ("cat-file", "commit", commit), "read a checkpoint").output
    found = _BASE_LINE.search(text)
    base = resolve_ref(clone, found[1].decode()) if found else ""
    if base and run_local(clone, ("merge-base", "--is-ancestor", base, commit), "compare", accept=(0, 1)).code == 0:
        return base
    raise WorkspaceError(f"{clone.ref} at the origin is not a checkpoint of Forge; delete that ref and start again.")


def _write_attributes(git: Path) -> None:
    (git / "info").mkdir(exist_ok=True)
    (git / "info" / "attributes").write_text(_ATTRIBUTES)


def _check_out(clone: Clone, commit: str) -> None:
    """Writes `<place>/tree`, which stands there only when it is whole. Nothing of an agent's is on this machine yet."""
    entries = read_tree(clone, commit)
    if sum(entry.size for entry in entries.values()) > _MOST_CHECKED_OUT:
        raise WorkspaceError(f"The repository's files are larger than {_MOST_CHECKED_OUT >> 30} GiB together.")
    tree = clone.place / "tree.new"
    remove_tree(os.fspath(tree))
    tree.mkdir(mode=0o700)
    more = {"GIT_WORK_TREE": os.fspath(tree), "GIT_INDEX_FILE": os.fspath(clone.repository / "index")}
    run_local(clone, ("read-tree", commit), "check out the files", more=more)
    run_local(clone, ("checkout-index", "--all", "--quiet"), "check out the files", more=more)
    _make_agent_repository(clone, tree)
    os.rename(tree, clone.tree)


def _make_agent_repository(clone: Clone, tree: Path) -> None:
    git = tree / ".git"
    doing = "make the session's .git"
    more = {"GIT_DIR": os.fspath(git), "GIT_WORK_TREE": os.fspath(tree), "GIT_ALLOW_PROTOCOL": "file"}
    format = "sha256" if len(clone.base) == 64 else "sha1"
    words = ("--quiet", "--template=", f"--initial-branch={clone.branch}", f"--object-format={format}")
    run_local(clone, ("init", *words), doing, more=more)
    _write_attributes(git)
    objects, branch = clone.repository / "objects", f"refs/heads/{clone.branch}"
    found = (entry_stat(os.fspath(path)) for path in objects.rglob("*"))
    if sum(info.st_size for info in found if info and stat.S_ISREG(info.st_mode)) <= _MOST_HISTORY:
        shutil.copytree(objects, git / "objects", dirs_exist_ok=True)
        run_local(clone, ("update-ref", branch, clone.base), doing, more=more)
    else:
        flags = ("--quiet", "--no-tags", "--no-write-fetch-head", "--update-head-ok", "--depth=1")
        source = (os.fspath(clone.repository), f"{clone.base_ref}:{branch}")
        run_local(clone, ("fetch", *flags, "--", *source), doing, more=more)
    run_local(clone, ("read-tree", clone.base), doing, more=more)
    run_local(clone, ("update-index", "-q", "--refresh"), doing, more=more, accept=(0, 1))


class TreeEntry(NamedTuple):
    mode: str
    id: str
    size: int


def read_tree(clone: Clone, commit: str, *, sizes: bool = True) -> dict[str, TreeEntry]:
    """Returns all files, links and submodules of a commit. Sizes need the files themselves, which a partial clone
    lacks.
    """
    words = ("ls-tree", "-r", "-z", *(("-l",) if sizes else ()), "--full-tree", commit)
    listed = run_local(clone, words, "read the files").output
    found: dict[str, TreeEntry] = {}
    for line in listed.split(b"\0"):
        if not line:
            continue
        facts, _, name = line.partition(b"\t")
        mode, _, id, *size = facts.decode("ascii").split()
        found[os.fsdecode(name)] = TreeEntry(mode, id, int(size[0]) if size and size[0].isdigit() else 0)
    if len(found) > MOST_FILES:
        raise WorkspaceError(f"The repository has more than {MOST_FILES} files.")
    return found
