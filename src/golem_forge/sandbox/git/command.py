"""run_git: one git command on the host, with a time limit and bounds on all that it writes.

Takes git's arguments, a working directory, an environment and GitLimits; gives GitRun: exit code, output, and git's own
words, safe to show and without credentials. Raises GitMissing, GitTimeout, GitIdle, GitOutputLimit and GitStopped. A
command that is ended takes everybody below it along, also who changed process group.

The caller says which repository git works on (`GIT_DIR`). `QUIET_SETTINGS` and `QUIET_ENVIRONMENT` are what every such
command needs. Threats: a repository's hooks, file system monitors and submodules start programs; a prompt waits for
ever; a server sends without end, or nothing at all; a person's own settings add a token to an address, which git then
names.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.sandbox.git.formats import git_words
from golem_forge.sandbox.host import find_program
from golem_forge.sandbox.process.monitor import descendants, process_stat

_POLL_SECONDS: Final = 0.02
_MOST_ERRORS: Final = 64 << 10
_LOOK_SECONDS: Final = 1.0
_BUSY_CPU_S: Final = 1.0
"""Who computes for so long works, also without reading or writing: a pack is made in memory."""
_ROUNDS: Final = 50
_BLOCK: Final = 512
"""Bytes of one unit of `ulimit -f`; 1024 in some shells."""

QUIET_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",
)

QUIET_ENVIRONMENT: Final[Mapping[str, str]] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "/bin/false",
    "SSH_ASKPASS": "/bin/false",
    "GIT_DEFAULT_HASH": "sha1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}

NETWORK_VARIABLES: Final = (
    *("HOME", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"),
    *("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_CONFIG_GLOBAL"),
)
"""How the person reaches the network; no other GIT_ variable, each of which could point git somewhere else."""

CREDENTIAL_VARIABLES: Final = (
    *("SSH_AUTH_SOCK", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GNUPGHOME", "GPG_AGENT_INFO"),
    *("DBUS_SESSION_BUS_ADDRESS", "XDG_DATA_HOME", "PASSWORD_STORE_DIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
)
"""By which ssh, gpg and credential helpers of the person find keys and passwords; for what a person approved."""


class GitMissing(Exception):
    """There is no git on PATH outside the project."""

    stated_name = "GitMissing"


class GitTimeout(Exception):
    """Git did not finish within its time."""

    stated_name = "GitTimeout"


class GitIdle(Exception):
    """Nobody of git's processes read, wrote or computed for too long; the text names the one that git waited for."""

    stated_name = "GitIdle"


class GitOutputLimit(Exception):
    """Git wrote more than it may."""

    stated_name = "GitOutputLimit"


class GitStopped(Exception):
    """The caller wanted it no longer."""

    stated_name = "GitStopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLimits:
    seconds: float
    output: int
    """Bytes on standard output."""
    idle: float = 0.0
    """Seconds without any work of git's processes, after which GitIdle ends them; 0: no limit."""
    file: int = 512 << 20
    """Bytes of the largest file that git may write, a pack for instance."""
    cut: bool = False
    """More output ends git and is cut off, instead of GitOutputLimit."""
    stopped: Callable[[], bool] = lambda: False
    """Asked again and again while it runs; True ends git, with GitStopped."""


@dataclass(frozen=True, slots=True)
class GitRun:
    code: int
    output: bytes
    errors: str
    cut: bool = False


def run_git(
    arguments: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    limits: GitLimits,
    stdin: bytes | IO[Any] = b"",
) -> GitRun:
    """`folder`: a directory that no command in walls can write; git starts there. `stdin`: bytes or an open file."""
    argv = (find_git(environ), *arguments)
    return run_program(argv, folder=folder, environ=environ, limits=limits, stdin=stdin)


def run_program(
    argv: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    limits: GitLimits,
    stdin: bytes | IO[Any] = b"",
    cwd: str = "",
) -> GitRun:
    """The same for any program, by its path. `cwd`: where it starts, if not in `folder`."""
    size = f'ulimit -f {limits.file // _BLOCK} && exec "$@"'
    with (
        tempfile.TemporaryFile(dir=folder) as given,
        tempfile.TemporaryFile(dir=folder) as out,
        tempfile.TemporaryFile(dir=folder) as errors,
    ):
        if isinstance(stdin, bytes):
            given.write(stdin)
            given.seek(0)
        process = subprocess.Popen(
            ["/bin/sh", "-c", size, "git", *argv],
            cwd=cwd or folder,
            env=environ,
            stdin=given if isinstance(stdin, bytes) else stdin,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        cut = False
        try:
            cut = _wait(process, limits, out.fileno(), errors.fileno())
        finally:
            if process.poll() is None:
                _kill_tree(process)
        out.seek(0)
        errors.seek(0)
        return GitRun(process.returncode, out.read(limits.output), git_words(errors.read(_MOST_ERRORS)), cut)


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Those below first, and stopped, so that nobody is left who starts or hides another one. Threat: a helper in a
    session of its own, which a signal to git's process group does not reach."""
    for _ in range(_ROUNDS):
        _signal(process.pid, signal.SIGSTOP)
        below = [pid for pid in descendants(process.pid) if (facts := process_stat(pid)) and facts.alive]
        for pid in below:
            _signal(pid, signal.SIGSTOP)
        if not set(descendants(process.pid)) - set(below):
            break
    for pid in below:
        _signal(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class _Activity:
    """Whether anybody of a tree of processes works. Bytes count, not wake-ups: git looks for an answer of a server
    many times a second."""

    def __init__(self, root: int, seconds: float) -> None:
        self._root = root
        self._seconds = seconds
        self._moved: tuple[frozenset[int], int] = (frozenset(), -1)
        self._cpu = 0.0
        self._since = self._looked = time.monotonic()

    def check(self) -> None:
        """Raises GitIdle."""
        now = time.monotonic()
        if now - self._looked < min(_LOOK_SECONDS, self._seconds / 4):
            return
        self._looked = now
        pids = [self._root, *descendants(self._root)]
        facts = [found for pid in pids if (found := process_stat(pid)) is not None]
        moved, cpu = (frozenset(pids), sum(map(_bytes_moved, pids))), sum(each.cpu_s for each in facts)
        if moved != self._moved or cpu - self._cpu >= _BUSY_CPU_S:
            self._moved, self._cpu, self._since = moved, cpu, now
        elif now - self._since >= self._seconds:
            raise GitIdle(_name(pids[-1]))


def _bytes_moved(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:  # gone, or somebody else's
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "git"


def wait_briefly(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Returns at once when it ends; `Popen.wait` with a timeout sleeps in between."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:  # before Linux 5.3
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return
    try:
        waiting = select.poll()  # `select` refuses descriptors above 1,023
        waiting.register(fd, select.POLLIN)
        waiting.poll(seconds * 1000)
    finally:
        os.close(fd)
    process.poll()


def find_git(environ: Mapping[str, str]) -> str:
    found = find_program("git", environ=environ)
    if found is None:
        raise GitMissing
    return found


def _wait(process: subprocess.Popen[bytes], limits: GitLimits, out: int, errors: int) -> bool:
    """True: git wrote more than its limit, and the rest is cut off."""
    until = time.monotonic() + limits.seconds
    activity = _Activity(process.pid, limits.idle) if limits.idle else None
    while process.returncode is None:
        wait_briefly(process, _POLL_SECONDS)
        if limits.stopped():
            raise GitStopped
        if os.fstat(out).st_size > limits.output:
            if limits.cut:
                return True
            raise GitOutputLimit
        if os.fstat(errors).st_size > _MOST_ERRORS:
            raise GitOutputLimit
        if process.returncode is None and time.monotonic() >= until:
            raise GitTimeout
        if process.returncode is None and activity is not None:
            activity.check()
    return False
